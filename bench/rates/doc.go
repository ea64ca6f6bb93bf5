// Command rates compares what plans state with what simulation shows, for the default
// flags and for explicit ones, and with the bounds that plans state.
//
//	problems.go   drawn problems: pools from one CPU to 100 GPUs, and applications
//	held.go       the rate that a plan holds, by simulation with fresh seeds
//	main.go       flags and tables
package main
