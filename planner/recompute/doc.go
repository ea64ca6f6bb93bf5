// Package recompute holds what the kinds' parts of a check share: what a pipeline of a plan
// costs by the documents of today, and whether its deployment is possible. It shares no code
// with the planner, so that a mistake there shows here.
//
// The words of this package:
//
//   - Current: by the documents of today, as opposed to what the plan says.
//   - Piece: a range of blocks that was measured in one run.
//   - Crossing: the transfer of the tensors of a cut between two stages.
//   - Half width: half of the 95 % interval of a measured median.
//
// Order of reading:
//
//	checker.go       findings, and the structure of pipelines
//	currentcosts.go  what the stages of a plan cost and carry today
//	ranges.go        the time of a range of blocks
//	devices.go       pools, the memory of a replica, and what the devices of a plan cost
//	crossing.go      what crosses between two stages
//	blocks.go        which blocks became slower
//	noise.go         the work of a plan by a profile, and how exactly it is known
//
// The kinds' own parts are in planner/pool/verify and so on.
package recompute
