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
type planImprover struct {
	search    *planSearch
	problem   *Problem
	catalogue *templateCatalogue
	incumbent *incumbent
	choice    *waitChoice
}

// newPlanImprover returns the improver of a search under its present wait choice.
func newPlanImprover(search *planSearch) *planImprover {
	return &planImprover{search, search.problem, search.catalogue, search.incumbent, search.choice}
}

// improvePlan runs one phase after another until the gap closes or the work is done.
func (x *planImprover) improvePlan(ctx context.Context) error {
	basis, stop, err := x.findFirstPlan(ctx)
	if stop || err != nil {
		return err
	}

	// With many models, bundles; else integer programs over few templates.
	if x.problem.usesBundles() && x.incumbent.plan != nil {
		if err := planByBundles(ctx, x.search); err != nil {
			return err
		}
		if x.search.shouldStop(ctx) || x.catalogue.incomplete {
			return nil // the programs that follow are too large for what is left
		}
	} else if stop, err := x.solveSmallPrograms(ctx, basis); stop || err != nil {
		return err
	}
	return x.solveLargePrograms(ctx, basis)
}

// findFirstPlan makes plans without an integer program over replicas. It returns the templates that the programs
// start with. stop reports that the plan is good enough, or that there is none under the wait choice.
func (x *planImprover) findFirstPlan(ctx context.Context) (basis []int, stop bool, err error) {
	// The plan that runs, if there is one, is the first incumbent.
	basis = slices.Clone(x.choice.lp.usedTemplates)
	if x.search.replan != nil {
		x.incumbent.keepIfBetter(x.catalogue.recomputePlan(x.search.replan.pipelines))
		x.search.recordPhase("what runs", len(x.search.replan.pipelines), milp.Stats{})
		if x.incumbent.servesAll() && x.search.shouldStop(ctx) {
			return nil, true, nil
		}
		basis = unionTemplates(basis, x.search.replan.pipelines)
	}

	// The rates of the relaxation, scaled down until their replicas fit, are the next.
	if x.roundRelaxation(); x.incumbent.plan != nil {
		x.search.recordPhase("rounding", len(basis), milp.Stats{})
		if x.search.shouldStop(ctx) {
			return nil, true, nil
		}
	}
	if x.incumbent.servesAll() {
		return basis, false, nil
	}

	// If memory is tight, the relaxation may give no plan: start from one pipeline of every model.
	if slices.Contains(x.catalogue.tightMemory(x.choice.allowedTemplates), true) {
		templates, impossible, err := onePipelineEach(ctx, x.search)
		if err != nil {
			return nil, false, err
		}
		if impossible {
			x.search.choiceBound = x.incumbent.score()
			return nil, true, nil
		}
		basis = unionTemplates(append(basis, templates...))
	}

	// If not even one replica of everything fits, there is no plan.
	if !x.catalogue.incomplete && slices.ContainsFunc(newNoPlanDiagnosis(x.search).missingDevices(ctx), func(n int) bool { return n > 0 }) {
		x.search.choiceBound = x.incumbent.score()
		return nil, true, nil
	}
	return basis, false, nil
}

// nodeDivisor returns the divisor of the nodes: above 1 if a plan is wanted soon.
func (x *planImprover) nodeDivisor() int64 {
	switch {
	case x.search.replan != nil:
		return replanNodeDivisor
	case x.search.options.Hurry:
		return hurryNodeDivisor
	}
	return 1
}

// solveSmallPrograms runs the phases that need few templates: the program over the basis, the bound of whole
// devices per model, and sums of losses. stop reports that the search may stop.
func (x *planImprover) solveSmallPrograms(ctx context.Context, basis []int) (stop bool, err error) {
	if _, err := x.solveInteger(ctx, "basis", basis, basisNodes/x.nodeDivisor()); err != nil || x.search.shouldStop(ctx) {
		return true, err
	}
	if err := x.search.floors.adoptPlan(ctx); err != nil || x.search.floors.areUnreachable() || x.search.shouldStop(ctx) {
		return true, err
	}
	if err := boundByWholeDevices(ctx, x.search); err != nil || x.search.shouldStop(ctx) {
		return true, err
	}
	boundByLosses(x.search, lossWorkSteps)
	return x.search.shouldStop(ctx), nil
}

// solveLargePrograms runs the program over some templates of every model, and the one over all templates that a
// better plan may use.
func (x *planImprover) solveLargePrograms(ctx context.Context, basis []int) error {
	byLoss := x.choice.templatesByLoss()
	smallSet := x.choice.pickTemplates(byLoss, basis, x.search.templatesPerModel())
	isOptimal, err := x.solveInteger(ctx, "pool", smallSet, poolNodes/x.nodeDivisor())
	if err != nil || x.search.shouldStop(ctx) || x.search.options.Hurry {
		return err
	}
	// The plan is better now, so the sums of losses have less to look at.
	if boundByLosses(x.search, longLossFactor*lossWorkSteps); x.search.shouldStop(ctx) {
		return nil
	}
	if x.search.replan != nil && x.search.options.Effort == 1 {
		return nil // a re-plan is wanted soon: its proof only with more effort
	}
	// The templates that a better plan may use: no other one can be in it.
	var survivors []int
	for _, i := range byLoss {
		if x.choice.losses[i] < x.choice.lp.bound-x.incumbent.score() {
			survivors = append(survivors, i)
		}
	}
	if isOptimal && isSubset(survivors, smallSet) {
		return nil
	}
	if len(survivors) > maxSurvivors*x.search.options.Effort {
		survivors = x.choice.pickTemplates(byLoss, basis, widePerModel*x.search.options.Effort)
	}
	_, err = x.solveInteger(ctx, "survivors", survivors, survivorNodes)
	x.search.shouldStop(ctx)
	return err
}

