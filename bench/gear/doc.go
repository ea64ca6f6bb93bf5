// Command bench-gear makes the tables that hold gear plans against their
// baselines (CascadeServe, figures 7 to 12). `make bench NAME=gear` runs it.
//
// Everything is simulated. A run is one system on one stream of arrivals; runs
// are kept in results.jsonl of the output folder as they end, and a second start
// goes on where the first was stopped. Every table is printed as Markdown and
// written beside as CSV, time lines as CSV and SVG.
//
//	main.go        flags, families, the order of tables
//	store.go       what was measured before
//	progress.go    cost before, progress while
//	measure.go     systems, streams, runs
//	tables.go      methods, Cocktail+
//	gpus.go        GPUs at equal accuracy, map over accuracy and p95
//	cascadia.go    plans as Cascadia makes them; cells that a baseline needs fewer devices for
//	timelines.go   spikes under a latency and under an accuracy SLO
//	switching.go   plans against one cascade for all rates
//	outofsample.go devices at equal accuracy, on samples planned on and on others
//	fresh.go       gears in fresh trials
//	heldout.go     planned accuracy against samples not planned on
//	thirds.go      plans near their SLO on samples of a third part
//	planner.go     plan quality, planning time by ranges and by goal, ablations
//	svg.go         pictures of time lines
package main
