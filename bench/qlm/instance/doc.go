// Package instance holds the model of a language-model instance (package sim/llm)
// against runs of real servers: the same requests at the same times, with the KV
// capacity that the server reported, and the times of its layers fitted. What the
// server's CPU adds is two constants, per iteration and per sequence in it, the
// same for all runs. They are fitted on some runs and tested on others.
//
//	run.go        a run: what was measured, what the server was
//	compare.go    figures of a run beside those of the model
//	calibrate.go  the two constants
//	bundle.go     the runs of the data
//	doubts.go     why the model of a run is not to be trusted
//	drain.go      queues that are drained, to calibrate estimators on
package instance
