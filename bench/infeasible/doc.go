// Command infeasible measures how far the answer "infeasible" can be relied on. It
// draws problems without a plan, of all kinds and objectives: an SLO that is too
// tight, rates that are too high, too few devices, too little memory, an unknown
// device, no rate at all, and several of these together. For each it asks:
//
//   - is there a verdict: infeasible or bad input, never an internal failure;
//   - is the cause the true one: without it there is a plan;
//   - is the suggestion feasible, and nothing nearer than 1 %: both are solved.
//
// The files:
//
//	main.go      the parts, and the verdicts
//	worlds.go    problems of pooled pipelines
//	kinds.go     problems of applications, cascades and language models
//	judge.go     the verdict on a verdict
//	refusals.go  what the answers to problems of language models take, beside solving what is nearest
//
//	make bench NAME=infeasible
package main
