// Package graph plans applications that are graphs of modules. Models run on devices of their own or, on pools that are
// shared in time, in turns.
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
//   - Hint: the attainment in one run of the simulation. It ranks plans. All runs together decide.
//
// The indexes: a is an application, i a module of it, c a choice, u a model, l a level, k a pool.
//
// The order in which to read the files:
//
//	plan.go              Plan: the steps from the documents to the parts of a plan
//	problem.go           the problem as numbers, and what a solution carries
//	resolve.go           from the documents to the problem: where a model was measured, and with which batch sizes it fits
//	program.go           the mixed-integer program
//	solve.go             one solve: bounds of the rate factor, exact deadlines, fewest devices
//	deployments.go       lists the deployments at a given rate
//	coverprogram.go      the linear program over deployments, with its bound and the reduced costs
//	deploymentsearch.go  the search for a plan among deployments with small reduced costs
//	deploymentsolver.go  the largest rate factor and the least price by these two
//	turns.go             time-shared pools
//	running.go           the plan that runs, as a solution
//	near.go              a plan that starts from it; the row of moves
//	enlarge.go           spends the rest of the deadlines on larger batches
//	infeasible.go        why there is no plan, and what would be nearest
//	bound.go             the bound of all plans, without queueing
//	write.go             from a solution to a plan, with the numbers of the devices and the scaling table
//	sizesearch.go        the search by simulation: devices are added and removed, batch sizes change
//	size.go              its entry, for plans
//	explain.go           the lines of plan explain
package graph
