// Package queue plans virtual queues of language models (QLM, "One Queue Is All You Need", section 7). Its
// programs prove the order of a few request groups. The search for orders of many groups is in
// policy/vqueue, because it also runs while serving. Package deploy, below this one, chooses the instances,
// and package verify checks a plan against today's documents.
//
// Vocabulary:
//
//   - Instance: a server of language models on one or several devices.
//   - Layout: pools of instances that share nothing (package deploy).
//   - Request group: requests of one model and class with similar lengths, which are scheduled as one.
//   - Queue (virtual queue): the order in which one instance serves groups. A place is a position in it.
//   - Work: the time of the instance that a group takes before the next one starts. Residence: the time
//     until its last answer ends after that.
//   - Setup, change: loading another model onto an instance, between groups of different models.
//   - Item: a class of requests for one model (package deploy).
//   - Mega prompt: a prompt many times longer than the median. Such requests form groups of their own.
//
// The order in which to read the files:
//
//	method.go    the entry of package planner: bound, search of instances, plan, or why there is none
//	adopt.go     a plan of servers that run and were not planned
//	replan.go    a plan that moves few devices of one that runs
//	groups.go    the first request groups of a plan, and their order
//	program.go   the program of an order: equations 6, 7 and 9 (places of groups, changes of model), and its solution from the order that a search found
//	times.go     its equations 8 and 10 to 13 (completion times and their cost)
//	write.go     from a layout to a plan, and whether its value is proven
//	certify.go   the test of a plan's rates by simulation
//	explain.go   the lines of plan explain
//	workload.go  a workload that asks for less, to find what is nearest, or for what a served plan got
//
// # Repairs of the paper's program
//
// The sum of changes in equation 10 runs up to the place itself: as printed, a group does not pay for its
// own change of model. Changes are indicators per model, instead of comparisons of model numbers, and the
// first place is compared with the model that is loaded. Empty places are not groups: they have no deadline
// (equation 12) and do not enter the sum (equation 13). No place after an empty one is taken.
//
// Equation 13 is the sum of completion times up to a constant. It ignores how many requests a group has,
// and under equation 12 a single group that is late in any case makes the program infeasible. So the goal
// LateRequests counts late requests in the objective instead.
//
// # Uncertain times
//
// The square root in the chance constraint (equation 12) is concave in the sum of the variances. Its
// tangent at one variance lies above it, so a row with the tangent implies the constraint. Scenarios make a
// sample-average program: one order, with completion times per scenario.
//
// # Relaxation
//
// Places make the relaxation of the goal LateRequests weak: a half of a group at each of two places is in
// time at both. Capacity rows mend that: per queue and due time, the groups that are in time and due by
// then must fit before it, with the changes of model that they need.
package queue
