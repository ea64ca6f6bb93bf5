// Package planner turns documents into a plan: a profile (what each block
// costs), a cluster (which devices there are) and a workload (which models,
// which SLOs) go in, a plan with a proven bound comes out.
//
// Solve resolves the documents into numbers (SLO multiples, defaults, which
// cuts may cross as float16), hands them to the method that the workload asks
// for, and writes the result as a self-contained plan. Every default that
// mattered is in the plan's assumptions. What does not fit together is a
// *formats.Error that names the file and the field; what cannot be done is an
// *InfeasibleError that names the nearest thing that can.
//
//	options.go   what the caller may choose
//	resolve.go   documents to a pool.Problem
//	write.go     the outcome as a plan
//	solve.go     Solve
//	errors.go    InfeasibleError
//	local.go     the documents that are assumed where none is given
//	certify.go   what simulation says of a plan
//	auto.go      the margin that simulation certifies most with
//	objective.go what is to grow or to shrink, and at what prices
//	adopt.go     plans that others recorded, as ours
//
// Sub-packages: pool (the method for pooled pipelines), stages (what models can
// be cut into, below all methods), check (is a plan still
// true?) and explain (text for people).
package planner
