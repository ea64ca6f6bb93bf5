// Package llm is a client for unmodified servers of language models: vLLM, llama.cpp's llama-server, SGLang,
// Ollama, and others that have OpenAI's API.
//
// Complete sends one request and reports every piece of the answer with its time. If the context ends, the
// connection is closed and the server stops generating. The answer so far is returned beside the error.
//
// Vocabulary:
//
//   - Piece: the part of an answer that one event of the stream carries.
//
//   - Switch: the way in which a server loads and unloads models (see type Switch).
//
//   - Router: llama-server without a model of its own, in front of servers of models.
//
//   - Adapter: a LoRA adapter. Weighted adapters get their weight with each request.
//
//   - Canary: the answer to a fixed prompt, compared before and after a model sleeps.
//
//     Read in this order:
//
//     client.go  the address of a server, and the kinds of its errors
//     stream.go  one request, its tokens with their times
//     sse.go     server-sent events
//     first.go   the probabilities of an answer's first token
//     server.go  the abilities of a server, by its answers
//     switch.go  loading and unloading models
//     lora.go    loading and unloading adapters
//     use.go     how requests name a model or an adapter of it
//     state.go   the load of a server, and how many requests it can take
//     resume.go  continuing answers that broke off
//     facts.go   what a server reports of itself: KV capacity, sequences, context
//
// The kind of an Error says what a caller can do, whatever the server calls it: the server is full (ErrFull: try
// later), it does not have the model (ErrUnknownModel), it does not answer or broke off (ErrGone), it refuses the
// key (ErrUnauthorized), it does not stream (ErrNoStream), or the request is wrong (ErrRefused).
package llm
