// Package cascades is the first step of planning gears: the problem as numbers, and every cascade over a family of
// models, with its accuracy and the samples that reach each model. It knows of devices only which models run on
// their kinds, and how fast. The vocabulary is that of planner/gear.
//
// Order of reading:
//
//	problem.go     Problem, its goal, and what it allows; what devices hold that run, and how many may move
//	batches.go     Kind, Model, and the best batch size of each model on each kind
//	rates.go       edges and weights of ranges, and measured rates
//	records.go     answers of the models as levels; samples made as hard for a cascade as their interval allows
//	enumerate.go   Cascade, every cascade of a family, and those on some Pareto front (solver/pareto)
//	latencies.go   the least latency of cascades, and of the whole family
//	infeasible.go  InfeasibleError: why there is no plan
package cascades
