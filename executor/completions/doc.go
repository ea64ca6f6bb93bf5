// Package completions is the front end for text: it serves the OpenAI protocol (completions, chat completions,
// models, files, batches) over a durable store, and loses no request that it has accepted. Which request is served
// when, and by which server of language models, is decided behind the interface Server.
//
// Vocabulary:
//
//   - Front: the front end. It holds the options, the HTTP server and the requests that have not ended.
//   - Request record: a request as the store holds it (requestRecord). A durable.Record contains it as JSON.
//   - Request result: how a request ended, as the store holds it (requestResult).
//   - Tracked request: a request that has not ended, or that a client still reads (trackedRequest). It is the Output
//     of its request.
//   - Remote request: one that another process serves, which shares the store.
//   - Events: an answer that is more than one text (tool calls, several choices, log probabilities). Its text is a
//     log of lines of package deltas.
//   - Running batch: a batch whose lines this process submits (runningBatch). A batch is a record, too, so that any
//     process may take it over.
//   - Line mark: the state of a line of a running batch: open, answered or failed.
//   - Owner: the name of the client's key. The sender is the owner, or the client's address if it has no key.
//
// # How a request goes
//
//  1. The front end reads and checks the body, within the limits of package httplimit, and asks Server.Admit whether
//     the request may come in now. If not, the client gets 429 with a Retry-After.
//  2. The request is stored. From here on it is accepted, and is not lost.
//  3. The store hands it out (Store.Claim), and the front end hands it to Server.Serve, which calls Output as text
//     comes. Text is sent to the client at once. It is stored when the request is evicted, every
//     Options.TextStoreInterval, and at the end.
//  4. Output.Done ends it. The result is stored before the client sees the end.
//
// A client that disconnects loses nothing: it can fetch its answer by the request's id. After a restart every stored
// request without a result is handed to Server.Serve again, with the text that was stored.
//
// Order of reading: server.go (Server, Output, Request), options.go, front.go and table.go (what is open here); http.go,
// decode.go, session.go and handlers.go (from the HTTP request to the record); record.go, admission.go and tracked.go (from the
// record to the result); stream.go and answer.go (what the client sees); remote.go (remote requests); forward.go
// (requests that pass through to servers); space.go (a store whose disk is full); models.go and files.go; batches.go, batchlines.go, batchrun.go and batchresult.go.
package completions
