// Package pool plans pooled pipelines: which block ranges of which models run
// on how many devices, or shares of devices, of which kind, at which batch size.
//
// The method follows PPipe (USENIX ATC 2025, appendix A) in what a plan is and
// what it must keep, and replaces its big-M program by templates. A template is
// one pooled pipeline without replica counts: a batch size and, per stage, a
// block range, a device kind and a share 1/v. Only templates that keep the SLO
// exist, so latency never enters a program. Package stages lists them. The steps:
//
//	method.go     Method: the problem of documents, planned for a driver
//	resolve.go    documents to a problem
//	objective.go  what is to grow or to shrink, and at what prices
//	running.go    the plan that runs, as the problem takes it
//	write.go      the outcome as the parts of a plan
//	tune.go       settings of a plan (margins, batches, stages, utilisations), by simulation
//	sustain.go    what simulation shows a plan to sustain, in short and long runs
//	promise.go    a plan that promises what it sustains, and which plans its bound is of
//	problem.go    the problem as numbers, without documents
//	catalogue.go  the possible pipelines of a problem: its templates, and units for programs over them
//	dominance.go  the templates, less those that another dominates
//	columns.go    templates by column generation, where they are too many for one program
//	sieve.go      all templates of a model, each in a few bytes, and pricing by a look at each
//	covers.go     the cheapest whole replicas that carry a model's rate: a covering knapsack
//	reach.go      what covers prove, and the templates that they need
//	allotments.go what whole devices for each of many models prove: the least allotments of devices
//	bundle.go     whole replicas for many models: bundles that carry a model's rate
//	choosing.go   parts of bundles within the devices, and whole ones where swaps do not get there
//	settle.go     one bundle per model within the devices, by swaps
//	memory.go     what time-shared pools hold: the weights of the same blocks once
//	blocking.go   the rule for time-shared pools, where stages of several pipelines run on one device
//	lp.go         a linear program over templates (the restricted master): a proven bound on every plan, and prices
//	loss.go       what a plan must lose at least when it uses a template
//	whole.go      a tighter bound: whole devices of each kind to each model
//	losses.go     the best plans as sums of whole replicas whose losses fit the gap: a knapsack, and the proof
//	fillings.go   the sums of one model: labels by rising loss
//	leftover.go   what the devices that a sum leaves lose at least
//	joining.go    sums of all models that fit the devices together
//	mip.go        integer programs over some templates
//	search.go     a solve under way, whatever is looked for: the relaxations, their choices, the bound, what is reported
//	hopeless.go   choices of waits under which no plan meets the floors
//	phases.go     what improves plan and bound: rounding, basis, small pool, survivors (the proof)
//	incumbent.go  the best plan so far, and the choice of the blocking rule that is looked at
//	goal.go       what is looked for: the most throughput, or the least price
//	floors.go     the one tolerance, and floors at the edge of what is carried
//	solve.go      the most throughput, and at that the largest weighted sum
//	polish.go     among plans as good, those of fewer moves, a larger sum, fewer devices
//	latency.go    among plans as good, one of less latency
//	nic.go        devices that leave the NIC of their node to others
//	round.go      the plan recomputed from integer counts
//	place.go      replicas onto physical devices, never more than a whole one
//	spread.go     devices over nodes, so that no NIC is busy while another is idle
//	hold.go       what devices hold, and placement around it
//	cheapest.go   the least price (cost, power, devices) that carries given rates, and at that the most throughput
//	baseline.go   NP: no partitioning, whole devices; the largest weighted sum on the fewest of them
//	dartr.go      DART-r: devices split by model, one of each kind to a pair
//	adopt.go      pipelines that others chose, with our costs and placement
//	replan.go     a plan that continues a running one and moves few devices
//	limits.go     what limits the objective and what more would buy; why a model has no pipeline
//	diagnosis.go  what is missing when no plan serves every model
//
// Times of ranges of blocks need not add up: a stage takes what its blocks do in one
// piece (package stages). No bound rests on sums of blocks. Templates carry the times
// of their own stages, and pricing looks at each template (sieve.go).
//
// Every phase stops on deterministic work, so the same problem gives the same
// plan; only a cancelled context or a time limit makes it depend on the clock. Package
// verify is the independent check of the plans.
package pool
