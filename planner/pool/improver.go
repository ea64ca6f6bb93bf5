package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// planImprover runs the phases that improve the best plan of a search, and its bound, over the templates of the
// wait choice under work.
type planImprover struct{ *planSearch }

// improvePlan runs one phase after another until the gap closes or the work is done.
func (x *planImprover) improvePlan(ctx context.Context) error {
	// The plan that runs, if there is one, is the first incumbent.
	basis := slices.Clone(x.lp.usedTemplates)
	if x.replan != nil {
		x.keepIfBetter(x.recomputePlan(x.replan.pipelines))
		x.recordPhase("what runs", len(x.replan.pipelines), milp.Stats{})
		if x.bestPlan != nil && x.bestValue() > 0 && x.shouldStop(ctx) {
			return nil
		}
		basis = unionTemplates(basis, x.replan.pipelines)
	}

	// The rates of the relaxation, scaled down until their replicas fit, are the next.
	if x.roundRelaxation(); x.bestPlan != nil {
		x.recordPhase("rounding", len(basis), milp.Stats{})
		if x.shouldStop(ctx) {
			return nil
		}
	}

	// If memory is tight, the relaxation may give no plan: start from one pipeline of every model.
	if x.bestValue() == 0 && slices.Contains(x.tightMemory(x.allowedTemplates), true) {
		templates, impossible, err := x.onePipelineEach(ctx)
		if err != nil {
			return err
		}
		if impossible {
			x.choiceBound = x.bestScore()
			return nil
		}
		basis = unionTemplates(append(basis, templates...))
	}

	// If not even one replica of everything fits, there is no plan.
	if x.bestValue() == 0 && !x.incomplete && slices.ContainsFunc((&noPlanDiagnosis{x.planSearch}).missingDevices(ctx), func(n int) bool { return n > 0 }) {
		x.choiceBound = x.bestScore()
		return nil // not even one replica of everything fits
	}

	// With many models, bundles; else integer programs over few templates.
	if x.usesBundles() && x.bestPlan != nil {
		if err := x.planByBundles(ctx); err != nil {
			return err
		}
		if x.shouldStop(ctx) || x.incomplete {
			return nil // the programs that follow are too large for what is left
		}
	} else if stop, err := x.solveSmallPrograms(ctx, basis); stop || err != nil {
		return err
	}
	return x.solveLargePrograms(ctx, basis)
}

// nodeDivisor returns the divisor of the nodes: above 1 if a plan is wanted soon.
func (x *planImprover) nodeDivisor() int64 {
	switch {
	case x.replan != nil:
		return replanNodeDivisor
	case x.options.Hurry:
		return hurryNodeDivisor
	}
	return 1
}

// solveSmallPrograms runs the phases that need few templates: the program over the basis, the bound of whole
// devices per model, and sums of losses. stop reports that the search may stop.
func (x *planImprover) solveSmallPrograms(ctx context.Context, basis []int) (stop bool, err error) {
	if _, err := x.solveInteger(ctx, "basis", basis, basisNodes/x.nodeDivisor()); err != nil || x.shouldStop(ctx) {
		return true, err
	}
	if err := x.adoptFloorPlan(ctx); err != nil || x.floorsUnreachable() || x.shouldStop(ctx) {
		return true, err
	}
	if err := x.boundByWholeDevices(ctx); err != nil || x.shouldStop(ctx) {
		return true, err
	}
	x.boundByLosses(lossWorkSteps)
	return x.shouldStop(ctx), nil
}

// solveLargePrograms runs the program over some templates of every model, and the one over all templates that a
// better plan may use.
func (x *planImprover) solveLargePrograms(ctx context.Context, basis []int) error {
	byLoss := x.templatesByLoss()
	smallSet := x.pickTemplates(byLoss, basis, x.templatesPerModel())
	isOptimal, err := x.solveInteger(ctx, "pool", smallSet, poolNodes/x.nodeDivisor())
	if err != nil || x.shouldStop(ctx) || x.options.Hurry {
		return err
	}
	// The plan is better now, so the sums of losses have less to look at.
	if x.boundByLosses(longLossFactor * lossWorkSteps); x.shouldStop(ctx) {
		return nil
	}
	if x.replan != nil && x.options.Effort == 1 {
		return nil // a re-plan is wanted soon: its proof only with more effort
	}
	// The templates that a better plan may use: no other one can be in it.
	var survivors []int
	for _, i := range byLoss {
		if x.losses[i] < x.lp.bound-x.bestScore() {
			survivors = append(survivors, i)
		}
	}
	if isOptimal && isSubset(survivors, smallSet) {
		return nil
	}
	if len(survivors) > maxSurvivors*x.options.Effort {
		survivors = x.pickTemplates(byLoss, basis, widePerModel*x.options.Effort)
	}
	_, err = x.solveInteger(ctx, "survivors", survivors, survivorNodes)
	x.shouldStop(ctx)
	return err
}

// roundingSteps is the number of halvings by which roundRelaxation looks for its factor.
const roundingSteps = 24

