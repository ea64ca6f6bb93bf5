// Package calls defines workflows as code: a program asks for tasks, continues, waits for the results that it
// needs, and decides what comes next.
//
// Enqueueing returns a handle at once. Tasks that are enqueued without a wait between them are known together, so
// that a server can batch and place them together. The inputs of a task are named by handles, and need not exist
// yet.
//
//	task.go  Call, Handle, Outputs
//	http.go  the HTTP form: its paths and its messages
//
// # The HTTP form
//
//	POST   /v1/workflows                            Open      -> OpenReply
//	POST   /v1/workflows/{request}/tasks            Enqueue   -> EnqueueReply
//	GET    /v1/workflows/{request}/tasks/{task}     ?wait=5s  -> Result
//	GET    /v1/workflows/{request}/tasks/{task}/stream        -> server-sent events
//	DELETE /v1/workflows/{request}                            -> 204
//
// A model with a step before it (such as ocr-line) gets the step's output. The step reads the request's inputs and
// the tasks that the plan's module reads, in order.
//
// If a result is not ready within the wait, its state is "running", and the client asks again. A stream has one
// event "result", when the task has ended. Errors are a Failure with status 400 (the message is wrong), 404 (no
// such request or task), 409 (the request has ended), 413 (too large), 429 (too many at once; Retry-After says
// when) or 503 (the server ends). DELETE frees all memory of a request. So does a pause of the client that is
// longer than the server's limit.
package calls
