// Package queue plans virtual queues of language models (QLM, "One Queue Is All
// You Need", section 7): programs that prove the order of few request groups.
// The search itself is in policy/vqueue, because it also runs
// beside the policy.
//
//	program.go  equations 6, 7 and 9: places of groups, changes of model
//	times.go    equations 8 and 10 to 13: completion times and what they cost
//	exact.go    solving a program, from the order that a search found
//	method.go   the entry of package planner: bound and search of instances
//	groups.go   the first request groups and their order
//	write.go    the plan
//	certify.go  the rate that simulation shows
//	explain.go  what is told of it
//	diff.go     what moved between two plans
//	deploy/     which instances there are
//	verify/     the plan against today's documents
//
// # Repairs of the paper's program
//
// The sum of changes in equation 10 runs to the place itself: as printed, a group
// does not pay its own change of model. Changes are indicators per model, instead of
// comparisons of model numbers, and the first place is compared with the model that
// is loaded. Empty places are not groups: they have no deadline (equation 12) and do
// not enter the sum (equation 13). No place behind an empty one is taken.
//
// Equation 13 is the sum of completion times up to a constant. It does not see how
// many requests a group has, and one group that is late in any case leaves no plan at
// all under equation 12. So the goal Late counts requests, softly.
//
// # Uncertain times
//
// The root in the chance constraint (equation 12) is concave in the variances that
// the places sum up. Its tangent at one variance lies above it, so a row with the
// tangent implies the constraint. Scenarios make a sample-average program: one order,
// with completion times per scenario.
//
// # Relaxation
//
// The places leave the relaxation of the goal Late weak: a half of a group at each of
// two places is in time at both. Rows of capacity mend that: per queue and due time,
// the groups in time that are due by then fit before it, with the changes of model
// that they need.
package queue
