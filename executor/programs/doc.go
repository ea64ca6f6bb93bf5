// Package programs runs workflows as code on a plan of workflows: programs ask for tasks over HTTP (executor/calls) in place
// of the plan's segments. The policy places the tasks and expects the next ones, as it does with all others.
//
// Vocabulary: a session is a request whose program asks for its tasks. A handle is a program's name for a task. A task reads
// the outputs of other tasks, by their handles, or has values of the program.
//
// Order of reading: programs.go (sessions and their tasks), tensorjson.go (tensors as JSON).
package programs
