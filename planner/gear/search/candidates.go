package search

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/trials"
)

// A plan is a set of cascades that pass trials, one per range, so trials can also rule better plans out. For every
// placement and range the most accurate cascade that the devices have time for is tried. If it fails, the next one
// bounds the range. So the bound of a placement falls trial by trial, until it is not above the plan, or until all
// ranges have passed, and then the placement has a better plan. The placement with the highest bound is always
// next (best first). If the search stops early, the bound of the next placement is still a bound.
//
// It bounds the plans that this planner accepts, by the streams of its trials and the splits that it tries. It
// does not bound what devices can do.

// maxProofRequests limits the simulated requests of all proofs of a solve.
const maxProofRequests = 4_000_000

// candidatePlacements are placements that may have a better plan than the present one.
type candidatePlacements struct {
	candidates        []*candidatePlacement
	otherBound        float64 // bound of the placements that are not candidates
	remainingRequests *int    // number of requests that may still be simulated; nil if no proof is wanted
}

// candidatePlacement is a placement whose ranges are tried one by one.
type candidatePlacement struct {
	layout        *placement.Layout
	trials        *trials.Placement     // nil until a range is tried
	nextCascade   []int                 // by range: index, in the order by accuracy, of the most accurate cascade that is not ruled out
	gears         []*trials.PlannedGear // by range: the gear of that cascade, if it has passed; nil before it is tried
	accuracyBound float64               // weighted accuracy that the ranges reach at most; below 0 if a range has no cascade
}

// add adds those of some ranked placements (models on devices), the best first, that serve all ranges of rates, as
// candidates for trials of single ranges. requested is the number of placements that the ranking was asked for. If
// there are as many, the ranking may have left out others, which are at most as good as the last one: otherBound, the
// bound on the placements that are no candidates, is raised to its accuracy.
func (l *candidatePlacements) add(best []*placement.RankedLayout, requested int) {
	for _, ranked := range best {
		space := ranked.Layout.Space
		if len(ranked.RangeAccuracies) < len(space.Problem.RangeEdges) {
			return // no later placement serves all ranges, as those that serve more come first
		}
		candidate := &candidatePlacement{layout: ranked.Layout, accuracyBound: ranked.Accuracy, gears: make([]*trials.PlannedGear, len(ranked.RangeAccuracies))}
		for _, maxAccuracy := range ranked.RangeAccuracies {
			// Find the first cascade, by falling accuracy, that is no more accurate than the placement allows. More accurate ones compare
			// as -1, and all others as 1, so that of equal ones the first is found.
			index, _ := slices.BinarySearchFunc(space.ByAccuracy, maxAccuracy, func(i int, maxAccuracy float64) int {
				return cmp.Or(cmp.Compare(maxAccuracy, cascades.PlannedAccuracy(space.Problem, &space.Cascades[i])), 1)
			})
			candidate.nextCascade = append(candidate.nextCascade, index)
		}
		l.candidates = append(l.candidates, candidate)
	}
	if len(best) == requested {
		l.otherBound = max(l.otherBound, best[requested-1].Accuracy)
	}
}

// maxRangeAccuracy returns the accuracy that a range has at most.
func (v *candidatePlacement) maxRangeAccuracy(r int) float64 {
	space := v.layout.Space
	return cascades.PlannedAccuracy(space.Problem, &space.Cascades[space.ByAccuracy[v.nextCascade[r]]])
}

// mostPromisingRange returns the index of the range of rates, of those without a passed trial, whose best remaining
// cascade adds the most accuracy, by weight, to the plan, which may be nil. If all ranges have passed, it returns -1.
func (v *candidatePlacement) mostPromisingRange(plan *trials.Plan) int {
	bestRange, maxGain := -1, math.Inf(-1)
	for r := range v.nextCascade {
		gain := v.maxRangeAccuracy(r)
		if plan != nil {
			gain -= plan.Gears[r].Accuracy
		}
		if gain *= v.layout.Space.Problem.RangeWeights[r]; v.gears[r] == nil && gain > maxGain {
			bestRange, maxGain = r, gain
		}
	}
	return bestRange
}

// tryNext tries, in simulation, the most accurate cascade of range r that is not ruled out on this placement. If it
// passes, it becomes the gear of the range. If the devices have no time for it, or it fails, the bound of the range
// falls to the cascade after it, and that of the placement with it. It returns the number of simulated requests, which
// the caller takes off its budget.
func (v *candidatePlacement) tryNext(ctx context.Context, r int, history *trials.History) (simulatedRequests int, err error) {
	if v.trials == nil {
		v.trials = trials.NewPlacement(v.layout, history, nil)
	}
	space, requestsBefore := v.layout.Space, v.trials.Simulator.TrialRequests

	// Try the cascade.
	cascade, edge := space.ByAccuracy[v.nextCascade[r]], space.Problem.RangeEdges[r]
	hasTime, err := v.layout.HasTimeFor(ctx, cascade, edge)
	if err == nil && hasTime {
		v.gears[r], err = v.tryCascade(ctx, cascade, edge)
	}
	if err != nil {
		return 0, err
	}

	// It failed: lower the bound.
	if v.gears[r] == nil {
		v.nextCascade[r]++
		v.accuracyBound = -1 // no cascade of the range is left
		if v.nextCascade[r] < len(space.ByAccuracy) {
			v.accuracyBound = 0
			for i := range v.nextCascade {
				v.accuracyBound += space.Problem.RangeWeights[i] * v.maxRangeAccuracy(i)
			}
		}
	}
	return v.trials.Simulator.TrialRequests - requestsBefore, nil
}

