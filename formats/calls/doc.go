// Package calls is workflows as code: a program asks for tasks, goes on, waits for
// what it needs, reads results, and decides what comes next.
//
// Enqueueing gives a handle at once. Tasks that are enqueued without a wait between
// them are known together, so that a server can batch and place them together.
// What a task reads is named by handles and need not be there yet.
//
//	task.go  Call, Handle, Outputs
//	http.go  the HTTP form: its paths and its messages
//
// # The HTTP form
//
//	POST   /v1/workflows                            Open      -> Opened
//	POST   /v1/workflows/{request}/tasks            Enqueue   -> Enqueued
//	GET    /v1/workflows/{request}/tasks/{task}     ?wait=5s  -> Result
//	GET    /v1/workflows/{request}/tasks/{task}/stream        -> server-sent events
//	DELETE /v1/workflows/{request}                            -> 204
//
// A model with a step before it (such as ocr-line) takes what the step makes of the
// request's inputs and of the tasks that it reads: those of the plan's own module, in
// order.
//
// A result that is not there within the wait has the state "running": the client
// asks again. A stream has one event "result", once the task has ended. Errors are a
// Failure with status 400 (what was sent is wrong), 404 (no such request or task), 409 (the request has ended), 413 (too
// large), 429 (too many at once; Retry-After says when) or 503 (the server ends).
// DELETE frees all that is kept of a request. So does a pause of the client that is
// longer than the server's limit.
package calls
