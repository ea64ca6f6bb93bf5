package search

import (
	"context"

	"inferplan/planner/pool/losses"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/solver/milp"
)

// polishPlan improves the best plan of a search for throughput in what the objective does not see: first fewer
// moved devices, then a larger weighted sum of rates, then less latency. The objective stays, up to the gap.
func polishPlan(ctx context.Context, search *planSearch) error {
	if err := reduceMoves(ctx, search); err != nil {
		return err
	}
	if err := raiseWeightedSum(ctx, search); err != nil {
		return err
	}
	if err := reduceLatency(ctx, search); err != nil {
		return err
	}
	shortenPipelines(ctx, search)
	return nil
}

// sameValueProgram returns the program of the plans over a set of templates that reach the best objective.
func sameValueProgram(search *planSearch, templates []int) *programs.Program {
	return programs.New(search.catalogue, templates, search.incumbent.Value(), search.incumbent.Value()*(1-problem.ValueTolerance))
}

// reduceMoves looks, if a plan runs already, for one that is good enough (within the gap asked for) and moves
// the fewest devices. A device moves if it has to load something. If the running plan itself is good enough, it becomes
// the best one (preferRunning). With many models it does nothing: the bundles of their plan were chosen for few moves.
func reduceMoves(ctx context.Context, search *planSearch) error {
	if search.replan == nil || search.problem.UsesBundles() || ctx.Err() != nil {
		return nil
	}
	movedDevices := search.replan.MovedDevices(search.incumbent.Plan.Pipelines)
	if movedDevices == 0 || preferRunning(ctx, search) {
		return nil
	}

	// A program over the small set of templates that minimises the moves, of at most movedDevices. Its throughput, in units,
	// is at least that of the best plan or, if that is lower, the least within the gap of the bound. The factors 1-1e-9 allow
	// for rounding errors.
	minValue := min(search.incumbent.Value(), search.incumbent.ProvenBound()*(1-search.options.Gap)) * (1 - 1e-9)
	maxValue := max(search.incumbent.ChoiceBound, minValue)
	templates := programs.UnionTemplates(search.choice.BestTemplates(search.templatesPerModel()), search.incumbent.Plan.Pipelines, search.replan.Pipelines)
	program := programs.New(search.catalogue, templates, maxValue, minValue)
	program.MinimizeMoves(search.replan, movedDevices)
	options := search.options.WorkLimits(moveNodes)
	// Plans that move less than half a device fewer are not looked for.
	options.AbsGap = 0.5
	return polishBy(ctx, search, "fewest moves", "the fewest devices that move", program, options, func(found *placement.Plan) bool {
		isGoodEnough := found.Value >= search.catalogue.UnitsToRate(minValue)*(1-1e-9)
		return isGoodEnough && search.replan.MovedDevices(found.Pipelines) < movedDevices && placement.UnpackablePool(search.catalogue, found) < 0
	})
}

// polishBy solves an integer program, which starts from the best plan of the search, and makes the plan that it finds the
// best one if isBetter returns true for it. It records the phase in the outcome. phase is the name of the phase there,
// aim describes in errors the plan that was looked for.
func polishBy(ctx context.Context, search *planSearch, phase, aim string, program *programs.Program, options milp.Options, isBetter func(found *placement.Plan) bool) error {
	found, stats, err := program.SolveFrom(ctx, search.solver, search.incumbent.Plan, options, aim)
	if err != nil {
		return err
	}
	if found != nil && isBetter(found) {
		search.incumbent.Plan = found
	}
	search.recordPhase(phase, len(program.TemplateSet), stats)
	return nil
}

