// Package flow plans applications: graphs of models under one deadline each. It
// chooses for every model on which kinds of devices it runs, in which share of
// them, with which batch and how often, and which variant does a module's task.
// The deadline is not split in advance: what counts is the sum along every path.
//
//	problem.go    what is to be planned, as numbers; times that a model may take
//	resolve.go    the documents as a problem
//	measured.go   where a model was measured, and with which batches it fits
//	program.go    the mixed-integer program
//	solve.go      one solve: bounds of the rate, exact deadlines, fewest devices
//	covers.go     the least devices that carry a rate, all of them listed
//	master.go     the linear program over them, and what each exceeds its bound by
//	descent.go    the plans that exceed the bound by little, one by one
//	listed.go     rates and prices by covers
//	turns.go      modules that take turns on devices that are shared in time
//	widen.go      what is left of the deadlines goes to larger batches
//	infeasible.go why there is no plan, and what is nearest
//	size.go       what simulation shows as the judge of a plan
//	sizing.go     the search: devices that join and leave, batches that change
//	scaling.go    how many workers serve at which rate
//	elastic.go    that table in a plan, and the pace of arrivals
//	tune.go       the margin by simulation, and what a plan is certified to carry
//	write.go      the plan
//	explain.go    what is told of it
//	method.go     the entry of package planner
//
// Applications of segments are workflows. Their devices hold several models and load
// them at run time, so that they are planned another way:
//
//	workflows.go         the documents as numbers: demand, ways, deadlines
//	workflow_services.go models with their useful batches and loads on each kind of devices
//	workflow_batches.go  kinds, batches and shares: a program over all ways' deadlines, with its bound
//	workflow_place.go    what devices hold at the start: a program, then further copies
//	workflow_write.go    the plan, with ways that are expected, and what language models have
//	workflow_explain.go  what is told of it
//
// Language models that workflows ask for stand among the profile's models as if they had
// been measured in batches (policy/flow, Measured).
//
//	verify/       the plan against today's documents
//
// docs/methods.md has the program and what is proven.
package flow
