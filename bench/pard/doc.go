// Command pard holds policies of pipelines under one deadline against each other
// and against a bound that no policy can beat (PARD, EuroSys '26).
//
// Four applications are made from measured profiles, and three public traces are
// scaled to what 64 workers carry. Workers come and go by the arrivals at the
// entry alone, so that every policy has the same.
//
//	main.go       the parts
//	profiles.go   measured latencies, by batch
//	pipelines.go  the applications, their batches, rules of scaling and plans
//	arrivals.go   traces, and Poisson arrivals at their rates
//	cells.go      one run under a policy and what is kept of it
//	drops.go      drop rates of policies, by case, and the claims about them
//	ablations.go  PARD with parts changed, trouble, clocks that are off, and other settings (PARD's figure 14)
//	speed.go      events per CPU-second
//	overheads.go  what decisions cost
//	hours.go      device-seconds for 1 % of drops, by policy and rule of scaling
//	documents.go  what plans are made from
//	splits.go     planners that split the SLO
//	plans.go      devices against these planners, and variants
//	planner.go    the time of the planner
//	rag.go        retrieval-augmented generation
//	ocr.go        a real pipeline on this machine, and the same in virtual time
//	hopeless.go   how soon requests without hope are refused
//
// Package readings has the policies that PARD and feas are compared with, package ttft those of rag.go.
package main
