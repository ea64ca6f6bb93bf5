// Package planner turns documents into a plan: a profile (what each block costs), a
// cluster (which devices there are) and a workload (what is asked for) go in, a plan with
// a proven bound comes out.
//
// The package itself knows no kind of plan. Solve finds the method for the workload in a
// table, checks the options against those of the method, refuses what the method cannot do
// before any work, and drives it: clock, time limit, improvements, interrupt, and the header
// of the plan. Every default that mattered is in the plan's assumptions. Documents that do
// not fit together give a *document.Error, which names the file and the field. A problem
// without a plan gives an *InfeasibleError, which names the nearest problem that has one.
//
// The words of this package:
//
//   - Method: the planner of one kind of plan, see package kind.
//   - Incumbent: a plan that was better than all before it during a solve.
//   - Relaxation: by how much less is asked, or more given, than in the problem.
//   - Nearest: the smallest relaxation that was found to have a plan.
//   - Trial: a solve that only asks whether there is a plan.
//   - Auto: the value of an option that simulation is to find.
//
// Order of reading:
//
//	kinds.go     the table of methods, and what changed between two plans
//	options.go   what the caller may choose, checked before any work
//	solve.go     Solve, the only driver
//	nearest.go   the nearest problem that has a plan, found by solving again
//	measured.go  warnings about rates that rest on loose measurements
//	local.go     the documents that are assumed if none are given
//
// Sub-packages: kind (the contract of a method), stages (what can be cut into stages), pool,
// gear, flow and queue (the methods), moves (what changes on the
// devices that run), recompute (a plan from first principles), check (is a
// plan still true?), explain (text for people) and lists (sums and lists).
package planner
