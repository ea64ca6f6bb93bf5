// Package started waits for processes that the instruments beside it start.
package started
