// Package ttft decides which requests of a pipeline with language models go on,
// under a deadline for the first token of its answer (PARD, section 7): rewrite a
// query, retrieve and search at once, generate.
//
// A rewrite takes as long as its output, which nobody knows before. What differs
// between the policies is the time that they assume for it:
//
//	reactive       nothing: a request goes on until its deadline has passed
//	probabilistic  nothing: the entry turns away a share that grows with the load
//	proactive      the mean of those that ended lately (PARD's own reading)
//	predicted      a quantile of the lengths of earlier requests of the same kind
//	oracle         the length itself
//
// A request is looked at when it enters a stage. Search is taken at its recent
// mean, retrieval and the wait for generation too, and the prompt of generation
// from the profile. The package has no clock. One goroutine calls a Policy.
//
//	policy.go   the decision
//	recent.go   means of what ended lately, quantiles by kind of request
package ttft
