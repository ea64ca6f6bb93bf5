// Package check tells whether a plan is still true. Recompute validates it
// against today's profile, cluster and workload from first principles, by the
// method of its kind. Gate also plans again with the plan's own options and
// compares what was promised with what holds today, within tolerances, for a CI
// job.
//
//	recompute.go  Recompute: findings, each with its constraint and field
//	untested.go   plans whose rates are tested against plans whose rates are not
//	metrics.go    the figures that are compared, each with a tolerance
//	noise.go      how much of a difference is chance: half widths, runs, several profiles
//	recut.go      profiles that cut models at other tensors
//	busy.go       profiles of a busy machine: CPU times
//	steady.go     times in relation to how fast the machine was
//	gate.go       Gate and its result
//	text.go       what stands behind a verdict, for people
package check
