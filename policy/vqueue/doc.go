// Package vqueue decides which request group of language models is served where
// and when: QLM's virtual queues ("One Queue Is All You Need", sections 4 to 7).
//
// A virtual queue is the order in which one instance serves request groups. The
// package estimates when requests of a group will be answered, and searches for
// the assignment and order with the fewest expected violations. It is pure: times
// are arguments, random numbers come from the caller's generator, and work is
// counted in positions looked at.
//
//	problem.go    Problem: groups, their costs by device kind, queues, objective
//	objective.go  what a group costs that starts at a given time
//	state.go      State: an order with its costs, changed and copied in place
//	greedy.go     cheapest insertion by deadline; earliest deadline first
//	search.go     large-neighbourhood search with simulated annealing
//	choose.go     which groups a step of it takes out
//	exchange.go   pieces of queues that change places
//	cluster.go    requests into groups: k-means++, split by size (Algorithm 1)
//	rct.go        the estimator of completion times (equations 1 to 5), corrected
//	follow.go     the estimator recalibrated while requests finish
//
// # Objective
//
// The paper minimises the sum of completion times less SLOs (equation 13), which
// is blind to the sizes of groups: it is a constant away from the sum of completion
// times. Here the objective counts requests:
//
//	sum over groups of size * mean over quantiles u of P(start + u work + residence > deadline_u)
//	+ Tardy * sum of size * tardiness + End * sum of the queues' ends
//
// The probability is that of a normal completion time. It takes the place of the
// chance constraint (equation 12): it is never infeasible, and a group that is
// late in any case goes to the end. The members of a group count by quantiles of
// their order of service, not by the group's maximum (equation 5), which
// overpredicts: the last members of a batch decode faster.
//
// # How the search is fast
//
// A queue's slots hold the mean and variance of their start. An insertion looks at
// the group's own cost at each place, and at what the groups behind it cost more.
// Slots know how much later they and all behind them may start before their cost
// is other than linear, so most insertions stop at once. The others stop when they
// cost more than the best place so far.
package vqueue
