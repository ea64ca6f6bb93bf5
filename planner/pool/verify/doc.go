// Package verify tells whether a plan of pooled pipelines holds by the documents
// of today, from first principles. It shares no code with the planner, so that
// a mistake there shows here.
//
//	check.go    Check: findings, each with its constraint and field
//	model.go    one model: target, rates, stages
//	served.go   what serving takes: means, runs after a pause, requests beside runs
//	devices.go  placements, shares, memory
//	hold.go     what the whole plan carries today
//	buckets.go  length buckets in the place of the models that a workload asks for
//	figures.go  Figures: what was promised against what holds; WorkloadOf
package verify
