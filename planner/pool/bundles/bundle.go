package bundles

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// With many models the integer program over replica counts is too large, and nearly all of its loss is the
// rounding inside each model. Bundles take that out of the program. A bundle is a set of pipelines of one model,
// with whole replicas, that carries the model's rate at a given throughput. One bundle per model is chosen so
// that the devices suffice. That program has a row per model and per pool, so a basic solution of its relaxation
// splits at most as many models as there are pools. The search starts at the throughput that the cheapest sums
// of replicas (covers) allow.

// bundle is a choice for one model: pipelines that carry its rate.
type bundle struct {
	model        int
	pipelines    []placement.PlanPipeline
	devices      []float64 // by pool
	cost         float64   // of the devices, at the last prices
	movedDevices float64   // devices that have to load something, if a plan runs
}

// Limits of the work on bundles.
const (
	coverSteps       = 3000  // grid steps of a model's rate
	boundSteps       = 30000 // the same for the bound
	maxCoversTried   = 1000  // per model; most of their bundles take the same devices as others
	bundlesPerModel  = 80
	extraTemplates   = 14    // templates that may join the running pipelines of a model
	bundleRounds     = 7     // throughputs that are tried
	maxReprices      = 2     // prices that are tried beside those of the relaxation
	bundleNodes      = 100   // branch-and-bound nodes for choosing whole bundles if swaps find no choice
	minProgramNodes  = 10    // nodes that each such program counts for at least
	maxPackAttempts  = 8     // choices that are tried until one packs into whole devices
	replanBundles    = 40    // bundles per model of a re-plan
	replanValueStep  = 0.012 // part by which a re-plan lowers the throughput it asks for, more each round
	replanMoveFactor = 1.5   // factor on the limit of moves: SLO classes together may move less than the sum of their moves
	idleStep         = 0.25  // devices left idle more after each failed packing
	maxFirstGap      = 0.02  // part below the bound at which the first throughput is tried at least
)

// bundleSearch looks for plans made of bundles.
type bundleSearch struct {
	solver         milp.Solver
	options        *problem.Options
	problem        *problem.Problem
	catalogue      *templates.Catalogue
	incumbent      *incumbent.Incumbent
	covers         *modelCovers
	solverStats    milp.Stats
	numChoices     int       // bundles in the last choice
	scarcityPrices []float64 // what the devices are worth to bundles of which not even parts fit; nil if parts fit
	remainingNodes int64     // for choosing whole bundles
}

// Plan looks, with many models, for a better plan made of bundles: for each model some pipelines that
// carry its rate, of which an integer program picks one per model. They are put together from covers, the cheapest
// replicas that carry a rate. It lowers the bound by covers (the least cost of the rates of all models) and, if the
// gap is still too large, by allotments (the devices that each model takes). tables holds the tables of column
// generation, or nil if all templates are listed in the catalogue of the wait choice.
func Plan(ctx context.Context, solver milp.Solver, choice *relaxation.WaitChoice, best *incumbent.Incumbent, tables []*templates.Table, options *problem.Options, record problem.PhaseRecorder) error {
	b := newBundleSearch(solver, options, newModelCovers(ctx, choice, best, tables, options.Effort))
	err := b.raiseThroughput(ctx)
	if err == nil && best.Gap() > options.Gap {
		err = b.boundByAllotments(ctx)
	}
	if err == nil {
		record("bundles", b.numChoices, b.solverStats)
	}
	return err
}

// newBundleSearch returns a search for plans made of bundles that are put together from the given covers.
func newBundleSearch(solver milp.Solver, options *problem.Options, covers *modelCovers) *bundleSearch {
	return &bundleSearch{
		solver: solver, options: options, problem: covers.problem, catalogue: covers.catalogue, incumbent: covers.incumbent, covers: covers,
		remainingNodes: bundleNodes * int64(options.Effort),
	}
}

