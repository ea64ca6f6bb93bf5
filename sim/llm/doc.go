// Package llm models an instance of a language model: a server with continuous
// batching (Orca, OSDI 2022; vLLM, SOSP 2023), iteration by iteration.
//
// An iteration gives every sequence that decodes its next token and spends what is
// left of the token budget on prompts, first come, first served, in chunks
// (Sarathi-Serve, OSDI 2024). How long it takes is formats.Iteration. Waiting
// sequences are admitted while there is room: fewer than so many at once, and
// blocks of KV memory for the whole prompt. The rest of their KV grows block by
// block. Where none is left, the sequence that was admitted last leaves and waits
// again (with priorities: the least urgent one); it computes its KV anew, or swaps
// it in from the host's memory. Blocks that became free hold what was in them
// until they are needed: a later prompt of the same session finds its prefix there.
//
//	instance.go  what an instance is and holds, how sequences come and leave
//	iterate.go   an iteration: growth, pre-emption, chunks, admission, tokens
//	blocks.go    KV memory and the prefix cache
//	heap.go      the waiting queue, and what comes next in the running batch
//	drain.go     requests against one instance alone: calibration, validation
//
// The cost of an iteration does not grow with the batch: what all decoding
// sequences have in common is kept as sums, and each of them is looked at when it
// ends, reports progress or leaves. Nothing is allocated per iteration.
package llm