// roundingSteps is the number of halvings by which roundRelaxation looks for its factor.
const roundingSteps = 24

// roundRelaxation makes a plan of the relaxation: all its rates times the largest factor for which the replicas,
// rounded up, fit the devices. For the least price, which asks for fixed rates, the factor is 1. On large
// clusters the plan is close to the bound at once. Elsewhere it is a start.
func (x *planImprover) roundRelaxation() {
	if x.problem.hasTimeShared() {
		return
	}

	// planAt returns the plan of the rates times a factor, or nil if it does not fit.
	planAt := func(factor float64) *replicaPlan {
		pipelines := make([]planPipeline, len(x.choice.lp.usedTemplates))
		for i, ti := range x.choice.lp.usedTemplates {
			t := &x.catalogue.templates[ti]
			pipelines[i] = pipelineFor(t, ti, factor*x.choice.lp.usedRates[i]*x.catalogue.units.modelRPS[t.Model])
		}
		return x.catalogue.recomputePlan(pipelines)
	}
	if x.search.goal.poolCosts() != nil {
		x.incumbent.keepIfBetter(planAt(1))
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
	x.incumbent.keepIfBetter(best)
}

// solveInteger solves the integer program over a set of templates and those of the best plan. It keeps a better
// plan, and lowers the bound by what the program proves. isOptimal reports whether the program was solved to its
// gap.
func (x *planImprover) solveInteger(ctx context.Context, name string, templates []int, nodes int64) (isOptimal bool, err error) {
	// The best plan is no start if it breaks the wait choice under work.
	hasStart := x.incumbent.plan != nil && !slices.ContainsFunc(x.incumbent.plan.pipelines, func(c planPipeline) bool { return math.IsInf(x.choice.losses[c.template], 1) })
	if hasStart {
		templates = unionTemplates(templates, x.incumbent.plan.pipelines)
	} else {
		templates = unionTemplates(templates)
	}

	// Build the program and solve it.
	program := x.buildProgram(templates)
	options := x.programOptions(name, program, nodes)
	if hasStart {
		options.Start = program.startPoint(x.incumbent.plan)
	}
	sol, err := x.search.solver.Solve(ctx, program.m, options)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(templates), err)
	}
	if sol.Feasible() {
		x.incumbent.keepIfBetter(program.readPlan(sol))
	}

	// Lower the bound. The program of a later search of a re-plan is over plans that move less than asked, and
	// bounds no other plan.
	programBound, isOptimal := x.boundWithin(sol)
	if x.search.replan != nil && x.search.replan.numSearches > 0 {
		programBound = x.search.choiceBound
	}
	x.search.lowerBound(max(programBound, x.boundOutside(templates)))
	x.search.recordPhase(name, len(templates), sol.Stats)
	return isOptimal, nil
}

// buildProgram returns the integer program over a set of templates, with the limit on moves if a plan runs.
func (x *planImprover) buildProgram(templates []int) *integerProgram {
	bound := x.choice.lp.bound
	if x.search.options.Hurry {
		bound = min(bound, x.search.choiceBound) // the program then proves less and finds plans sooner
	}
	program := x.search.goal.newProgram(x.catalogue, templates, bound)
	if x.search.replan != nil {
		program.limitMoves(x.search.replan, x.search.replan.maxMoved)
	}
	return program
}

// programOptions returns the limits of the solve of a program in so many nodes per unit of effort.
func (x *planImprover) programOptions(name string, program *integerProgram, nodes int64) milp.Options {
	search := x.search
	options := search.workLimits(nodes)
	options.Gap, options.HeuristicEffort = max(search.options.Gap/2, provenGap), heuristicEffort
	if search.options.Hurry {
		options.MaxStall = maxStallNodes
	}
	options.MaxIterations = min(options.MaxIterations, maxColumnWork/int64(program.m.NumVars())*int64(search.options.Effort))
	if search.options.EnoughRPS > 0 {
		options.TargetValue = search.options.EnoughRPS / x.catalogue.units.throughput * (1 + floorTolerance)
	}
	if search.options.Progress != nil {
		options.Incumbent = func(found milp.Incumbent) {
			// The solver's own figures, for the progress line. The plan's are recomputed later.
			if x.incumbent.plan == nil || found.Value > x.incumbent.score() {
				search.options.Progress(Progress{Phase: name, Value: search.displayValue(found.Value), Bound: search.displayValue(search.provenBound()), Incumbent: true})
			}
		}
	}
	return options
}

// boundWithin returns the bound that the solution of a program proves for plans over its templates, and whether
// the program was solved to its gap. If the solver has no bound, the program proves nothing, and the bound is
// infinite.
func (x *planImprover) boundWithin(sol *milp.Solution) (bound float64, isOptimal bool) {
	bound = sol.Bound
	if sol.Status == milp.Infeasible {
		bound = x.search.goal.noPlanScore()
	}
	if math.IsNaN(bound) {
		bound = math.Inf(1)
	}
	return bound, sol.Status == milp.Optimal || sol.Status == milp.Gap || sol.Status == milp.Infeasible
}

// boundOutside returns the bound of plans that use a template outside a set, which is sorted: such a plan stays
// below the bound of the relaxation by at least the loss of that template.
func (x *planImprover) boundOutside(templates []int) float64 {
	minLoss := math.Inf(1)
	if x.catalogue.incomplete {
		minLoss = 0 // templates that were not generated may lose nothing
	}
	for _, i := range x.choice.allowedTemplates {
		if _, ok := slices.BinarySearch(templates, i); !ok {
			minLoss = min(minLoss, x.choice.losses[i])
		}
	}
	return x.choice.lp.bound - minLoss
}
