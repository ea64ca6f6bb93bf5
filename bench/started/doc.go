// Package started waits for processes that instruments start, and starts servers of language models.
package started
