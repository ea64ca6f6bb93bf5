// Package moves compares a new plan with the one that runs, device by device: it numbers the devices of the new plan so
// that few of them load what they do not hold, and lists those that do.
//
// Vocabulary:
//
//   - Content: the parts of models that a device holds at the start of a plan (formats.DeviceContent).
//   - Move: a device loads something that it did not hold. A device that only unloads does not move.
//   - Node: the devices of a pool that share one network card.
//
// The order in which to read the files:
//
//	running.go   what the plan that runs must have in common with the problem, and what its devices hold
//	match.go     the assignment of new contents to devices that run
//	renumber.go  the numbers, and the moves that remain
//	choose.go    which of several plans is taken
package moves
