// Package calls serves the HTTP form of workflows as code (formats/calls).
//
// Handler serves it over a Backend, which runs tasks. It keeps the outputs of every
// request in a store until the request ends: by DELETE, or when its client has not
// been heard of for Limits.Idle. Nothing of a request is left then.
//
//	backend.go  what runs tasks
//	store.go    requests with their tasks and outputs
//	handler.go  the HTTP form over a backend
//	decode.go   messages
package calls