// preferRunning makes the running plan the best one again, so that no device moves, if it is within the gap asked for:
// worse than the best plan by no more than that, and, as sums of losses prove, than any plan. It reports whether it did.
// After a search that ended for lack of work, which did not close the gap, it changes nothing.
func preferRunning(ctx context.Context, search *planSearch) bool {
	running, improved := placement.Recompute(search.catalogue, search.replan.Pipelines), search.incumbent.Plan
	if search.stoppedBy == milp.StoppedByWork || running == nil || running.Value < improved.Value*(1-search.options.Gap) || !search.incumbent.IsPlaceable(running) {
		return false
	}

	// Lower the bound by sums of losses (workFactor 1: with the usual work). That step does nothing once the best plan is
	// within the gap, as the improved one may be. So the running plan takes its place meanwhile.
	search.incumbent.Plan = running
	losses.LowerBound(search.choice, search.incumbent, &search.options, 1, search.recordPhase)
	isEnough := search.goal.RelativeGap(search.goal.ScoreOf(search.catalogue, running), search.incumbent.ProvenBound()) <= search.options.Gap

	// The step may have found a plan that is better than both. The running plan comes before it if it is good enough.
	search.incumbent.KeepIfBetter(improved)
	if isEnough {
		search.incumbent.Plan = running
	}
	search.shouldStop(ctx) // called only for its effect: the bound may have changed, so it notes anew why the search ends
	return isEnough
}

// raiseWeightedSum looks, among the plans of the best objective, for the one with the largest weighted sum of
// rates, so that devices that the least rate does not need serve somebody. If not all templates are known, the models
// are too many for a program over all replicas, or a plan is wanted soon (in a hurry, or because one runs already), the
// best plan's replicas stay and only idle devices are used. If a plan runs, no more devices move than before.
func raiseWeightedSum(ctx context.Context, search *planSearch) error {
	if len(search.problem.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	best := search.incumbent.Plan
	templates := programs.UnionTemplates(search.choice.BestTemplates(search.templatesPerModel()), best.Pipelines)
	program := sameValueProgram(search, templates)
	if search.catalogue.Incomplete || search.problem.UsesBundles() || search.replan != nil || search.options.Hurry {
		program.FixReplicas(best)
	}
	if search.replan != nil {
		program.LimitMoves(search.replan, search.replan.MovedDevices(best.Pipelines))
	}
	const sumGap = 1e-3 // relative gap of the sum at which the solver may stop
	return solveLargestSum(ctx, search, program, sumGap, sumNodes)
}

// solveLargestSum solves a program, whose θ is held at the best objective, for the largest weighted sum of
// rates. A plan of no lower objective and a larger sum replaces the best one.
func solveLargestSum(ctx context.Context, search *planSearch, program *programs.Program, gap float64, nodes int64) error {
	program.MaximizeSum()
	options := search.options.WorkLimits(nodes)
	options.Gap = gap
	return polishBy(ctx, search, "weighted sum", "the largest weighted sum", program, options, func(found *placement.Plan) bool {
		return found.Value >= search.incumbent.Plan.Value*(1-1e-12) && found.WeightedSum > search.incumbent.Plan.WeightedSum && search.incumbent.IsPlaceable(found)
	})
}

// reduceDevices looks, among the plans of the best objective, for one that takes the fewest devices. The
// baseline NP calls it. With keepSum the weighted sum of rates may not become smaller.
func reduceDevices(ctx context.Context, search *planSearch, keepSum bool) error {
	if ctx.Err() != nil {
		return nil
	}

	// The program of the plans of the best objective, and of no smaller sum.
	program := sameValueProgram(search, search.choice.AllowedTemplates)
	minSum := 0.0 // least weighted sum of rates
	if keepSum {
		minSum = search.incumbent.Plan.WeightedSum
	}
	program.MinimizeDevices(minSum)
	options := search.options.WorkLimits(survivorNodes)
	options.MaxIterations = 0
	return polishBy(ctx, search, "fewest devices", "the fewest devices", program, options, func(found *placement.Plan) bool {
		best := search.incumbent.Plan
		isAsGood := found.Value >= best.Value*(1-problem.ValueTolerance) && found.WeightedSum >= minSum*(1-problem.ValueTolerance)
		return isAsGood && placement.ExclusiveDevices(search.catalogue, found) <= placement.ExclusiveDevices(search.catalogue, best)
	})
}

// moveNodes bounds the branch-and-bound nodes of the program for the fewest moves.
const moveNodes = 100
