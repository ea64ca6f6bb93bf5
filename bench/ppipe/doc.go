// Command ppipe makes the tables that hold this project against PPipe
// (USENIX ATC 2025) from its reference data: recorded plans, measurements and
// the results of the artifact's own simulator. `make bench NAME=ppipe` runs it.
//
// Every part has cases of its own; -cases selects others.
//
// The files in reading order:
//
//	main.go         flags, the parts, the choice of cases
//	records.go      the reference data
//	cases.go        cases, recorded or planned by us
//	arrivals.go     kinds of arrivals
//	search.go       points of load that are simulated, and the highest that attains
//	comparison.go   the highest loads of algorithms against each other
//	loads.go        parts that compare so: load, small and baselines
//	networks.go     parts transfer and links: what the network does to the highest load
//	objective.go    parts objective, headline and gaps: what plans state
//	latency.go      part latency: batches that go at once or wait
//
// Package reactive has the policy without reservations.
package main
