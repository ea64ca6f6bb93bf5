// Command pard holds policies of pipelines under one deadline against each other
// and against a bound that no policy can beat (PARD, EuroSys '26).
//
// Four applications are made from measured profiles, and three public traces are
// scaled to what 64 workers carry. Workers come and go by the arrivals at the
// entry alone, so that every policy has the same. A cell is one case, policy and
// seed; it is kept as soon as it is measured, and a second start goes on where
// the first stopped.
//
//	profiles.go   measured latencies, by batch
//	pipelines.go  the applications, their batches and plans of kind flow
//	traces.go     rates by second, and arrivals
//	cell.go       one run and what is kept of it
//	cases.go      which cells a part needs
//	hours.go      device-seconds for 1 % of drops, by policy and rule of scaling
//	plans.go      devices against planners that split the deadline, and variants
//	documents.go  what these are planned from
//	planner.go    time and gap of the planner; tiny problems against everything that can be tried
//	overheads.go  what decisions cost
//	rag.go        retrieval-augmented generation; ragtable.go: its cells and table
//	sensitivity.go  SLO, quantile and window
//	claims.go     the paper's claims, row by row, and overheads
//	tables.go     tables and figures.json
//	paths.go      applications of which a request takes one of several ways
//	skew.go       clocks that are off, profiles that are wrong
//	ocr.go        a real pipeline on this machine, and the same in virtual time
//	hopeless.go   how soon requests without hope are refused
//	ocrtable.go   figures of these two
//	reference.go  what an independent implementation of the same reading gave
//	wholes.go     smaller bounds, and what makes the bound generous
//	spans.go      how long requests take behind modules, and what they have left
//	speed.go      events per CPU-second, beside a bare heap loop
//
// Package readings has the policies that PARD and feas are compared with.
package main
