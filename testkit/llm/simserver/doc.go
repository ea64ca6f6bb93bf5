// Package simserver is an HTTP server of a language model that is none: its
// iterations take what those of a simulated instance (package sim/llm) take, by the
// clock. What measures or drives servers is tested against it, because everything
// about it is known. In a bubble of testing/synctest it is exact and takes no time.
//
// It speaks as vLLM does: completions that are streamed with counts of tokens, its KV
// blocks among the metrics, sleep and wake. A prompt has a token for five characters,
// and one more.
package simserver
