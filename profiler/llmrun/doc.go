// Package llmrun compares a run of a language-model server with the model of an instance (package sim/llm): the same
// requests at the same times, the KV capacity that the server reported, and iteration times fitted to measured steps.
// What the server's CPU adds is two constants: per iteration, and per sequence in it.
//
//	run.go        a run: what was measured, what the server was, and its profile
//	compare.go    figures of a run beside those of the model
//	calibrate.go  the two constants, fitted
//	doubts.go     why the model of a run is not to be trusted
package llmrun
