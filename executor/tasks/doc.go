// Package tasks answers the requests of plans whose requests have several tasks:
// applications as graphs of modules, and workflows, whose segments follow from what came
// of those before. A policy.Control says which tasks come next; a policy.TaskLedger
// keeps account of them.
//
// Tasks have slots of their own. What they make is in a store until no task will read it.
//
//	flow.go            requests and their tasks
//	store.go           what tasks make, and how much of it there may be
//	flowmodules.go     one list of all modules, and the steps before and behind their models
//	answers.go         what applications answer
//	flowinputs.go      what tasks read
//	flowconditions.go  values that lead requests of workflows
//	flowmetrics.go     series of modules
package tasks
