// Package llmtrace makes classes of a workload of language models out of a trace of
// their requests: rates, lengths, sessions and the prefixes that they share.
//
// The trace is CSV with a header: t_us or t_s, prompt_tokens or input_tokens, and
// output_tokens; where there are, model, class, session (or session_id,
// conversation), and cached_tokens (or prefix_hit_tokens_infinite_cache: tokens of the
// prompt that were sent before, as in Mooncake's traces). Other columns are skipped.
//
//	read.go   the rows
//	class.go  what of them stands in a class
//	queue.go  the workload
//
// # What becomes of what
//
//   - The rate is that of the whole span, and gamma arrivals take the variation of
//     the gaps where it is not that of a Poisson process.
//   - Lengths are a distribution of a hundred classes of equal weight, each at the mean
//     of its rows, so that the mean of all stays.
//   - In a trace with sessions a prompt is what is new in it: formats.Sessions says
//     which share of what was said before it repeats. A trace that tells tokens sent
//     before, and no sessions, gives the same: what a first request finds is shared by
//     all, and a request that finds more goes on with a session.
//   - In a trace without times, as of conversations row by row, the rate stays open.
package llmtrace
