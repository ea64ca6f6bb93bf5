// Package programs runs workflows as code on a plan of workflows: programs ask for tasks
// over HTTP (executor/calls) in place of the plan's segments. The policy places the tasks
// and expects what comes next, as it does with all others.
//
//	programs.go  requests, what they bring, and their tasks
package programs