// tryCascade tries a cascade (an index of the space) at a rate in simulation, with the splits of its work over the
// devices that Placement.TrySplits has, and returns its gear with the split that passed. If it misses the SLO, the
// result is nil.
func (v *candidatePlacement) tryCascade(ctx context.Context, cascade int, rate float64) (*trials.PlannedGear, error) {
	loaded, err := v.layout.LoadCascade(ctx, cascade)
	if err != nil {
		return nil, err
	}
	trial, err := v.trials.TryCascade(ctx, cascade, loaded, rate)
	if err != nil || !trial.Passed {
		return nil, err
	}
	gear := trials.NewGear(v.layout.Space.Problem, loaded, rate, trial)
	return &gear, nil
}

// plan returns the plan of a candidate placement, once a cascade of each range has passed a trial.
func (v *candidatePlacement) plan() *trials.Plan {
	plan := v.trials.NewPlan()
	for _, gear := range v.gears {
		plan.AddGear(*gear)
	}
	return plan
}

// findBetterPlan looks, by trials of single ranges of rates on the candidate placements, for a plan that is better than
// the present one by NextPlacementGain or, if plan is nil, that reaches the target. Each failed trial lowers the bound
// of its placement, and a placement all of whose ranges have passed is the better plan. If no placement can have one,
// or the budget of requests is used up, best is nil. bound is the largest bound that is left, of candidates or other
// placements: no plan that passes trials is more accurate.
func (l *candidatePlacements) findBetterPlan(ctx context.Context, plan *trials.Plan, target float64, history *trials.History) (best *trials.Plan, bound float64, err error) {
	minAccuracy := target - cascades.SumTolerance
	if plan != nil {
		minAccuracy = plan.Accuracy + trials.NextPlacementGain
	}
	for {
		// Stop if no placement can be better, or no requests are left.
		candidate := l.mostPromising()
		switch {
		case candidate == nil:
			return nil, l.otherBound, nil
		case candidate.accuracyBound < minAccuracy || *l.remainingRequests <= 0:
			return nil, max(l.otherBound, candidate.accuracyBound), nil
		}

		// Try the most promising range of the most promising placement.
		r := candidate.mostPromisingRange(plan)
		if allPassed := r < 0; allPassed {
			return candidate.plan(), max(l.otherBound, candidate.accuracyBound), nil
		}
		simulated, err := candidate.tryNext(ctx, r, history)
		if err != nil {
			return nil, 0, err
		}
		*l.remainingRequests -= simulated
	}
}

// mostPromising returns the placement with the highest bound on its accuracy, or nil if there are none.
func (l *candidatePlacements) mostPromising() (best *candidatePlacement) {
	for _, v := range l.candidates {
		if best == nil || v.accuracyBound > best.accuracyBound {
			best = v
		}
	}
	return best
}

// settleByTrials runs after the search over placements. By trials of single ranges of rates it finds an accuracy that
// no plan which passes trials exceeds, and sets trialBound to it. It may also find a better plan, or one that reaches
// the target if there was none. If there is still no plan, it notes in the first error whether the trials prove that
// there is none.
func (t *placementSearch) settleByTrials(ctx context.Context, candidates *candidatePlacements) error {
	// Trials of single ranges prove something only if the SLO is for every range and no member runs in stages. They need requests to
	// simulate, and a bound on all other placements, which is infinite if some were not ranked.
	isProvable := t.wholeOnly && !t.problem.OverRequests
	allRanked := !math.IsInf(candidates.otherBound, 1)
	mayBeBetter := t.bestPlan == nil || t.problem.TargetAccuracy == 0 // a plan that reaches the target suffices
	if candidates.remainingRequests == nil || !isProvable || !allRanked || !mayBeBetter {
		return nil
	}
	best, bound, err := candidates.findBetterPlan(ctx, t.bestPlan, t.problem.TargetAccuracy, t.search.history)
	if err != nil {
		return err
	}
	if best != nil {
		t.bestPlan = best
	}
	t.trialBound = bound
	if infeasible, ok := errors.AsType[*cascades.InfeasibleError](t.firstError); ok && t.bestPlan == nil {
		infeasible.ByTrials = t.problem.MissesTarget(bound)
	}
	return nil
}
