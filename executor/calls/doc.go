// Package calls serves the HTTP form of workflows as code (formats/calls). A client, which is a program in any
// language, opens a request, asks for tasks, and fetches their results.
//
// Vocabulary:
//
//   - Request: a run of a client's program. It ends by DELETE, or when its client has not called for
//     Limits.IdleTimeout. Then nothing of it is left.
//   - Task: a call of a model within a request, with a handle by which later tasks read its outputs.
//   - Backend: what runs the tasks.
//
// Order of reading: backend.go, handler.go (the HTTP form), store.go (requests with their tasks and outputs),
// decode.go (messages).
package calls
