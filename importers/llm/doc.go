// Package llm imports measurements of language models into a profile.
//
//	importer.go  the verb: tables (formats/importer/llmruns) and results of benchmarks
//	bench.go     the table of benchmarks, and their results into steps
package llm
