// Package tasks answers the requests of plans whose requests have several tasks:
// applications as graphs of modules, and workflows, whose segments follow from what came
// of those before. A policy.Control says which tasks come next.
//
// Tasks have slots of their own. What they make is in a store until no task will read it.
//
//	flow.go            requests and their tasks
//	store.go           tasks by their slots, and what they make
//	flowsteps.go       applications as clients see them, and what is done between models
//	flowsegments.go    workflows as clients see them
//	flowinputs.go      what tasks of workflows read
//	flowconditions.go  values that lead requests of workflows
//	flowmetrics.go     series of modules
//	tensorjson.go      tensors of programs, as JSON
package tasks
