// Package programs builds and solves the integer programs over a set of templates: rates within what whole replicas carry,
// and replicas within the devices. It also holds the small programs beside it: one pipeline of every model, the devices or
// the memory that are missing for that, and whole devices for each model.
//
// The files, in the order of the step:
//
//	integerprogram.go  Program: the plans over a set of templates, as an integer program
//	programgoals.go    what a program looks for beside the most throughput, and the devices that a plan moves, as its rows
//	onepipeline.go     one pipeline of every model within tight memory
//	wholedevices.go    whole devices of each kind for each model: a program whose optimum bounds all plans; the fewest to add for one replica of everything
package programs
