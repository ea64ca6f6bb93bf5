// Package perfanalyzer imports how long models ran on a Triton Inference Server: CSV files of perf_analyzer and of Model
// Analyzer, into a profile of whole models.
//
//	importer.go  the verb: files and what their names tell, into a profile
//	layout.go    the table of layouts, and a file into the times of batches
package perfanalyzer
