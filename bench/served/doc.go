// Package served is what the instruments that serve have in common: processes of `plan` and what they say, plans that are driven and
// simulated with the command line, and plans that are executed in this process and simulated again with the times of that run.
//
//	process.go   Program: runs verbs; Server: a process that serves, with its log
//	drive.go     a plan served by `plan serve`, driven by `plan load` and simulated by `plan simulate`
//	execute.go   a plan executed in this process, requests at their times, and the run again in virtual time
//	llama.go     servers of language models
//	answers.go   servers that are awaited
//	load.go      how busy the machine is
package served
