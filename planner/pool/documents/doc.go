// Package documents translates profile, cluster, workload and options to the numbers of a search, and an outcome back to
// the parts of a plan.
//
// The files, in the order of the step:
//
//	algorithms.go   the names of algorithms and objectives
//	resolve.go      translates documents to a Problem, and the options to those of a search
//	objective.go    the sense of the objective, and the prices of devices
//	runningplan.go  translates the plan that runs
//	write.go        writes an Outcome as the parts of a plan
//	boundscope.go   says which plans a bound covers
package documents
