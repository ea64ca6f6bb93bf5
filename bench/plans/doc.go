// Command plans judges a change of the planner on recorded and drawn problems of all kinds: it keeps what
// each plan states, its bound, its CPU time and its bytes, and holds them against what another commit kept.
//
//	main.go    flags
//	cases.go   the problems, in sets
//	record.go  a solve and its figures, in a file for later runs
//	judge.go   a table of this run against an earlier one, and the cases that are worse
//
//	make bench NAME=plans ARGS="-keep bench/plans/results/before.json"
//	make bench NAME=plans ARGS="-against bench/plans/results/before.json"
package main
