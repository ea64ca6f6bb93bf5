package pool

import (
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
)

// incumbent is the best plan so far, by the goal of the search, with what is proven of all plans.
type incumbent struct {
	catalogue   *templates.Catalogue
	goal        planGoal
	replan      *placement.RunningState // of the plan that runs; nil without one
	plan        *placement.Plan         // nil as long as there is none
	choiceBound float64                 // proven over the templates of the wait choice under work
	otherBound  float64                 // proven over the other wait choices
}

// score returns the score of the best plan (the value by the goal, higher is better), in units. Without a plan
// it is the goal's noPlanScore.
func (b *incumbent) score() float64 {
	if b.plan == nil {
		return b.goal.noPlanScore()
	}
	return b.goal.scoreOf(b.catalogue, b.plan)
}

// value returns the throughput of the best plan (the least rate per weight of a model), in units. Without a
// plan it is 0.
func (b *incumbent) value() float64 {
	if b.plan == nil {
		return 0
	}
	return b.plan.Value / b.catalogue.Units.Throughput
}

// servesAll reports whether the best plan serves every model. Without a plan it returns false.
func (b *incumbent) servesAll() bool { return b.plan != nil && b.plan.Value > 0 }

// keepIfBetter makes a plan the best one if it scores higher, is placeable and moves few enough devices. If its
// shares do not fit devices one by one, it counts without the replicas that are in the way.
func (b *incumbent) keepIfBetter(plan *placement.Plan) {
	isBetter := func() bool {
		return plan != nil && (b.plan == nil || b.goal.scoreOf(b.catalogue, plan) > b.score())
	}
	if !isBetter() {
		return
	}
	if plan, _, _ = placement.Place(b.catalogue, plan, nil); isBetter() && b.replan.AllowsMoves(plan) {
		b.plan = plan
	}
}

// isPlaceable reports whether a plan that scores no higher may still replace the best one: whether it packs into
// the devices and moves few enough of them.
func (b *incumbent) isPlaceable(plan *placement.Plan) bool {
	return placement.UnpackablePool(b.catalogue, plan) < 0 && b.replan.AllowsMoves(plan)
}

// provenBound returns the best proven bound on the score of any plan.
func (b *incumbent) provenBound() float64 {
	return max(b.goal.roundBound(max(b.choiceBound, b.otherBound)), b.score())
}

// lowerBound lowers the bound of the choice under work to a proven one, but not below the score of the best plan.
func (b *incumbent) lowerBound(proven float64) {
	b.choiceBound = max(min(b.choiceBound, proven), b.score())
}

// gap returns the relative distance of the best plan to the bound.
func (b *incumbent) gap() float64 { return b.goal.relativeGap(b.score(), b.provenBound()) }

// provenGap is the relative gap that counts as proven.
const provenGap = 1e-6

// roundingSteps is the number of halvings by which roundRelaxation looks for its factor.
const roundingSteps = 24

// roundRelaxation makes a plan of the relaxation of a wait choice: all its rates times the largest factor for which the
// replicas, rounded up, fit the devices. It keeps the plan if it is better than the best one. For the least
// price, which asks for fixed rates, the factor is 1. On large clusters the plan is close to the bound at once.
// Elsewhere it is a start.
func (b *incumbent) roundRelaxation(choice *relaxation.WaitChoice) {
	if b.catalogue.Problem.HasTimeShared() {
		return
	}

	// planAt returns the plan of the rates times a factor, or nil if it does not fit.
	planAt := func(factor float64) *placement.Plan {
		pipelines := make([]placement.PlanPipeline, len(choice.Relaxation.UsedTemplates))
		for i, ti := range choice.Relaxation.UsedTemplates {
			t := &b.catalogue.Templates[ti]
			pipelines[i] = placement.PipelineFor(t, ti, factor*choice.Relaxation.UsedRates[i]*b.catalogue.Units.ModelRPS[t.Model])
		}
		return placement.Recompute(b.catalogue, pipelines)
	}
	if b.goal.poolCosts() != nil {
		b.keepIfBetter(planAt(1))
		return
	}

	// Bisect the factor.
	lo, hi := 0.0, 1.0
	var best *placement.Plan
	for range roundingSteps {
		mid := (lo + hi) / 2
		if plan := planAt(mid); plan != nil {
			lo = mid
			if plan.Value > 0 && (best == nil || plan.Value > best.Value) {
				best = plan
			}
		} else {
			hi = mid
		}
	}
	b.keepIfBetter(best)
}
