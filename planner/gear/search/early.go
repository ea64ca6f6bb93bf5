package search

import (
	"context"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/trials"
)

// A search whose trials take long has no plan for a long time. So it first looks for one cascade for all ranges:
// what passes at the highest rate also passes at lower ones. This early plan is returned if the search is
// interrupted before it has another.

// minEarlyRequests is the number of simulated requests, with one trial per range, from which on an early plan is
// made.
const minEarlyRequests = 500_000

// earlyLoads are the loads of the busiest device that are tried: one at which a cascade almost surely passes, and
// lower ones in case it does not.
var earlyLoads = []float64{.75, .5, .25}

// findEarlyPlan looks, on a ranked placement, for an early plan: one cascade of little load for all ranges of rates,
// which is returned if the search is interrupted before it finds another. For each of earlyLoads (shares of the busiest
// device's time at the highest rate), the highest first, it tries in simulation the most accurate cascade that stays
// below. It does nothing in a search whose trials are short (fewer than minEarlyRequests requests in all), that takes
// any plan, whose SLO is over all requests together, or that has an early plan.
func (s *planSearch) findEarlyPlan(ctx context.Context, ranked *placement.RankedLayout) error {
	space := ranked.Layout.Space
	p := space.Problem
	r := len(p.RangeEdges) - 1
	maxRate := p.RangeEdges[r]
	trialRequests := maxRate * trials.ShortestRunLength(p.SLO, maxRate).Seconds() * float64(r+1) // at least, if every range has one trial
	if s.earlyPlan != nil || s.options.AnyPlan || p.OverRequests || trialRequests < minEarlyRequests {
		return nil
	}

	// For each load try the most accurate cascade that stays below it. Cascades come by falling accuracy, so none is left after one
	// that misses the target. A bound on the load, which costs no program, is looked at before the load.
	trialPlacement := trials.NewPlacement(ranked.Layout, s.history, nil)
	for _, load := range earlyLoads {
		for _, cascade := range space.ByAccuracy {
			if p.MissesTarget(cascades.PlannedAccuracy(p, &space.Cascades[cascade])) {
				break
			}
			if trialPlacement.Layout.LoadLowerBound(cascade)*maxRate > load {
				continue
			}
			loaded, err := trialPlacement.Layout.LoadCascade(ctx, cascade)
			if err != nil {
				return err
			}
			if loaded.MaxLoad*maxRate > load {
				continue
			}
			trial, err := trialPlacement.TryCascade(ctx, cascade, loaded, maxRate)
			if err != nil {
				return err
			}
			if trial.Passed {
				s.earlyPlan = trialPlacement.NewPlan()
				for _, edge := range p.RangeEdges {
					s.earlyPlan.AddGear(trials.NewGear(p, loaded, edge, trial))
				}
				return nil
			}
			break // the cascade failed: go on with less load
		}
	}
	return nil
}

// orEarlyPlan returns a plan, or the early plan (one cascade of little load for all ranges) if the search was
// interrupted without one.
func (s *planSearch) orEarlyPlan(ctx context.Context, plan *trials.Plan) *trials.Plan {
	if plan == nil && ctx.Err() != nil && s.earlyPlan != nil {
		return s.earlyPlan
	}
	return plan
}
