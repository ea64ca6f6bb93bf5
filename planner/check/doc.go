// Package check reports whether a plan is still true. Recompute validates it against today's
// profile, cluster and workload from first principles, by the method of its kind. Gate also
// solves again with the plan's own options and compares what was promised with what holds
// today, within tolerances, for a CI job.
//
// The words of this package:
//
//   - Promised: the plan, and its figures, as they were before. Current: those of today.
//   - Figure: a number that is compared, such as a rate; its metric has a tolerance.
//   - Chance: how much figures of times differ between profiles of unchanged models.
//   - Reference: a computation that profiles measure to see how fast the machine was.
//   - Drift: how much a profile differs from the first promised one.
//
// Order of reading:
//
//	gate.go       Gate and its result
//	recompute.go  Recompute: findings, each with its constraint and field
//	metrics.go    the figures that are compared, each with a tolerance
//	noise.go      how much of a difference is chance: half widths, runs, several profiles
//	recut.go      profiles that cut models at other tensors
//	steady.go     times relative to how fast the machine was, and CPU times of a busy machine
//	untested.go   plans with tested rates against plans with untested ones
//	text.go       the reasons of a verdict, for people
package check
