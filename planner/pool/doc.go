// Package pool plans pooled pipelines: it decides which block ranges of which models run on how many
// devices, or shares of devices, of which kind, and at which batch size. It maximises the least rate
// per weight of all models, or minimises the price of the devices that carry given rates, and proves
// a bound on every plan. The method follows PPipe (USENIX ATC 2025, appendix A) in what a plan is and
// what it must keep. It replaces PPipe's big-M program by templates (docs/methods.md).
//
// Vocabulary:
//
//   - Template: one pooled pipeline without replica counts. It is a batch size and, per stage, a block
//     range, a device kind and a share 1/v. Only templates that keep the SLO exist, so latency never
//     enters a program. Package stages lists them.
//   - Pipeline, in a plan: a template with whole replicas of each stage and the rate that it carries.
//   - Slot: one stage position of one model on one device kind. Under the slot rule only replicas of
//     the same slot share a device.
//   - Floor: the rate (MinRPS) that a model must have at least.
//   - Unit: the programs count rates in units, so that all variables are near 1. One unit of throughput
//     is about what a cluster of this size reaches.
//   - Score: the value of a plan by the goal of the search, in units. A higher score is always better;
//     for the least price it is the price with its sign turned.
//   - Relaxation: the linear program over templates with rates and devices in fractions (the restricted
//     master of column generation). Its duals are the price of the devices of each pool and the value of
//     a unit of each model's rate.
//   - Loss of a template: every plan that uses it scores at least so much less than the bound of the
//     relaxation, because whole replicas cost more, at those prices, than the rate they carry is worth.
//   - Configuration: whole replicas of one template, at the rate that they carry. Losses of
//     configurations add up, and the best sums of them are found by labels, as in a knapsack.
//   - Label: a sum of configurations of one model with the devices that it takes, its rate and its loss.
//   - Cover: the cheapest sum of configurations of one model that carries a rate, at given prices.
//   - Bundle: pipelines of one model that carry the rate it needs at a given throughput. With many
//     models a plan is one bundle of each.
//   - Allotment: the amount of each pool that a model takes. A minimal allotment carries the model's
//     rate, and holds no smaller one that does.
//   - Wait bounds: for each time-shared pool, the longest inference that the plan places there, and so
//     the longest that a batch waits for another. A wait choice is one combination of such bounds, with
//     the templates that keep their SLO under it.
//   - Content: the blocks, kind and share that a replica holds in a device. A device moves if a new plan
//     makes it load content that it does not hold.
//   - Setting: what a plan keeps back of every model (margin and utilisation), and limits on batches and
//     stages. An attempt is the plan of a setting with what simulation showed of it. A sketch is a plan
//     that was solved and not simulated.
//
// In the code d is the index of a model, k of a pool, ti of a template, si of a stage of it, and ci of a
// pipeline of a plan.
//
// The files, in the order of the steps:
//
// Documents to numbers, and back:
//
//	method.go       Method: plans the problem of documents for a driver
//	resolve.go      translates documents to a Problem
//	objective.go    the sense of the objective, and the prices of devices
//	runningplan.go  translates the plan that runs
//	write.go        writes an Outcome as the parts of a plan
//
// Templates and their relaxation:
//
// The search for plans and bounds:
//
//	search.go          the search: relaxations of all wait choices, bounds, stop rules, progress
//	hopeless.go        drops wait choices under which no plan meets the floors
//	improver.go        the phases that improve plan and bound: they choose the templates, and so the batch sizes
//
// Many models:
//
//
// After the objective is reached:
//
//	solve.go      Solve: the most throughput
//	cheapest.go   Cheapest: the least price that carries given rates
//	polish.go     of equal plans, one of fewer moves, a larger weighted sum, fewer devices
//	latency.go    of equal plans, one of less latency
//	uneven.go     SolveUneven: devices that leave the NIC of their node to others
//	floors.go     the one tolerance, floors at the edge of what is carried, and the largest part of them
//	diagnosis.go  why no plan serves every model
//
// Placement, re-planning and baselines:
//
//	baseline.go  NP: whole models on whole devices
//	dartr.go     DART-r: pairs of devices of two kinds
//
// Tuning by simulation:
//
//	tune.go     searches the setting whose plan sustains most
//	mixture.go  a margin of its own for each model
//	sustain.go  the loads that simulation shows a plan to sustain
//	promise.go  lowers what a plan promises; says which plans its bound covers
//	loosen.go   a workload that asks less
//
// Times of ranges of blocks need not add up: a stage runs its blocks in one piece (package stages). No
// bound rests on sums of blocks. Templates carry the times of their own stages.
//
// Every phase stops on deterministic work, so the same problem gives the same plan. Only a cancelled
// context or a time limit makes it depend on the clock. Package verify checks the plans independently.
package pool
