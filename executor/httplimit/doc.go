// Package httplimit is the door of a server: what all protocols have in common before
// anything is decided. A handler that does not stand behind it fails a test of the house.
//
//	door.go    Door: keys, callers, times, panics; the only maker of HTTP servers
//	access.go  the log of accesses
//	body.go    the only reader of bodies, within the memory for requests
//	budget.go  Budget: that memory, shared fairly among clients
//	keys.go    Keyring: bearer tokens, and what their holders may do
//	caller.go  pages of other sites, content types
//	buffer.go  Buffer: pooled bytes, counted by reference
//	error.go   Error: a refusal or a failure, with the status that it becomes
//	gate.go    Gate: requests inside, and none more once the server drains
package httplimit
