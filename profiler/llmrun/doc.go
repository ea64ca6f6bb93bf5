// Package llmrun compares a run of a language-model server with the model of an instance (package sim/llm): the
// same requests at the same times, the KV capacity that the server reported, and iteration times fitted to
// measured steps. The CPU time of the server is modelled by two constants: per iteration, and per sequence in it.
//
//	run.go        a run: its measurements, its server, and its profile
//	compare.go    figures of a run beside those of the model
//	calibrate.go  the two constants, fitted
//	doubts.go     reasons not to trust the model of a run
package llmrun
