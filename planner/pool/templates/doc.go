// Package templates lists the templates of a problem: the pooled pipelines that keep the SLO, without replica counts.
// Package stages enumerates them by model. Here they become a catalogue, in which a plan or a program names a template by
// its index.
//
// Vocabulary:
//
//   - Unit: programs count rates in units, so that all variables are near 1. One unit of throughput is about what a
//     cluster of this size reaches.
//   - Wait bounds: for each time-shared pool, the longest inference that a plan places there, and so the longest that a
//     batch waits for another.
//   - Table: all templates of one model in a few bytes each, for column generation and covers.
//
// The files, in the order of the step:
//
//	sequences.go      whether the templates are listed or generated, and at how few blocks models are cut
//	catalogue.go      the templates of a problem, and the units of programs over them
//	dominance.go      leaves out templates that another one dominates
//	nopipeline.go     why a model has no template
//	templatetable.go  the table of all templates of a model
//	givenstages.go    the times of a template of which the stages are given
//	waitbounds.go     wait bounds on time-shared pools
//	memory.go         the memory of time-shared pools, which holds equal blocks once
package templates
