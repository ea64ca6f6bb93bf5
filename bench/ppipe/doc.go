// Command bench-ppipe makes the tables that hold this project against PPipe
// (USENIX ATC 2025) from its reference data: recorded plans, measurements and
// the results of the artifact's own simulator. `make bench NAME=ppipe` runs it.
//
// Every table says which cases it covers; -cases and -tables select. Before it
// simulates, a table says about how much CPU time it takes, and -keep names a
// folder from which an interrupted bench goes on.
//
// How the pieces fit: records.go reads the reference data; cases.go holds the
// cases, recorded or planned by us; arrivals.go the kinds of arrivals; search.go
// simulates points and looks for the highest load; compared.go sets algorithms
// against each other there; baselines.go our baselines against the recorded
// ones; store.go keeps what was simulated; loads.go,
// sensitivity.go, latency.go and tables.go make the tables, layers.go that of few blocks
// against layers, plot.go their plots. Package reactive has the policy without reservations.
package main
