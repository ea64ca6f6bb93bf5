package pool

import (
	"context"
	"fmt"

	"inferplan/solver/milp"
)

// planPolisher improves the best plan of a search by secondary criteria, at the objective that it has reached:
// few devices that move, a large weighted sum of rates, few devices, little latency.
type planPolisher struct{ *planSearch }

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

// solveFromBest solves a program, with the best plan as its start. If it finds no plan, the plan is nil.
func (x *planPolisher) solveFromBest(ctx context.Context, program *integerProgram, options milp.Options, aim string) (*replicaPlan, milp.Stats, error) {
	options.Start = program.startPoint(x.bestPlan)
	sol, err := x.solver.Solve(ctx, program.m, options)
	if err != nil {
		return nil, milp.Stats{}, fmt.Errorf("solving for %s: %w", aim, err)
	}
	if !sol.Feasible() {
		return nil, sol.Stats, nil
	}
	return program.readPlan(sol), sol.Stats, nil
}

// valueTolerance is the relative difference up to which values count as equal: adding up rates in another order
// changes them by so much.
const valueTolerance = 1e-9

// sameValueProgram returns the program of the plans over a set of templates that reach the best objective.
func (x *planPolisher) sameValueProgram(templates []int) *integerProgram {
	return x.newProgram(templates, x.bestValue(), x.bestValue()*(1-valueTolerance))
}

// fewestMoves looks, among the plans that are good enough, for one that moves few devices.
func (x *planPolisher) fewestMoves(ctx context.Context) error {
	if x.replan == nil || x.usesBundles() || ctx.Err() != nil {
		return nil
	}
	movedNow := x.replan.movedDevices(x.bestPlan.pipelines)
	if movedNow == 0 || x.preferRunning(ctx) {
		return nil
	}

	// A program over the small set of templates that minimises the moves.
	minValue := min(x.bestValue(), x.provenBound()*(1-x.options.Gap)) * (1 - 1e-9)
	program := x.newProgram(unionTemplates(x.pickTemplates(x.templatesByLoss(), x.lp.usedTemplates, x.templatesPerModel()), x.bestPlan.pipelines, x.replan.pipelines), max(x.choiceBound, minValue), minValue)
	program.limitMoves(x.replan, movedNow)
	program.m.SetSense(milp.Minimize)
	program.m.SetObj(program.theta, 0)
	program.m.SetObj(program.movedVar, 1)
	options := x.workLimits(moveNodes)
	options.AbsGap = 0.5
	found, stats, err := x.solveFromBest(ctx, program, options, "the fewest devices that move")
	if err != nil {
		return err
	}
	if found != nil && found.value >= x.unitsToRate(minValue)*(1-1e-9) && x.replan.movedDevices(found.pipelines) < movedNow && x.unpackablePool(found) < 0 {
		x.bestPlan = found
	}
	x.recordPhase("fewest moves", len(program.templateSet), stats)
	return nil
}

// preferRunning goes back to the running plan if a better plan is better by less than the gap, and sums of
// losses prove that the running one is good enough as well. It reports whether it did.
func (x *planPolisher) preferRunning(ctx context.Context) bool {
	running, improved := x.recomputePlan(x.replan.pipelines), x.bestPlan
	if x.stoppedBy == milp.StoppedByWork || running == nil || running.value < improved.value*(1-x.options.Gap) || !x.isPlaceable(running) {
		return false
	}
	x.bestPlan = running
	(&planImprover{x.planSearch}).boundByLosses(lossWorkSteps)
	isEnough := x.goal.relativeGap(x.goal.scoreOf(x.templateCatalogue, running), x.provenBound()) <= x.options.Gap
	if x.keepIfBetter(improved); isEnough {
		x.bestPlan = running
	}
	x.shouldStop(ctx)
	return isEnough
}

// largestSum looks, among the plans of the best objective, for the one with the largest weighted sum of rates,
// so that no model is left with needless slack.
func (x *planPolisher) largestSum(ctx context.Context) error {
	if len(x.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	program := x.sameValueProgram(unionTemplates(x.pickTemplates(x.templatesByLoss(), x.lp.usedTemplates, x.templatesPerModel()), x.bestPlan.pipelines))
	if x.incomplete || x.usesBundles() || x.replan != nil || x.options.Hurry {
		program.fixReplicas(x.bestPlan) // the plan stays as it is: only its idle devices are used
	}
	if x.replan != nil {
		program.limitMoves(x.replan, x.replan.movedDevices(x.bestPlan.pipelines))
	}
	return x.solveLargestSum(ctx, program, 1e-3, sumNodes)
}

// largestSumOver looks, among the plans of the best objective over a set of templates, for the one with the
// largest weighted sum of rates.
func (x *planPolisher) largestSumOver(ctx context.Context, set []int, gap float64, nodes int64) error {
	if len(x.Models) < 2 || ctx.Err() != nil {
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
	options := x.workLimits(nodes)
	options.Gap = gap
	plan, stats, err := x.solveFromBest(ctx, program, options, "the largest weighted sum")
	if err != nil {
		return err
	}
	if plan != nil && plan.value >= x.bestPlan.value*(1-1e-12) && plan.weightedSum > x.bestPlan.weightedSum && x.isPlaceable(plan) {
		x.bestPlan = plan
	}
	x.recordPhase("weighted sum", len(program.templateSet), stats)
	return nil
}

// weightedSumTerms returns the weighted sum of rates as terms of a program, in parts of total: what one unit of
// every model's rate gives.
func (q *integerProgram) weightedSumTerms() (terms []milp.Term, total float64) {
	for d := range q.Models {
		total += q.Models[d].Weight * q.units.modelRPS[d]
	}
	for i, ti := range q.templateSet {
		d := q.templates[ti].Model
		terms = append(terms, milp.Term{Var: q.rateVars[i], Coef: q.Models[d].Weight * q.units.modelRPS[d] / total})
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
	program := x.sameValueProgram(x.allowedTemplates)
	program.m.SetSense(milp.Minimize)
	program.m.SetObj(program.theta, 0)
	if keepSum {
		terms, total := program.weightedSumTerms()
		program.m.AddGE("weighted sum", x.bestPlan.weightedSum/total*(1-valueTolerance), terms...)
	}

	// Each replica costs its part of a device.
	for i, ti := range x.allowedTemplates {
		for si, replicaVar := range program.replicaVars[i] {
			if replicaVar >= 0 {
				program.m.SetObj(replicaVar, 1/float64(x.templates[ti].Stages[si].Share))
			}
		}
	}
	options := x.workLimits(survivorNodes)
	options.MaxIterations = 0
	plan, stats, err := x.solveFromBest(ctx, program, options, "the fewest devices")
	if err != nil {
		return err
	}
	if plan != nil && x.isAsGood(plan, keepSum) && x.exclusiveDevices(plan) <= x.exclusiveDevices(x.bestPlan) {
		x.bestPlan = plan
	}
	x.recordPhase("fewest devices", len(x.allowedTemplates), stats)
	return nil
}

// isAsGood reports whether a plan reaches the best plan's objective and, with keepSum, its weighted sum of
// rates.
func (x *planPolisher) isAsGood(plan *replicaPlan, keepSum bool) bool {
	return plan.value >= x.bestPlan.value*(1-valueTolerance) && (!keepSum || plan.weightedSum >= x.bestPlan.weightedSum*(1-valueTolerance))
}
