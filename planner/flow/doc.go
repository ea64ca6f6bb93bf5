// Package flow plans applications: graphs of models (modules) under one deadline each. It chooses which
// model does a module's task, on which kinds of devices, with which batch size, and on how many devices or
// which part of their time. The deadline is not split over the modules in advance: every path from the
// entry to an exit must keep it as a whole.
//
// Applications whose next step becomes known only at run time (they have segments) are workflows. Their
// devices hold several models and load them at run time, so they are planned by other files of this
// package.
//
// Vocabulary:
//
//   - Module: a step of an application. It has one or several choices.
//   - Choice: a model that can do a module's task, with its accuracy.
//   - Path: modules from the entry of an application to an exit.
//   - Level: a time that no batch of a model exceeds, wherever it runs, with the best template of each pool
//     at that time.
//   - Template: a device divided into equal shares with a replica of one model in each, at one batch size.
//   - Rate factor: the common factor of all rates. An application's rate is the factor times its weight.
//   - Module set: modules that one model can serve together.
//   - Deployment: a module set at a level, on devices that carry its rate and none of which can be spared
//     (in the literature on covering knapsacks: a cover).
//   - Reduced cost: a plan with a deployment costs at least the lower bound plus the deployment's reduced
//     cost.
//   - Time-shared pool: a pool on whose devices several modules may take turns. A time share is a module's
//     part of that time, in devices.
//   - Shared run: the longest run of any module that takes turns. A task may have to wait for one.
//   - Attempt: a plan for one setting (margin, largest batch, dedicated devices), with what simulation
//     showed of it.
//   - Hint: the attainment in one run of the simulation. It ranks plans. All runs together decide.
//   - Surplus: the attainment above the requested share.
//   - Service: a model that the applications of workflows share.
//   - Visits: how often a request visits each segment of a workflow.
//   - Partition: devices of a pool that run the same models. A model group has partitions of its own.
//
// The indexes: a is an application, i a module of it, c a choice, u a model, l a level, k a pool; in
// workflows g is a segment, s a service, k a kind of devices (a partition), d a device.
//
// Graphs, in the order in which to read them:
//
//	problem.go           the problem as numbers, and what a solution carries
//	resolve.go           from the documents to the problem
//	measured.go          where a model was measured, and with which batch sizes it fits
//	program.go           the mixed-integer program
//	solve.go             one solve: bounds of the rate factor, exact deadlines, fewest devices
//	deployments.go       lists the deployments at a given rate
//	coverprogram.go      the linear program over deployments, with its bound and the reduced costs
//	deploymentsearch.go  the search for a plan among deployments with small reduced costs
//	deploymentsolver.go  the largest rate factor and the least price by these two
//	turns.go             time-shared pools
//	enlarge.go           spends the rest of the deadlines on larger batches
//	infeasible.go        why there is no plan, and what would be nearest
//	loosen.go            a workload that asks for less, to find what is nearest
//	fluid.go             the bound of all plans, without queueing, and whether a plan is proven by it
//	write.go             from a solution to a plan, with the numbers of the devices
//	method.go            the entry of package planner
//
// Plans chosen by simulation:
//
//	sizesearch.go   the search: devices are added and removed, batch sizes change
//	size.go         its entry, for plans
//	tune.go         the search for the margin, and the test of what a plan promises
//	scaling.go      how many workers serve at which rate
//	scalingpace.go  the scaling table in a plan, and how fast it follows the arrivals
//
// Workflows:
//
//	workflows.go          from the documents to numbers: demand, visits, deadlines
//	lengths.go            the samples of lengths that modules name
//	workflow_services.go  services with their useful batch sizes and load times on each kind of devices
//	workflow_batches.go   kinds, batch sizes and work shares: a program over all deadlines, with its bound
//	workflow_place.go     which services devices hold at the start: a program, then extra copies
//	dedicated.go          devices for groups of models alone
//	division.go           the search for such groups by simulation
//	workflow_write.go     from batches and placement to a plan
//
// Language models that workflows ask for stand among the profile's models as if they had been measured in
// batches (policy/flow, WithLanguageModels). The texts of plan explain come from explain.go and workflow_explain.go.
// Package verify, below this one, checks a plan against today's documents. docs/methods.md has the programs
// and what is proven.
package flow
