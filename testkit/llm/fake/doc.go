// Package fake is a server of language models for tests: in this process, quick,
// the same every time, with the faults that real ones have.
//
// It speaks OpenAI's completions API and llama-server's router: models come and go
// by /models/load and /models/unload, or by the request that names them, as many at
// once as Options.Most says. Its text depends on the model and the text before it
// alone, so an answer that was cut off goes on the same when prompt and part are sent
// again. One character is one token.
//
// Adapters are those of llama-server, with which it is started, or of vLLM, which are
// loaded. With an adapter the text is that of a model of the adapter's name.
//
//	fake.go      Server: options, life, faults
//	http.go      what it answers
//	stream.go    completions
//	choices.go   what answers are made of
//	adapters.go  adapters of a model
//	sleep.go     servers that sleep
package fake