// raiseThroughput looks for the largest throughput that bundles reach. If the goal is a price, the rates are
// given by the floors, and one throughput, 1 unit, is tried. Where a plan runs already, plans that move few
// devices come first.
func (x *bundleSearch) raiseThroughput(ctx context.Context) error {
	switch {
	case x.incumbent.Goal.PoolCosts() != nil:
		return x.bisectThroughput(ctx, 1)
	case x.incumbent.Replan != nil:
		return x.replanThroughput(ctx)
	}
	return x.bisectThroughput(ctx, bundleRounds)
}

// bisectThroughput looks for plans at throughputs (in units) between that of the best plan and the bound, and
// keeps the better ones. Each try lies halfway between the highest throughput that was reached and the lowest
// that was not, but at most maxFirstGap below the latter. The first try is at least what would close the gap.
func (x *bundleSearch) bisectThroughput(ctx context.Context, rounds int) error {
	lo, hi := x.incumbent.Value(), x.incumbent.ChoiceBound
	limits := bundleLimits{}
	if x.incumbent.Replan != nil {
		limits.maxMoved = x.incumbent.Replan.MaxMoved
	}
	// lo was reached, hi was not or is the bound.
	for round := range rounds {
		if x.isDone(ctx) || rounds > 1 && x.isNarrow(lo, hi) {
			break
		}
		value := max((lo+hi)/2, hi*(1-maxFirstGap))
		if round == 0 {
			value = max(value, x.acceptedValue())
		}
		plan, tried, err := x.planNear(ctx, value, limits)
		if err != nil {
			return err
		}
		if plan == nil {
			hi = tried // too high
			continue
		}
		lo = tried
		x.incumbent.KeepIfBetter(plan)
	}
	return nil
}

// replanThroughput takes, where a plan runs already, the first plan that moves few enough devices. In round 0 it
// asks for a throughput within the gap of the bound, with the fewest moves. After each failure it asks for less: in
// round r the throughput is lower than in round 0 by replanValueStep·r² of the bound. If the plan came after two
// failures or more, it tries once more halfway to the throughput that was not reached.
func (x *bundleSearch) replanThroughput(ctx context.Context) error {
	// startValue is the throughput of the best plan at the start, failedValue the bound or the lowest throughput that was
	// not reached.
	startValue, failedValue := x.incumbent.Value(), x.incumbent.ChoiceBound
	limits := bundleLimits{maxMoved: x.incumbent.Replan.MaxMoved, fewestMoves: true}
	for round := range bundleRounds {
		value := x.incumbent.ChoiceBound * (1 - x.options.Gap - replanValueStep*float64(round*round))
		if x.isDone(ctx) || x.isNarrow(startValue, failedValue) || value <= startValue {
			break
		}
		plan, tried, err := x.planNear(ctx, value, limits) // tried is less than value if the bound fell meanwhile
		if err != nil {
			return err
		}
		if plan == nil {
			failedValue = tried
			continue
		}
		x.incumbent.KeepIfBetter(plan)

		// Try once more, unless there were fewer than two failures: all rounds before failed.
		failures := round
		if failures < 2 || round+1 == bundleRounds || x.isDone(ctx) || x.isNarrow(tried, failedValue) {
			break
		}
		plan, _, err = x.planNear(ctx, (tried+failedValue)/2, limits)
		if err != nil {
			return err
		}
		x.incumbent.KeepIfBetter(plan) // nil changes nothing
		return nil
	}
	return nil
}

// isDone reports whether the gap is closed, or the search was interrupted.
func (x *bundleSearch) isDone(ctx context.Context) bool {
	return ctx.Err() != nil || x.incumbent.Gap() <= x.options.Gap
}

// isNarrow reports whether a throughput that was reached and one that was not are too close for another try.
func (x *bundleSearch) isNarrow(lo, hi float64) bool { return hi-lo <= x.options.Gap/8*hi }

