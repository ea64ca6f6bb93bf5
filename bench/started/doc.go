// Package started waits for processes that instruments start, starts servers of language models, and reports how busy the machine is.
package started
