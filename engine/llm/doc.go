// Package llm is a client of servers of language models as they are: vLLM,
// llama.cpp's llama-server, SGLang, Ollama, and others that speak OpenAI's API.
//
// Complete sends one request and tells of every piece of the answer when it came.
// The context ends a request early: the connection is closed, and the servers stop
// to generate for it. What came until then is in the answer that is returned
// beside the error.
//
//	client.go  where a server is, and what its refusals mean
//	stream.go  one request, its tokens with their times
//	sse.go     server-sent events
//	first.go   how likely the first tokens of an answer are
//	server.go  what a server can do, as its answers say
//	switch.go  models that come and go
//	lora.go    adapters that come and go
//	use.go     how requests ask for a model or an adapter of it
//	state.go   how busy a server is, and how many requests it has room for
//	resume.go  answers that were begun
//	facts.go   what a server says of itself: KV capacity, sequences, context
//
// Errors say what a caller must do differently, whatever the server calls it: full
// (ErrFull: come again), the model is not there (ErrUnknownModel), the server is
// gone or broke off (ErrGone), the key is refused (ErrUnauthorized), the server
// does not stream (ErrNoStream), the request is at fault (ErrRefused).
package llm