// acceptedValue returns a throughput just above the least one that is good enough by the present bound.
func (x *bundleSearch) acceptedValue() float64 {
	return x.incumbent.ChoiceBound * (1 - x.options.Gap) * (1 + 1e-4)
}

// planNear looks for a plan of bundles that reaches a throughput, in units. If not even fractions of bundles
// fit the devices, it adds covers at other prices, which gives other bundles, and looks again. These covers
// lower the bound, so it may look for less then. It returns the throughput that it looked for last. If it finds
// none, the plan is nil.
func (x *bundleSearch) planNear(ctx context.Context, value float64, limits bundleLimits) (plan *placement.Plan, tried float64, err error) {
	plan, err = x.planForValue(ctx, value, limits)
	for plan == nil && err == nil && x.covers.repriceCovers(ctx, x.scarcityPrices) {
		value = min(value, x.acceptedValue())
		plan, err = x.planForValue(ctx, value, limits)
	}
	return plan, value, err
}

// bundleLimits says what a choice of bundles must keep, and what it saves.
type bundleLimits struct {
	idleDevices []float64 // by pool: devices that have to stay idle
	maxMoved    float64   // devices that may move, if a plan runs
	fewestMoves bool      // whether the fewest moves are wanted
}

// planForValue picks one bundle (pipelines of a model that carry its rate) for each model, so that all reach a
// throughput in units, and returns their plan. If it finds none within the limits, it returns nil.
func (x *bundleSearch) planForValue(ctx context.Context, value float64, limits bundleLimits) (*placement.Plan, error) {
	// The bundles of all models.
	var choices []bundle
	for d := range x.problem.Models {
		modelChoices, err := x.modelBundles(d, x.covers.requiredRate(d, value))
		if err != nil {
			return nil, err
		}
		choices = append(choices, modelChoices...)
	}
	x.covers.allowNewTemplates() // bundles may have brought templates into the catalogue
	x.numChoices = len(choices)

	// Choose one bundle for each model. Shares of devices that fit by their sum need not fit one by one. Then the choice is
	// made again with a little more of the full pool left idle. The plan is kept if it is better than the best one even
	// without the replicas that find no place (KeepIfBetter leaves them out).
	limits.idleDevices = make([]float64, len(x.problem.Pools))
	for range maxPackAttempts {
		plan, err := x.chooseBundles(ctx, choices, limits)
		if err != nil {
			return nil, err
		}
		if plan == nil {
			// In a re-plan, the choice is limited by the sum of the bundles' moves. Bundles of several SLO classes of one model
			// may together move less. So choose once more with a higher limit; the plan's own moves decide in the end.
			hasHigherLimit := x.incumbent.Replan != nil && limits.maxMoved > x.incumbent.Replan.MaxMoved
			if x.incumbent.Replan == nil || limits.maxMoved == 0 || hasHigherLimit {
				return nil, nil
			}
			limits.maxMoved *= replanMoveFactor
			continue
		}
		if !x.incumbent.Replan.AllowsMoves(plan) {
			return nil, nil
		}
		fullPool := placement.UnpackablePool(x.catalogue, plan)
		if fullPool < 0 {
			return plan, nil
		}
		limits.idleDevices[fullPool] += idleStep
		x.incumbent.KeepIfBetter(plan)
	}
	return nil, nil
}

