// Package balance shares work among identical machines of which each takes some kinds of
// work only, so that the busiest has as little as possible. Tests hold the planner of cascades against it, and the instruments
// place what other planners choose by it.
//
// The load of the busiest machine is at least the work of any kinds together, divided by the
// machines that take one of them. The largest of these ratios is reached: that is Hall's
// condition (1935) for fractions, or max-flow min-cut. So the load needs no linear program,
// only a look at every set of kinds: they may be a dozen, not a hundred.
//
// The split is found by cyclic water-filling: each kind in turn takes its work back and pours
// it again where the others leave the least. This descends to the split that levels all
// loads, which has the least maximum, too.
package balance
