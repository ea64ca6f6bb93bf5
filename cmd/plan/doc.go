// Command plan decides how to serve machine-learning models on the devices that a team has: it profiles models,
// solves for the best deployment under a latency SLO, simulates and serves it, and gates it in CI.
//
// There is one file per verb, with an options struct and a short RunE. This package handles flags, tables,
// progress and exit codes; it decides nothing about plans.
//
// Vocabulary:
//
//   - Verb: a command, such as solve. Typed: set on the command line, and not in a file.
//   - Kind: the kind of a plan (pool, gear, queue, flow), which decides what flags apply.
//   - Note: a line for the user on stderr. Assumption: a note on a default that mattered.
//   - Promise: the plan that check compares today's plan with.
//
// Read main.go and root.go first, then config.go, kindflags.go and choices.go (flags), output.go and save.go
// (results), and then the file of a verb.
package main