// modelBundles lists good bundles of model d: pipelines that together carry a rate, in requests/s. Each is made of
// one configuration (whole replicas of one template) and the cheapest configurations for the rest of the rate (a
// cover). In a re-plan, variants of the pipelines that run are added. The cheapest come first, and only so many are
// kept as the integer program can choose from.
func (x *bundleSearch) modelBundles(d int, rps float64) ([]bundle, error) {
	// add adds a bundle unless some pool has too few devices for it.
	var bundles []bundle
	add := func(pipelines ...placement.PlanPipeline) {
		b := x.newBundle(d, pipelines)
		for k, v := range b.devices {
			if v > float64(x.problem.Pools[k].Count) {
				return
			}
		}
		// Of several bundles that take the same devices and move no more, one is enough.
		if !slices.ContainsFunc(bundles, func(o bundle) bool { return slices.Equal(o.devices, b.devices) && o.movedDevices <= b.movedDevices }) {
			bundles = append(bundles, b)
		}
	}

	// Make bundles of the covers (the cheapest replicas for a rate) at all prices of devices that were tried. There is a
	// table for each set of prices, the last ones last: only the coverTemplates of the last table stay.
	var coverTemplates []int // templates of the cheapest covers at the last prices
	for _, c := range x.covers.tables[d] {
		// This table adds at most bundlesPerModel bundles to those of the tables before, for each unit of effort.
		maxBundles := len(bundles) + bundlesPerModel*x.options.Effort
		addLimited := func(pipelines ...placement.PlanPipeline) (wantMore bool) {
			add(pipelines...)
			return len(bundles) < maxBundles
		}
		var err error
		coverTemplates, err = x.addCoverBundles(d, c, rps, addLimited)
		if err != nil {
			return nil, err
		}
	}

	// Keep the cheapest. Both parts of the cost are at the last prices of devices. In a re-plan a moved device costs, beside
	// its use, the mean price of a device: that of all devices together over their number.
	maxPerModel, allMovesPrice := bundlesPerModel, 0.0
	if x.incumbent.Replan != nil {
		x.addRunningBundles(d, coverTemplates, rps, add)
		maxPerModel, allMovesPrice = replanBundles, lists.Total(x.covers.prices)
	}
	totalDevices := float64(x.problem.TotalDevices())
	slices.SortStableFunc(bundles, func(a, b bundle) int {
		return cmp.Compare(a.cost+allMovesPrice*a.movedDevices/totalDevices, b.cost+allMovesPrice*b.movedDevices/totalDevices)
	})
	return bundles[:min(len(bundles), maxPerModel*x.options.Effort)], nil
}

// newBundle returns pipelines of model d as a bundle: with the devices that it takes of each pool in fractions, their cost
// at the last prices of devices and, if a plan runs, the number of devices that have to load something for it.
func (x *bundleSearch) newBundle(d int, pipelines []placement.PlanPipeline) bundle {
	b := bundle{model: d, pipelines: pipelines, devices: placement.UsedDevices(x.catalogue, pipelines)}
	if x.incumbent.Replan != nil {
		// SLO classes of one model run the same blocks. A bundle counts only what its own class runs as held,
		// so all classes together move at most the sum.
		b.movedDevices = x.incumbent.Replan.DevicesBeyond(pipelines, x.incumbent.Replan.ReplicasByModel[d])
	}
	for k, v := range b.devices {
		b.cost += x.covers.prices[k] * v / float64(max(x.problem.Pools[k].Count, 1))
	}
	return b
}

