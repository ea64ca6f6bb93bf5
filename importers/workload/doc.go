// Package workload makes classes of a workload of language models from a trace of their requests: rates, lengths,
// sessions, and shared prefixes.
//
// The trace is a CSV file with a header. It has t_us or t_s, prompt_tokens or input_tokens, and output_tokens. It
// may have model, class, session (or session_id, conversation), and cached_tokens (or
// prefix_hit_tokens_infinite_cache: tokens of the prompt that were sent before, as in Mooncake's traces). Other
// columns are skipped.
//
//	read.go   the rows
//	class.go  the classes made from them
//	queue.go  the workload of language models
//	log.go    requests that another tool recorded, as rows
//	pool.go   the workload of models, from requests without tokens
//
// # What becomes of what
//
//   - The rate is the mean over the whole span. If the variation of the gaps is not that of a Poisson
//     process, arrivals are gamma with that variation.
//   - Lengths are a distribution of a hundred values of equal weight, each the mean of its rows, so that
//     the overall mean is kept.
//   - In a trace with sessions, only the new part of a prompt counts as its length; formats.Sessions says
//     which share of the earlier tokens it repeats. A trace with cached tokens but without sessions
//     gives the same: the tokens that a first request finds are shared by all, and a request that finds
//     more continues a session.
//   - In a trace without times, such as conversations row by row, the rate is left open.
package workload
