// Package deploy chooses instances of language models for a workload: how many
// servers of which devices, which models and classes each pool of them serves, and
// how many sequences run at once.
//
//	problem.go    Problem: models, classes, device kinds, as numbers
//	resolve.go    the documents as a problem
//	lengths.go    tokens of prompts and answers: from distributions, files, traces
//	alone.go      what a request takes on an idle instance: SLOs that cannot be kept
//	calibrate.go  estimators, fitted to queues that the simulator drains
//	layout.go     Layout: pools of equal instances
//	section.go    the plan document of a layout
//	trial.go      pools simulated alone, and layouts as a whole
//	score.go      what runs came to; breaks off those that cannot hold
//	search.go     which layouts are tried
//	tune.go       how many sequences run at once, in all and of a class
//	fewest.go     the fewest or cheapest instances that keep the SLOs
//	most.go       the most requests in time, or the highest rate, on all devices
//	floor.go      what no order and no assignment does better than
//
// The search simulates pools alone, and what was simulated once is kept. The streams of
// random numbers belong to a model and class, so two layouts meet the same requests. A
// layout is judged as a whole, just as plan simulate runs its plan: what it comes to is
// what the plan states. A run that was broken off says that a layout does not hold, and
// has no other figure.
package deploy
