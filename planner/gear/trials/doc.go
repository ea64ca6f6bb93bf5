// Package trials tries cascades on a placement in simulation, with the real policy, and makes the gears of all ranges
// from those that pass. The vocabulary is that of planner/gear.
//
// Order of reading:
//
//	plan.go            Plan, its gears, and its accuracy on held-out samples
//	tables.go          run-time tables of a placement
//	simulate.go        Simulator: one simulated run of a gear
//	trial.go           the sequential test (solver/tolerance)
//	trialplacement.go  Placement: the gears of all ranges on one placement, and History, which trials share
//	measured.go        runs at the measured rates
//	compact.go         removes pipelines and devices that nothing uses
package trials
