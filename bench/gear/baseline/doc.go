// Package baseline holds what gear plans are compared with (CascadeServe,
// section 6): systems for the same models, devices and requests, run by the same
// simulator.
//
//	system.go    DynBa (dynamic batching with one model), MS+ (model
//	             switching), no cascade, no switching, and a planned outcome
//	cocktail.go  Cocktail+: ensembles that vote, with an autoscaler that knows
//	             the rates to come
//	cascadia.go  Cascadia: thresholds and deployment together, on the front of latency
//	             and accuracy (cascadiadeploy.go: of one latency)
//	run.go       running a system on arrivals: accuracy, percentiles, sliding
//	             windows
//	search.go    every plan of a small space, and random ones
//	problem.go   a published family as a planning problem
//
// # The readings of Cascadia
//
// The latency of a model is simulated, with Poisson arrivals: a device answers the rate at which its p95 is within that
// latency. The latency of a plan is the longest of its models. Deployment and thresholds are chosen at once, by going through
// all deployments, so the result is not below the paper's alternation. Devices hold all models that fit together.
// Levels of load are the ranges of our plans, with their weights and switch rule. One deployment serves all levels, or
// each has its own and changes cost nothing.
//
// # What baselines know
//
// Baselines are given what they would have to find: DynBa its best model, MS+
// its best headroom, no-switching its best cascade for the very trace,
// Cascadia its best weight, Cocktail+ the rates of each period before it begins.
package baseline
