package pool

import (
	"context"

	"inferplan/solver/milp"
)

// planPolisher improves the best plan of a search by secondary criteria, at the objective that it has reached:
// few devices that move, a large weighted sum of rates, few devices, little latency.
type planPolisher struct {
	search    *planSearch
	problem   *Problem
	catalogue *templateCatalogue
	incumbent *incumbent
	choice    *waitChoice
}

// newPlanPolisher returns the polisher of a search's best plan.
func newPlanPolisher(search *planSearch) *planPolisher {
	return &planPolisher{search, search.problem, search.catalogue, search.incumbent, search.choice}
}

// polishThroughput polishes a plan of the most throughput.
func (x *planPolisher) polishThroughput(ctx context.Context) error {
	if err := x.fewestMoves(ctx); err != nil {
		return err
	}
	if err := x.largestSum(ctx); err != nil {
		return err
	}
	if err := x.reduceLatency(ctx); err != nil {
		return err
	}
	x.shortenPipelines(ctx)
	return nil
}

// valueTolerance is the relative difference up to which values count as equal: adding up rates in another order
// changes them by so much.
const valueTolerance = 1e-9

// sameValueProgram returns the program of the plans over a set of templates that reach the best objective.
func (x *planPolisher) sameValueProgram(templates []int) *integerProgram {
	return x.catalogue.newProgram(templates, x.incumbent.value(), x.incumbent.value()*(1-valueTolerance))
}

// fewestMoves looks, among the plans that are good enough, for one that moves few devices.
func (x *planPolisher) fewestMoves(ctx context.Context) error {
	if x.search.replan == nil || x.problem.usesBundles() || ctx.Err() != nil {
		return nil
	}
	movedNow := x.search.replan.movedDevices(x.incumbent.plan.pipelines)
	if movedNow == 0 || x.preferRunning(ctx) {
		return nil
	}

	// A program over the small set of templates that minimises the moves.
	minValue := min(x.incumbent.value(), x.search.provenBound()*(1-x.search.options.Gap)) * (1 - 1e-9)
	program := x.catalogue.newProgram(unionTemplates(x.choice.pickTemplates(x.choice.templatesByLoss(), x.choice.lp.usedTemplates, x.search.templatesPerModel()), x.incumbent.plan.pipelines, x.search.replan.pipelines), max(x.search.choiceBound, minValue), minValue)
	program.limitMoves(x.search.replan, movedNow)
	program.m.SetSense(milp.Minimize)
	program.m.SetObj(program.theta, 0)
	program.m.SetObj(program.movedVar, 1)
	options := x.search.workLimits(moveNodes)
	options.AbsGap = 0.5
	found, stats, err := program.solveFrom(ctx, x.search.solver, x.incumbent.plan, options, "the fewest devices that move")
	if err != nil {
		return err
	}
	if found != nil && found.value >= x.catalogue.unitsToRate(minValue)*(1-1e-9) && x.search.replan.movedDevices(found.pipelines) < movedNow && x.catalogue.unpackablePool(found) < 0 {
		x.incumbent.plan = found
	}
	x.search.recordPhase("fewest moves", len(program.templateSet), stats)
	return nil
}

// preferRunning goes back to the running plan if a better plan is better by less than the gap, and sums of
// losses prove that the running one is good enough as well. It reports whether it did.
func (x *planPolisher) preferRunning(ctx context.Context) bool {
	running, improved := x.catalogue.recomputePlan(x.search.replan.pipelines), x.incumbent.plan
	if x.search.stoppedBy == milp.StoppedByWork || running == nil || running.value < improved.value*(1-x.search.options.Gap) || !x.incumbent.isPlaceable(running) {
		return false
	}
	x.incumbent.plan = running
	boundByLosses(x.search, lossWorkSteps)
	isEnough := x.search.goal.relativeGap(x.search.goal.scoreOf(x.catalogue, running), x.search.provenBound()) <= x.search.options.Gap
	if x.incumbent.keepIfBetter(improved); isEnough {
		x.incumbent.plan = running
	}
	x.search.shouldStop(ctx)
	return isEnough
}

