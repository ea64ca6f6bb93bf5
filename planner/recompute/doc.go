// Package recompute holds what the kinds' halves of a check share: what a
// pipeline of a plan costs by the documents of today, and whether a deployment
// can be at all. It shares no code with the planner, so that a mistake there
// shows here.
//
//	checker.go    findings, and the structure of pipelines
//	world.go      what the stages of a plan cost and carry today
//	pieces.go     what a range of blocks takes in one piece
//	devices.go    pools, and the memory that a replica takes
//	crossing.go   what crosses between two stages
//	blocks.go     which blocks became slower
//	noise.go      what a plan takes by a profile, and how well that is known
//	cost.go       what the devices of a plan cost
//
// The halves are in the rooms of the kinds: planner/pool/verify and so on.
package recompute
