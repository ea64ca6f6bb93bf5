// Command qlm holds queues of language models against the claims of QLM (One Queue
// Is All You Need) and against real servers.
//
//	go run ./bench/qlm -data ../shared/data -o bench/qlm/figures.json instance
//
// Its parts are arguments; without one all are run. Part instance is package
// bench/qlm/instance: the model of an instance against runs of vLLM. Figures of a
// part take the place of those of the same claims in the file.
package main
