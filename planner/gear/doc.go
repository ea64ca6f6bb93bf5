// Package gear plans cascades for a family of models on kinds of
// devices: which model runs where, and for every range of request rates which cascade with
// which certainty thresholds answers (CascadeServe, section 4).
//
// Instead of the paper's loop over four subproblems, each step is solved as far
// as it can be solved exactly:
//
//	documents.go  Method: documents to a problem (resolve.go, loosen.go: one that asks
//	              less), the outcome to the parts of a plan
//	measured.go   ranges of rates from measured ones
//	instages.go   where members may run in stages
//	problem.go    the problem as numbers
//	ranges.go     ranges of rates and their weights
//	records.go    levels: certainties on a grid of quantile thresholds per model
//	enumerate.go  every cascade over the grid with its exact accuracy and the
//	              share of samples that reach each of its models
//	fleet.go      cascades, and what models take on every kind of devices; device
//	              configurations (maximal sets of models that fit into memory)
//	ranked.go     placements of them on devices, the best by what time allows first; the
//	              plans on them
//	layout.go     a placement: devices by number, those that are alike (solver/refine),
//	              run-time tables
//	place.go      what devices hold; sets.go: what fits on one together
//	split.go      the load u* of the busiest device and the min-max split, by a linear program
//	front.go      Pareto front of (u*, accuracy), pruning of dominated cascades
//	              (solver/pareto)
//	program.go    what no plan over the same thresholds can exceed, by linear programs; finer
//	              ones might; chains.go: members in stages
//	bound.go      the same where the SLO is over all requests; windows.go: on measured rates
//	simulate.go   a gear alone at a rate, with the real policy
//	trial.go      whether it holds that rate for ever: a sequential test
//	              (solver/tolerance)
//	solve.go      the steps in order
//	early.go      one cascade for all ranges: a plan where the search is interrupted
//	concentrated.go  a split with every model on few devices
//	stairs.go     a staircase down the front of a placement, range by range
//	target.go     the goals: most accurate, least latency, fewest devices
//	heldout.go    an accuracy asked for, met on the samples held out
//	hardened.go   samples held out, as hard for a cascade as their interval allows
//	latency.go    the least latency, by plans within ever closer ones
//	late.go       an SLO over all requests instead of in every range (solver/knapsack)
//	climb.go      ranges with gears that only the measured rates as a whole allow
//	              (part.go: of many rates, a part first)
//	single.go     one cascade for all ranges, where that is better
//	kinds.go      what a problem is planned from, and the tries; the best stands
//	price.go      the devices of least price
//	proof.go      what better plans trials leave
//	write.go      the outcome as the sections of a plan
//	compact.go    without pipelines and devices that nothing needs
//	runs.go       tables for simulations outside of planning
//	explain.go    the gears of a plan for people
//
// Work is priced at the batch where a model is cheapest per sample within the
// SLO: priced at batch 1 nothing seems feasible at high rates. A range must hold
// its upper edge for ever: trials say so at a stated confidence.
//
// Package verify is the independent check of the plans.
package gear
