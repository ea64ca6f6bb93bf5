// Package llmfit makes of measurements of language models what plans count with: the time of an iteration.
//
//	iteration.go  the fit: coefficients of formats.Iteration, with how far they are off
//	import.go     others' measurements (package importer/llmruns) into a profile
package llmfit
