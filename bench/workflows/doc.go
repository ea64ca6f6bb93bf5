// Command workflows serves a workflow of real models on this machine, and plays it
// again in the simulator (make bench NAME=workflows).
//
// The workflow is that of examples/ocr/pages.yaml: two applications read pages of
// text with PP-OCRv4. A detector finds lines, each line is classified by its
// orientation and read, or read at once by the application that takes pages upright.
// Both share the models. One worker, on one core, has memory for the two larger
// models but not for all three, so that models come and go all the time.
//
// Pages are drawn, so that what is on them is known. A line counts as read if it is
// the same, character by character. Lines that lack nothing but spaces are listed on
// their own: the recogniser loses some.
//
// Batches are up to 4 for every model, though the detector gains nothing by that on
// a core: what is shown is that requests share batches, not what is best.
//
// The simulator gets the moments of the requests, how many lines were found in each,
// and the recorded times of runs and loads (executor.Service). It has the same policy.
//
//	main.go   flags, the table and the figures
//	ocr.go    models, plan, pages
//	serve.go  a run, and the same in virtual time
package main
