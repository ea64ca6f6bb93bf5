// Package problem says what a search for pooled pipelines is given and what it returns, as numbers: models and pools of
// devices by index, times, bytes and rates. It also holds the tolerances that all steps share, so that all of them accept
// the same plans.
//
// Vocabulary:
//
//   - Slot: one stage position of one model on one device kind. Under the slot rule only replicas of the same slot share
//     a device. Under the other rule, Fractional, any do.
//   - Floor: the rate (MinRPS) that a model must have at least.
//   - Pipeline: a template (package stages) with whole replicas of each stage, the rate that it carries, and places.
//
// The files:
//
//	problem.go  Problem: what to plan, and the tolerances
//	outcome.go  Options and Progress of a search, Outcome with its pipelines, and the plan that runs
package problem
