// Package completions serves the OpenAI protocol for text in front of a durable
// queue: completions, chat completions, models, files, batches.
//
// It knows how requests come and go, and what must not be lost. Which request is
// served when, and by which server of language models, is decided behind the
// interface Server.
//
// # How a request goes
//
//  1. The front end reads and checks the body, within the limits of package
//     httplimit, and asks Server.Admit whether the request may come in now. If not,
//     the client gets 429 with a Retry-After.
//  2. The request is stored. From here on it is accepted, and is not lost.
//  3. The queue hands it to Server.Serve, which calls Output as text comes. Text goes
//     to the client at once. It is stored when the request is evicted, after some
//     time, and at the end.
//  4. Output.Done ends it. The result is stored before the client sees the end.
//
// A client that goes away loses nothing: it finds its answer by the request's id.
// After a restart every stored request without a result is handed to Server.Serve
// again, with the text that was stored.
package completions
