// Package tasks answers the requests of plans whose requests have several tasks: applications as graphs of modules, and
// workflows, whose segments follow from the outputs of earlier ones. A policy.Control decides which tasks come next; a
// policy.TaskLedger holds them.
//
// Vocabulary, beside package turn:
//
//   - Task: a module that a request has come to. Tasks have slots of their own.
//   - Store: the outputs of tasks, until no task will read them.
//   - End, answer part: a module that requests may end with, whose outputs are part of the answer.
//   - Step before, step behind a model (pre, post): code that converts tensors (package steps).
//   - Outcome: which way on a request takes behind a task. Item: a task of a fan-out works on one item of a list.
//   - Generation step: a step of a workflow that asks a language model.
//
// Order of reading:
//
//	flow.go            requests and their tasks
//	store.go           the outputs of tasks, and their bound
//	flowmodules.go     one list of all modules, and the steps before and behind their models
//	answers.go         the answers of applications
//	flowinputs.go      the inputs of tasks
//	flowconditions.go  the values of conditions
//	flowmetrics.go     series of modules
//	flowpart.go        what the page of the server shows
package tasks
