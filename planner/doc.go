// Package planner turns documents into a plan: a profile (what each block
// costs), a cluster (which devices there are) and a workload (what is asked for)
// go in, a plan with a proven bound comes out.
//
// The package itself knows no kind of plan. Solve finds the method that the
// workload asks for in a table, checks the options against those of the method,
// says at once what the method cannot do, and drives it: clock, time limit,
// improvements, interrupt, and the header of the plan. Every default that
// mattered is in the plan's assumptions. What does not fit together is a
// *document.Error that names the file and the field; what cannot be done is an
// *InfeasibleError that names the nearest thing that can.
//
//	kinds.go     the table of methods
//	options.go   what the caller may choose, checked before any work
//	solve.go     Solve, the only driver, and Certify
//	nearest.go   what is nearest to a problem without a plan, by solving again
//	measured.go  doubts about rates that rest on loose measurements
//	local.go     the documents that are assumed where none is given
//	diff.go      what moved between two plans
//
// Sub-packages: kind (the contract of a method), stages (what can be cut into
// stages), pool, gear, flow and queue (the methods), recompute (a plan from first principles),
// check (is a plan still true?) and explain (text for people).
package planner
