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
// Each step is a package, which imports only those before it. Order of reading:
//
//	documents.go  Method; from documents to the problem and from the outcome to a plan, which is confirmed by runs that
//	              the search has not seen; the workload with a longer SLO or a lower rate
//	resolve.go    the problem's parts: devices, models, samples, SLO, ranges
//	instages.go   which members may run in stages
//
//	cascades      the problem as numbers, and every cascade
//	planspace     cascades, members in stages and sets of models on devices; mixtures of cascades by programs
//	placement     models on devices, and the work of cascades split over them
//	trials        gears that pass simulated runs
//	bounds        what no plan exceeds over all requests, or on fewer devices
//	ranges        more accuracy where ranges need not hold their upper edges
//	search        the best plan by the problem's goal
//
//	running.go    the plan that runs, judged as new plans are
//	replan.go     a plan that starts from it
//	write.go      the sections of the plan
//	explain.go    the gears as text
//
// Package verify checks plans without this code.
package gear
