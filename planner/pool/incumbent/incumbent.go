package incumbent

import (
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
)

// Incumbent is the best plan so far, by the goal of the search, with what is proven of all plans.
type Incumbent struct {
	Catalogue   *templates.Catalogue
	Goal        Goal
	Replan      *placement.RunningState // of the plan that runs; nil without one
	Plan        *placement.Plan         // nil as long as there is none
	ChoiceBound float64                 // proven over the templates of the wait choice under work
	OtherBound  float64                 // proven over the other wait choices
}

// Score returns the score of the best plan (the value by the goal, higher is better), in units. Without a plan
// it is the goal's NoPlanScore.
func (b *Incumbent) Score() float64 {
	if b.Plan == nil {
		return b.Goal.NoPlanScore()
	}
	return b.Goal.ScoreOf(b.Catalogue, b.Plan)
}

// Value returns the throughput of the best plan (the least rate per weight of a model), in units, whatever the goal of
// the search is. Without a plan it is 0.
func (b *Incumbent) Value() float64 {
	if b.Plan == nil {
		return 0
	}
	return b.Plan.Value / b.Catalogue.Units.Throughput
}

// ServesAll reports whether the best plan serves every model. Without a plan it returns false.
func (b *Incumbent) ServesAll() bool { return b.Plan != nil && b.Plan.Value > 0 }

// KeepIfBetter makes a plan the best one if it scores higher than the best so far, can be placed on devices, and, if a
// plan runs already, moves (makes load something) no more devices than allowed. If its shares do not fit devices one by
// one, it counts, and is kept, without the replicas that do not fit. A nil plan changes nothing. Every phase of a search
// hands its plans to it.
func (b *Incumbent) KeepIfBetter(plan *placement.Plan) {
	// The score is asked twice, because placing is costly and may lower it.
	isBetter := func() bool {
		return plan != nil && (b.Plan == nil || b.Goal.ScoreOf(b.Catalogue, plan) > b.Score())
	}
	if !isBetter() {
		return
	}
	plan, _, _ = placement.Place(b.Catalogue, plan, nil) // isBetter sees the placed plan from here on
	if isBetter() && b.Replan.AllowsMoves(plan) {
		b.Plan = plan
	}
}

// IsPlaceable reports whether a plan can be used as it is: its replicas fit the devices one by one and, if a plan runs
// already, it moves (makes load something) no more devices than allowed. It is asked of plans that shall replace the
// best one without a higher score.
func (b *Incumbent) IsPlaceable(plan *placement.Plan) bool {
	return placement.UnpackablePool(b.Catalogue, plan) < 0 && b.Replan.AllowsMoves(plan)
}

// ProvenBound returns the proven bound on the score of any plan: the larger one of the wait choice under work and of the
// others, rounded to a score that a plan can have, and at least the score of the best plan.
func (b *Incumbent) ProvenBound() float64 {
	return max(b.Goal.roundBound(max(b.ChoiceBound, b.OtherBound)), b.Score())
}

// LowerBound lowers the bound on plans of the wait choice under work to a proven one, if that is lower, but not below
// the score of the best plan.
func (b *Incumbent) LowerBound(proven float64) {
	b.ChoiceBound = max(min(b.ChoiceBound, proven), b.Score())
}

// Gap returns the relative distance of the best plan to the bound.
func (b *Incumbent) Gap() float64 { return b.Goal.RelativeGap(b.Score(), b.ProvenBound()) }

// ProvenGap is the relative gap that counts as proven.
const ProvenGap = 1e-6

// roundingSteps is the number of halvings by which RoundRelaxation looks for its factor.
const roundingSteps = 24

// RoundRelaxation makes a plan of the relaxation of a wait choice (the optimal rates with devices in fractions): all its
// rates times the largest factor up to 1 for which the replicas, rounded up, fit the devices. The plan becomes the best
// one if it is better. For the least price, which asks for fixed rates, the factor is 1. On large clusters the plan is
// close to the bound at once, elsewhere it is a start. If the problem has a time-shared pool, it does nothing.
func (b *Incumbent) RoundRelaxation(choice *relaxation.WaitChoice) {
	if b.Catalogue.Problem.HasTimeShared() {
		return
	}

	// planAt returns the plan of the rates, from units to requests/s, times a factor, or nil if it does not fit.
	planAt := func(factor float64) *placement.Plan {
		pipelines := make([]placement.PlanPipeline, len(choice.Relaxation.UsedTemplates))
		for i, ti := range choice.Relaxation.UsedTemplates {
			t := &b.Catalogue.Templates[ti]
			pipelines[i] = placement.PipelineFor(t, ti, factor*choice.Relaxation.UsedRates[i]*b.Catalogue.Units.ModelRPS[t.Model])
		}
		return placement.Recompute(b.Catalogue, pipelines)
	}
	if b.Goal.PoolCosts() != nil {
		b.KeepIfBetter(planAt(1))
		return
	}

	// Bisect the factor. Of the plans that fit take the best, which need not be that of the largest factor.
	var best *placement.Plan
	problem.Bisect(0, 1, roundingSteps, func(factor float64) bool {
		plan := planAt(factor)
		if plan != nil && plan.Value > 0 && (best == nil || plan.Value > best.Value) {
			best = plan
		}
		return plan != nil
	})
	b.KeepIfBetter(best)
}
