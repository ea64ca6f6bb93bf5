package gear

import "context"

// A search whose trials take long has no plan for a long time. So it first looks for one cascade for all ranges:
// what passes at the highest rate also passes at lower ones. This early plan is returned if the search is
// interrupted before it has another.

// minEarlyRequests is the number of simulated requests, with one trial per range, from which on an early plan is
// made.
const minEarlyRequests = 500_000

// earlyLoads are the loads of the busiest device that are tried: one at which a cascade almost surely passes, and
// lower ones in case it does not.
var earlyLoads = []float64{.75, .5, .25}

// findEarlyPlan looks, on a placement, for an early plan: one cascade of little load for all ranges, which is
// returned if the search is interrupted before it finds a better one. For some loads, the highest first, it
// tries in simulation the most accurate cascade that stays below. Short searches do without.
func (s *planSearch) findEarlyPlan(ctx context.Context, ranked *rankedLayout) error {
	space := ranked.layout.space
	p := space.problem
	r := len(p.RangeEdges) - 1
	maxRate := p.RangeEdges[r]
	if s.earlyPlan != nil || s.options.AnyPlan || p.OverRequests || maxRate*shortestRunLength(p.SLO, maxRate).Seconds()*float64(r+1) < minEarlyRequests {
		return nil
	}

	// For each load try the most accurate cascade that stays below it.
	placement := newTrialPlacement(ranked.layout, s.history, nil)
	for _, load := range earlyLoads {
		for _, cascade := range space.byAccuracy {
			if p.missesTarget(plannedAccuracy(p, &space.cascades[cascade])) {
				break
			}
			if placement.layout.loadLowerBound(cascade)*maxRate > load {
				continue
			}
			loaded, err := placement.layout.loadCascade(ctx, cascade)
			if err != nil {
				return err
			}
			if loaded.maxLoad*maxRate > load {
				continue
			}
			trial, err := placement.tryCascade(ctx, cascade, loaded, maxRate)
			if err != nil {
				return err
			}
			if trial.Passed {
				s.earlyPlan = placement.singleCascadePlan(loaded, trial)
				return nil
			}
			break // go on with less load
		}
	}
	return nil
}

// singleCascadePlan returns the plan in which one cascade, which passed a trial at the highest rate, serves all
// ranges of rates.
func (d *trialPlacement) singleCascadePlan(s *loadedCascade, trial Trial) *Outcome {
	p := d.layout.space.problem
	plan := &Outcome{Problem: p, Configs: d.layout.configs, Chains: d.layout.chains, placement: d, FrontSize: 1}
	for r, edge := range p.RangeEdges {
		plan.Gears = append(plan.Gears, newGear(p, s, edge, trial))
		plan.Accuracy += p.RangeWeights[r] * plan.Gears[r].Accuracy
	}
	return plan
}

// improveFrom gives an early plan the better gears of those ranges that an interrupted search on the same
// placement had done. The receiver may be nil, if there was no early plan.
func (plan *Outcome) improveFrom(placement *trialPlacement) {
	if plan == nil || plan.placement.layout != placement.layout {
		return
	}
	for r := range placement.partialPlan.Gears {
		plan.Accuracy += plan.Problem.RangeWeights[r] * (placement.partialPlan.Gears[r].Accuracy - plan.Gears[r].Accuracy)
		plan.Gears[r] = placement.partialPlan.Gears[r]
	}
}

// orEarlyPlan returns a plan, or the early plan (one cascade of little load for all ranges) if the search was
// interrupted without one.
func (s *planSearch) orEarlyPlan(ctx context.Context, plan *Outcome) *Outcome {
	if plan == nil && ctx.Err() != nil && s.earlyPlan != nil {
		return s.earlyPlan
	}
	return plan
}
