// Package verify checks a plan of pooled pipelines against the profile, cluster and workload of today, from
// first principles. It shares no code with the planner, so that a mistake there shows here. It also compares
// the figures that a plan promised with those that hold today.
//
// Vocabulary:
//
//   - Today: the profile, cluster and workload that the plan is checked against. They may differ from those
//     that it was made with.
//   - Promise: the rate, SLO and margin that the plan's section of its kind states for a model.
//   - Finding: a limit that the plan breaks, or a figure that changed, with the field of the plan.
//   - Length bucket: a model measured at one length of its input. A workload may ask for the model of all
//     lengths; its buckets are planned instead.
//
// The files, in the order of the steps:
//
//	buckets.go  replaces the models that a workload asks for by their length buckets
//	check.go    Check: the findings about a whole plan, its models and its objective
//	hold.go     the rates and latencies that the whole plan has today
//	model.go    the findings about one model: SLO, margin, rates, stages, and the times that these are served with
//	devices.go  the findings about placements, shares and memory
//	figures.go  Figures: what was promised against what holds; WorkloadOf: the workload of a plan
package verify