// largestSum looks, among the plans of the best objective, for the one with the largest weighted sum of rates,
// so that no model is left with needless slack.
func (x *planPolisher) largestSum(ctx context.Context) error {
	if len(x.problem.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	program := x.sameValueProgram(unionTemplates(x.choice.pickTemplates(x.choice.templatesByLoss(), x.choice.lp.usedTemplates, x.search.templatesPerModel()), x.incumbent.plan.pipelines))
	if x.catalogue.incomplete || x.problem.usesBundles() || x.search.replan != nil || x.search.options.Hurry {
		program.fixReplicas(x.incumbent.plan) // the plan stays as it is: only its idle devices are used
	}
	if x.search.replan != nil {
		program.limitMoves(x.search.replan, x.search.replan.movedDevices(x.incumbent.plan.pipelines))
	}
	return x.solveLargestSum(ctx, program, 1e-3, sumNodes)
}

// largestSumOver looks, among the plans of the best objective over a set of templates, for the one with the
// largest weighted sum of rates.
func (x *planPolisher) largestSumOver(ctx context.Context, set []int, gap float64, nodes int64) error {
	if len(x.problem.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	return x.solveLargestSum(ctx, x.sameValueProgram(set), gap, nodes)
}

// solveLargestSum solves a program for the largest weighted sum of rates. A plan with a larger sum than the best
// one replaces it.
func (x *planPolisher) solveLargestSum(ctx context.Context, program *integerProgram, gap float64, nodes int64) error {
	program.m.SetObj(program.theta, 0)
	terms, _ := program.weightedSumTerms()
	for _, t := range terms {
		program.m.SetObj(t.Var, t.Coef)
	}
	program.addModelCounts()
	options := x.search.workLimits(nodes)
	options.Gap = gap
	plan, stats, err := program.solveFrom(ctx, x.search.solver, x.incumbent.plan, options, "the largest weighted sum")
	if err != nil {
		return err
	}
	if plan != nil && plan.value >= x.incumbent.plan.value*(1-1e-12) && plan.weightedSum > x.incumbent.plan.weightedSum && x.incumbent.isPlaceable(plan) {
		x.incumbent.plan = plan
	}
	x.search.recordPhase("weighted sum", len(program.templateSet), stats)
	return nil
}

// weightedSumTerms returns the weighted sum of rates as terms of a program, in parts of total: what one unit of
// every model's rate gives.
func (q *integerProgram) weightedSumTerms() (terms []milp.Term, total float64) {
	for d := range q.problem.Models {
		total += q.problem.Models[d].Weight * q.catalogue.units.modelRPS[d]
	}
	for i, ti := range q.templateSet {
		d := q.catalogue.templates[ti].Model
		terms = append(terms, milp.Term{Var: q.rateVars[i], Coef: q.problem.Models[d].Weight * q.catalogue.units.modelRPS[d] / total})
	}
	return terms, total
}

// fewestDevices looks, among the plans of the best objective, for one that takes the fewest devices. With
// keepSum the weighted sum of rates may not become smaller.
func (x *planPolisher) fewestDevices(ctx context.Context, keepSum bool) error {
	if ctx.Err() != nil {
		return nil
	}

	// The program of the plans of the best objective, and of no smaller sum.
	program := x.sameValueProgram(x.choice.allowedTemplates)
	program.m.SetSense(milp.Minimize)
	program.m.SetObj(program.theta, 0)
	if keepSum {
		terms, total := program.weightedSumTerms()
		program.m.AddGE("weighted sum", x.incumbent.plan.weightedSum/total*(1-valueTolerance), terms...)
	}

	// Each replica costs its part of a device.
	for i, ti := range x.choice.allowedTemplates {
		for si, replicaVar := range program.replicaVars[i] {
			if replicaVar >= 0 {
				program.m.SetObj(replicaVar, 1/float64(x.catalogue.templates[ti].Stages[si].Share))
			}
		}
	}
	options := x.search.workLimits(survivorNodes)
	options.MaxIterations = 0
	plan, stats, err := program.solveFrom(ctx, x.search.solver, x.incumbent.plan, options, "the fewest devices")
	if err != nil {
		return err
	}
	if plan != nil && x.isAsGood(plan, keepSum) && x.catalogue.exclusiveDevices(plan) <= x.catalogue.exclusiveDevices(x.incumbent.plan) {
		x.incumbent.plan = plan
	}
	x.search.recordPhase("fewest devices", len(x.choice.allowedTemplates), stats)
	return nil
}

// isAsGood reports whether a plan reaches the best plan's objective and, with keepSum, its weighted sum of
// rates.
func (x *planPolisher) isAsGood(plan *replicaPlan, keepSum bool) bool {
	return plan.value >= x.incumbent.plan.value*(1-valueTolerance) && (!keepSum || plan.weightedSum >= x.incumbent.plan.weightedSum*(1-valueTolerance))
}
