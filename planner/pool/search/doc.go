// Package search finds a plan and proves a bound on all plans: it runs the phases from templates to a placed plan, for the
// most throughput or the least price, and plans the baselines of PPipe.
//
// Vocabulary:
//
//   - Phase: a step of the search that may improve the best plan or the bound. A search stops at the first phase after
//     which the gap is small enough.
//   - Basis: the templates that the solution of the relaxation uses.
//   - Survivors: the templates that a plan better than the best may use, by their losses.
//
// The files, in the order of the steps:
//
//	search.go     the search: relaxations of all wait choices, bounds, stop rules, progress
//	improver.go   the phases that improve plan and bound: they choose the templates, and so the batch sizes
//	floors.go     drops wait choices under which no plan meets the floors; floors at the edge of what is carried, and the plan of the largest part of them
//	diagnosis.go  why no plan serves every model
//
// After the objective is reached:
//
//	solve.go      Solve: the most throughput
//	cheapest.go   Cheapest: the least price that carries given rates
//	polish.go     of equal plans, one of fewer moves, a larger weighted sum, fewer devices
//	latency.go    of equal plans, one of less latency
//	uneven.go     SolveUneven: devices that leave the NIC of their node to others
//
// Baselines:
//
//	baseline.go   NP: whole models on whole devices
//	dartr.go      DART-r: pairs of devices of two kinds
package search
