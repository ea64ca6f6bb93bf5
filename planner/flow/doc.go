// Package flow plans applications: graphs of models (modules) under one deadline each. It chooses which
// model does a module's task, on which kinds of devices, with which batch size, and on how many devices or
// which part of their time. The deadline is not split over the modules in advance: every path from the
// entry to an exit must keep it as a whole.
//
// Applications whose next step becomes known only at run time (they have segments) are workflows. Their
// devices hold several models and load them at run time, so they have a room of their own.
//
// The rooms, in the order in which a plan passes through them:
//
//	terms     what both sorts of applications have in common: prices, weights, SLOs, the bound of all plans
//	graph     graphs of modules: deployments, levels and choices; a plan sized by simulation
//	scaling   how many replicas serve at which rate, and how fast they follow the arrivals
//	workflow  workflows: batches of services, and which devices hold them
//	verify    checks a plan against today's documents; it calls none of the others
//
// Vocabulary of this package, beside that of the rooms:
//
//   - Attempt: a plan for one setting (margin, largest batch, dedicated devices), with what simulation
//     showed of it.
//   - Surplus: the attainment above the requested share.
//   - Division: the devices of the cluster divided between groups of models.
//
// The order in which to read the files:
//
//	method.go    the entry of package planner: which room plans, certifies and explains
//	tune.go      the search by simulation for the margin, and the test of what a plan promises
//	division.go  the search by simulation for devices for groups of models
//	workload.go  a workload that asks for less, to find what is nearest, or for what a served plan got
//
// Language models that workflows ask for stand among the profile's models as if they had been measured in
// batches (policy/flow, WithLanguageModels). docs/methods/flow.md has the programs and what is proven.
package flow
