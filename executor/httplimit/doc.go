// Package httplimit holds what the servers of all protocols have in common: what they
// refuse before anything is decided.
//
//	error.go   Error: a refusal or a failure, with the status that it becomes
//	budget.go  Budget: the memory for requests, shared fairly among clients
//	caller.go  pages of other sites, content types
//	token.go   bearer tokens
//	gate.go    Gate: requests inside, and none more once the server drains
package httplimit
