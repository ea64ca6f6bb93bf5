// Command bench-gear holds gear plans against their baselines (CascadeServe, figures 7 to 12). `make bench NAME=gear` runs it.
// Everything is simulated.
//
//	main.go       the parts, and the flags that choose families
//	systems.go    systems, streams of arrivals, runs
//	plans.go      our planner and its baselines, as methods that make a system for a place
//	devices.go    devices at equal accuracy: parts gpus, map and out-of-sample
//	accuracy.go   accuracy and p95 by devices: parts methods and ablations
//	switching.go  plans against one cascade for all rates
//	timelines.go  spikes under a latency and under an accuracy SLO, with pictures
//	quality.go    plans in a space small enough to try all
//	goals.go      planning time by ranges and by goal: parts time and goals
//	heldout.go    gears in fresh trials, and planned accuracy against samples not planned on: parts fresh and heldout
//	thirds.go     plans near their SLO on samples of a third part
package main