// addCoverBundles makes pipelines of model d that carry a rate, in requests/s, one set for each configuration of the
// table (whole replicas of one template): that configuration, and for the rest of the rate its cover, the cheapest
// configurations that carry it. It hands the sets to addBundle, the cheapest first, until that wants no more. It
// tries at most maxCoversTried of them for each unit of effort, as most take the same devices as others. It returns
// the catalogue's indexes of the first extraTemplates templates used, with which a re-plan may extend what runs.
func (x *bundleSearch) addCoverBundles(d int, table *coverTable, rps float64, addBundle func(...placement.PlanPipeline) (wantMore bool)) (coverTemplates []int, err error) {
	rateSteps := table.stepsFor(rps)
	type start struct {
		cost      float64
		itemSteps int
	}

	// Price every configuration with the cover of the rate that it leaves. Rates are in steps of the table's grid, and
	// template -1 marks a number of steps that no configuration carries.
	var starts []start
	for steps := 1; steps < len(table.itemBySteps); steps++ {
		if table.itemBySteps[steps].template >= 0 {
			starts = append(starts, start{table.itemBySteps[steps].cost + table.costBySteps[max(rateSteps-steps, 0)], steps})
		}
	}
	slices.SortFunc(starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.itemSteps, b.itemSteps))
	})

	// Turn the cheapest ones into pipelines. Several configurations of one template become one pipeline, made anew for the
	// sum of their rates.
	var items []coverItem
	for _, candidate := range starts[:min(len(starts), maxCoversTried*x.options.Effort)] {
		remainingSteps := rateSteps - candidate.itemSteps // at 0 or below, appendCover adds nothing
		items = table.appendCover(append(items[:0], table.itemBySteps[candidate.itemSteps]), remainingSteps)
		var pipelines []placement.PlanPipeline
		for _, item := range items {
			index, err := x.covers.templateIndex(d, item.template)
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(pipelines, func(p placement.PlanPipeline) bool { return p.Template == index }); i >= 0 {
				item.rate += pipelines[i].RPS
				pipelines = slices.Delete(pipelines, i, i+1)
			}
			pipelines = append(pipelines, placement.PipelineFor(&x.catalogue.Templates[index], index, item.rate))
			if len(coverTemplates) < extraTemplates && !slices.Contains(coverTemplates, index) {
				coverTemplates = append(coverTemplates, index)
			}
		}
		if !addBundle(pipelines...) {
			break
		}
	}
	return coverTemplates, nil
}

// addRunningBundles passes to addBundle, in a re-plan (a plan runs already), bundles that differ little from the pipelines
// of model d that run, so that few devices have to load anything. rps is the rate in requests/s that a bundle must
// carry. If the running pipelines carry less, one of them gets more replicas, or a pipeline of one of coverTemplates
// (indexes in the catalogue) is added. If they carry more, one gets fewer replicas, or is left out and another one gets
// fewer.
func (x *bundleSearch) addRunningBundles(d int, coverTemplates []int, rps float64, addBundle func(...placement.PlanPipeline)) {
	// The running pipelines of the model, at the rates that their replicas carry.
	var running []placement.PlanPipeline
	runningRate := 0.0
	for _, pipeline := range x.incumbent.Replan.Pipelines {
		if pipeline.Model == d {
			pipeline.RPS = math.Inf(1)
			for si, s := range x.catalogue.Templates[pipeline.Template].Stages {
				pipeline.RPS = min(pipeline.RPS, s.Rate*float64(pipeline.Replicas[si]))
			}
			running = append(running, pipeline)
			runningRate += pipeline.RPS
		}
	}
	for i, pipeline := range running {
		// All others as they are, and this one with the rate that is missing.
		others := slices.Delete(slices.Clone(running), i, i+1)
		if missingRate := rps - (runningRate - pipeline.RPS); missingRate > 0 {
			addBundle(append(others, placement.PipelineFor(&x.catalogue.Templates[pipeline.Template], pipeline.Template, missingRate))...)
			continue
		}
		// The others carry the rate without this one: each of them in turn with less.
		for j, other := range others {
			remaining := slices.Delete(slices.Clone(others), j, j+1)
			if missingRate := rps - (runningRate - pipeline.RPS - other.RPS); missingRate > 0 {
				addBundle(append(remaining, placement.PipelineFor(&x.catalogue.Templates[other.Template], other.Template, missingRate))...)
			}
		}
	}

	// All of them as they are, and a template of a good cover with the missing rate.
	if runningRate < rps && len(running) > 0 {
		for _, t := range coverTemplates {
			if !slices.ContainsFunc(running, func(pipeline placement.PlanPipeline) bool { return pipeline.Template == t }) {
				addBundle(append(slices.Clone(running), placement.PipelineFor(&x.catalogue.Templates[t], t, rps-runningRate))...)
			}
		}
	}
}