// roundRelaxation makes a plan of the relaxation: all its rates times the largest factor for which the replicas,
// rounded up, fit the devices. For the least price, which asks for fixed rates, the factor is 1. On large
// clusters the plan is close to the bound at once. Elsewhere it is a start.
func (x *planImprover) roundRelaxation() {
	if x.hasTimeShared() {
		return
	}

	// planAt returns the plan of the rates times a factor, or nil if it does not fit.
	planAt := func(factor float64) *replicaPlan {
		pipelines := make([]planPipeline, len(x.lp.usedTemplates))
		for i, ti := range x.lp.usedTemplates {
			t := &x.templates[ti]
			pipelines[i] = pipelineFor(t, ti, factor*x.lp.usedRates[i]*x.units.modelRPS[t.Model])
		}
		return x.recomputePlan(pipelines)
	}
	if x.goal.poolCosts() != nil {
		x.keepIfBetter(planAt(1))
		return
	}

	// Bisect the factor.
	lo, hi := 0.0, 1.0
	var best *replicaPlan
	for range roundingSteps {
		mid := (lo + hi) / 2
		if plan := planAt(mid); plan != nil {
			lo = mid
			if plan.value > 0 && (best == nil || plan.value > best.value) {
				best = plan
			}
		} else {
			hi = mid
		}
	}
	x.keepIfBetter(best)
}

// solveInteger solves the integer program over a set of templates and those of the best plan. It keeps a better
// plan, and lowers the bound by what the program proves: a plan that uses a template outside the set loses at
// least that template's loss. solved reports whether the program was solved to its gap.
func (x *planImprover) solveInteger(ctx context.Context, name string, templates []int, nodes int64) (isOptimal bool, err error) {
	// The best plan is no start if it breaks the wait choice under work.
	hasStart := x.bestPlan != nil && !slices.ContainsFunc(x.bestPlan.pipelines, func(c planPipeline) bool { return math.IsInf(x.losses[c.template], 1) })
	if hasStart {
		templates = unionTemplates(templates, x.bestPlan.pipelines)
	} else {
		templates = unionTemplates(templates)
	}

	// Build the program, with the limit on moves if a plan runs.
	bound := x.lp.bound
	if x.options.Hurry {
		bound = min(bound, x.choiceBound) // the program then proves less and finds plans sooner
	}
	program := x.goal.newProgram(x.templateCatalogue, templates, bound)
	if x.replan != nil {
		program.limitMoves(x.replan, x.replan.maxMoved)
	}

	// Limits of the solve, and the start.
	options := x.workLimits(nodes)
	options.Gap, options.HeuristicEffort = max(x.options.Gap/2, provenGap), heuristicEffort
	if x.options.Hurry {
		options.MaxStall = maxStallNodes
	}
	options.MaxIterations = min(options.MaxIterations, maxColumnWork/int64(program.m.NumVars())*int64(x.options.Effort))
	if hasStart {
		options.Start = program.startPoint(x.bestPlan)
	}
	if x.options.EnoughRPS > 0 {
		options.TargetValue = x.options.EnoughRPS / x.units.throughput * (1 + floorTolerance)
	}
	if x.options.Progress != nil {
		options.Incumbent = func(found milp.Incumbent) {
			// The solver's own figures, for the progress line. The plan's are recomputed later.
			if x.bestPlan == nil || found.Value > x.bestScore() {
				x.options.Progress(Progress{Phase: name, Value: x.displayValue(found.Value), Bound: x.displayValue(x.provenBound()), Incumbent: true})
			}
		}
	}

	// Solve.
	sol, err := x.solver.Solve(ctx, program.m, options)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(templates), err)
	}
	if sol.Feasible() {
		x.keepIfBetter(program.readPlan(sol))
	}

	// The bound of plans within the set.
	var programBound float64
	switch sol.Status {
	case milp.Optimal, milp.Gap:
		programBound, isOptimal = sol.Bound, true
	case milp.Infeasible:
		programBound, isOptimal = x.goal.noPlanScore(), true
	default:
		programBound = sol.Bound
	}
	if math.IsNaN(programBound) {
		programBound = math.Inf(1) // the solver has no bound: the program proves nothing
	}

	// The bound of plans that use a template outside the set.
	minOutsideLoss := math.Inf(1)
	if x.incomplete {
		minOutsideLoss = 0 // templates that were not generated may lose nothing
	}
	for _, i := range x.allowedTemplates {
		if _, ok := slices.BinarySearch(templates, i); !ok {
			minOutsideLoss = min(minOutsideLoss, x.losses[i])
		}
	}
	if x.replan != nil && x.replan.numSearches > 0 {
		programBound = x.choiceBound // the program was over plans that move less than asked
	}
	x.choiceBound = max(min(x.choiceBound, max(programBound, x.lp.bound-minOutsideLoss)), x.bestScore())
	x.recordPhase(name, len(templates), sol.Stats)
	return isOptimal, nil
}
