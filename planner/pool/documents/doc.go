// Package documents translates profile, cluster, workload and options to the numbers of a search, and an outcome back to
// the parts of a plan.
//
// The files, in the order of the step:
//
//	resolve.go      translates documents to a Problem, and the options to those of a search
//	objective.go    algorithms and objectives, the prices of devices, and which plans a bound covers
//	runningplan.go  translates the plan that runs
//	write.go        writes an Outcome as the parts of a plan
package documents
