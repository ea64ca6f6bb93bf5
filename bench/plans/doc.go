// Command plans judges a change of the planner on recorded and drawn problems of all kinds: it keeps what
// each plan states, its bound, its CPU time and its bytes, and holds them against what another commit kept.
//
//	main.go    flags
//	cases.go   the problems, in sets
//	record.go  a solve, and what is kept of it
//	judge.go   now against before: what is worse, and figures
//
//	make bench-plans PLANS="-keep bench/plans/results/before.json"
//	make bench-plans PLANS="-against bench/plans/results/before.json"
package main
