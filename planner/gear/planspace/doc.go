// Package planspace lists what plans are made from: the cascades of a problem that can keep its SLO, members in
// stages (chains), and the sets of models and stages that fit on a device. Its linear programs choose among them as
// if nothing queued: the placement of all ranges, and the bounds of mixtures of cascades. The vocabulary is that of
// planner/gear.
//
// Order of reading:
//
//	config.go     Config, and the maximal sets that fit into memory
//	chains.go     members in stages, and the choice of chains for a placement
//	planspace.go  Space: cascades, speeds, chains and configs; the placement by a program
//	near.go       the space of placements that move few devices of what runs
//	program.go    MixtureProgram: mixtures of cascades by column generation, and their bounds
package planspace
