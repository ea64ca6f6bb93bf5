// Package search finds the plan that a problem's goal asks for: the most accuracy, the least latency, or the devices of
// the least price. It plans on placement after placement, keeps the best plan, and bounds what others can reach. The
// vocabulary is that of planner/gear.
//
// Order of reading:
//
//	solve.go            Solve, the goal that it searches for, and what all solves of a problem share
//	inputs.go           the spaces that a problem is planned in, and its bounds
//	placementsearch.go  plans on several placements, of which the best is kept; a quick one in case the search is interrupted
//	candidates.go       what no plan exceeds that passes trials
//	latency.go          the least latency
//	price.go            the devices of the least price
//	heldout.go          an accuracy that is also met on held-out samples
package search
