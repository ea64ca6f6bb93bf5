// Package llm simulates an instance of a language model: a server with continuous
// batching (Orca, OSDI 2022; vLLM, SOSP 2023), iteration by iteration.
//
// In an iteration every decoding sequence generates its next token. The rest of the
// token budget goes to prompts, first come, first served, in chunks (Sarathi-Serve,
// OSDI 2024). Its duration is formats.Iteration.
//
// A waiting sequence is admitted if the number of sequences allows it and there are
// blocks of KV memory for its whole prompt. Its KV then grows block by block. If there
// is no block left, the sequence that was admitted last is preempted and waits again
// (with priorities, the least urgent one). Its KV is computed anew or swapped in from
// the host's memory. Blocks that became free keep their content until they are needed:
// a later prompt of the same session finds its prefix there.
//
// The words of this package:
//
//   - Sequence: a request on an instance. It waits, prefills (computes its prompt), then
//     decodes (generates one token per iteration).
//   - Block: the unit of KV memory, a number of tokens.
//   - Prefix: the start of a session's context, as free blocks hold it.
//   - Phase: the iterations, modulo the block size, in which a sequence needs a block.
//   - Check: the iteration in which a decoding sequence ends or reports progress.
//
// The cost of an iteration does not grow with the batch: what all decoding sequences have
// in common is kept as sums, and each of them is looked at only when it ends, reports
// progress or leaves. Nothing is allocated per iteration.
//
// Order of reading:
//
//	instance.go  the instance, and how sequences come and leave
//	iterate.go   an iteration: growth, preemption, chunks, admission, tokens
//	blocks.go    KV memory and the prefix cache
//	serveall.go  requests on one instance alone: calibration, validation
package llm
