// Package incumbent keeps the best plan of a search, by the goal of the search, and what is proven of all plans.
//
// Vocabulary:
//
//   - Score: the value of a plan by the goal of the search, in units. A higher score is always better; for the least
//     price it is the price with its sign turned.
//   - Incumbent: the best plan so far, with the proven bounds.
//
// The files:
//
//	goal.go       the goals: the most throughput, or the least price
//	incumbent.go  the best plan so far, the bounds and the gap
package incumbent
