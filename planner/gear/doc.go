// Package gear plans cascades for a family of models on kinds of devices (CascadeServe,
// section 4). A plan says which model runs on which device and, for every range of request
// rates, which cascade with which certainty thresholds answers the requests.
//
// The paper alternates between four subproblems. Here each step is solved as far as it can be
// solved exactly. Work is priced at the batch size at which a model is cheapest per sample
// within the SLO, because at batch 1 nothing seems feasible at high rates. A range must hold
// its upper edge forever, and trials show that at a stated confidence.
//
// Vocabulary:
//
//	Cascade:        models in order of size. Each but the last has a threshold, and forwards
//	                the samples that it answers with less certainty.
//	Level:          a certainty as a number: how many quantile thresholds of its model it reaches.
//	Member:         a model of the family.
//	Gear:           the cascade of one range of rates, with the split of its work over devices.
//	Range:          request rates between two edges. Its weight is its share of the requests.
//	Config:         how many devices of a kind hold the same set of models and stages.
//	Placement:      configs for all devices.
//	Chain:          a member cut into stages. A replica of a chain has one device per stage.
//	Device group:   devices that no model and no chain tells apart. A replica group is the same
//	                of replicas of a chain. Linear programs have one variable for a group.
//	Load:           seconds of work per request that a device gets. Times the rate it is the
//	                share of the time that the device is busy.
//	Split:          the shares of a model's samples that its replicas get.
//	Fluid model:    devices that never queue and only need enough time for their work.
//	Front:          the cascades that no other beats in accuracy with less load.
//	Mixture:        fractions of several cascades that answer one range. Only bounds use mixtures.
//	Trial:          simulated runs of one gear at a constant rate, judged by a sequential test.
//	Stream:         the random arrivals of one simulated run.
//	Measured rates: requests of every second of a recorded trace, if the workload has one.
//	Climbing:       giving ranges more accurate gears that only the measured rates allow.
//	Late:           past the SLO.
//
// Order of reading:
//
// The problem:
//
//	documents.go  Method; from documents to the problem and from the outcome to a plan
//	resolve.go    the problem's parts: devices, models, samples, SLO, ranges
//	measured.go   ranges from measured rates
//	ranges.go     edges and weights of ranges
//	instages.go   which members may run in stages
//	loosen.go     the workload with a longer SLO or a lower rate
//	problem.go    Problem, and the best batch size of each model
//	target.go     what is optimised, and what all solves of a problem share
//
// Cascades and devices:
//
//	records.go      answers of the models as levels
//	enumerate.go    every cascade, with its accuracy and the samples that reach each model
//	front.go        Pareto fronts of cascades (solver/pareto)
//	config.go       Config
//	maximalsets.go  the maximal sets that fit into memory
//	chains.go       members in stages
//	planspace.go    planSpace: cascades, speeds, chains and configs; the placement by a program
//	layout.go       a placement device by device, its groups (solver/refine), run-time tables
//	split.go        the split with the least load of the busiest device, by a linear program
//	ranked.go       placements ordered by what the fluid model allows them
//
// Trials:
//
//	simulate.go        one simulated run of a gear, with the real policy
//	trial.go           the sequential test (solver/tolerance)
//	hardened.go        held-out samples, made as hard as their interval allows
//	concentrated.go    a split that uses few devices per model
//	trialplacement.go  the gears of all ranges on one placement
//
// The search:
//
//	solve.go            Solve, Outcome, and InfeasibleError: why there is no plan
//	placementsearch.go  plans on several placements, of which the best is kept
//	early.go            a quick plan in case the search is interrupted
//	latency.go          the least latency
//	price.go            the devices of the least price
//	late.go             an SLO over all requests together (solver/knapsack)
//	single.go           one cascade for all ranges
//	climb.go            climbing; windowsample.go samples the rates if there are many
//	heldout.go          an accuracy that is also met on held-out samples
//	confirm.go          a plan confirmed by runs that the search has not seen
//
// Bounds:
//
//	program.go     what no plan over the same thresholds exceeds, by column generation
//	bound.go       the same if the SLO is over all requests
//	windows.go     the same on measured rates
//	candidates.go  what no plan exceeds that passes trials
//
// Output:
//
//	compact.go  removes pipelines and devices that nothing uses
//	write.go    the sections of the plan
//	explain.go  the gears as text
//	runs.go     tables and trials for simulations outside of planning
//
// Package verify checks plans without this code.
package gear
