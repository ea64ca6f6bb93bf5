package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/ranges"
	"inferplan/planner/gear/trials"
)

// planMostAccurate returns the most accurate plan under the SLO of problem p, on its devices. With a target accuracy it
// returns a plan that reaches it, or an InfeasibleError. It is called once if accuracy is the goal, and with many SLOs
// or numbers of devices if the latency or the price is minimised.
func (s *planSearch) planMostAccurate(ctx context.Context, p *cascades.Problem) (plan *trials.Plan, err error) {
	inputs, err := s.planInputsFor(ctx, p)
	if err == nil {
		plan, err = s.planFrom(ctx, p, inputs)
	}
	if err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	return plan, nil
}

// planFrom returns the most accurate plan of problem p from its inputs (chains and spaces of plans): it bounds the
// accuracy, plans on placements, raises the gears (cascades of ranges of rates) as far as the scope of the SLO and the
// measured rates allow, and fills in the plan's figures. It returns an InfeasibleError if some range has no gear or the
// target is not reached. p is the problem of the whole search with the SLO and devices to plan for now, and the plan's
// problem may have other weights of ranges.
func (s *planSearch) planFrom(ctx context.Context, p *cascades.Problem, inputs *planInputs) (*trials.Plan, error) {
	// Bound: a target above the bounds needs no search.
	bounds, total, chainUse, err := s.computeBounds(ctx, p, inputs)
	if err != nil {
		return nil, err
	}
	if p.MissesTarget(total + cascades.TargetTolerance) {
		return nil, p.TargetError(total)
	}
	attempts := &placementSearch{search: s, problem: p, rangeBounds: bounds, totalBound: total, firstError: inputs.wholeError, wholeOnly: len(inputs.chains) == 0}
	if err := attempts.boundSingleCascade(ctx, inputs.withStages); err != nil {
		return nil, err
	}

	// Plan on placements.
	if err := attempts.searchPlacements(ctx, inputs, chainUse); err != nil {
		return nil, err
	}

	// Make gears more accurate than a range alone allows. If the SLO is over all requests, a range may be late where others are in
	// time, and on measured rates a range need not hold its upper edge.
	plan, err := attempts.bestPlan, attempts.firstError // the error counts only if there is no plan
	if p.OverRequests {
		if plan, err = attempts.useSharedLateness(ctx, inputs.withStages); err != nil {
			return nil, err
		}
	}
	if plan == nil {
		return nil, err
	}
	if plan, err = ranges.ClimbRanges(ctx, plan, s.options.Seed, s.options.AnyPlan); err != nil {
		return nil, err
	}
	if p.MissesTarget(plan.Accuracy) { // if the search was interrupted, it does not show what can be reached: that is the error
		return nil, cmp.Or[error](ctx.Err(), &cascades.InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: plan.Accuracy})
	}

	// Fill in the outcome's figures.
	plan.RemoveIdlePipelines(plan.Problem)
	plan.CascadeCount, plan.Goal, plan.RunCount, plan.SingleCascadeBound = s.enumeratedCount, s.problem.Goal(), s.history.RunCount, attempts.singleCascadeBound
	plan.TrialBound = 0
	if isKnown := attempts.trialBound > 0; isKnown {
		plan.TrialBound = max(attempts.trialBound, plan.Accuracy)
	}
	plan.SetBounds(bounds, total)
	plan.SetValue()
	return plan, nil
}

// boundOneMoreDevice adds to the plan, for each kind of devices, the bound on the accuracy with one more device of it.
// The plan document shows its reader by these which kind of devices limits the accuracy.
func (s *planSearch) boundOneMoreDevice(ctx context.Context, plan *trials.Plan) error {
	available := s.problem.DeviceCounts()
	for k := range available {
		counts := slices.Clone(available)
		counts[k]++
		p := s.problem.WithDevices(counts)
		p.OverRequests = plan.Problem.OverRequests
		_, bound, err := s.boundsFor(ctx, p)
		if err != nil {
			return err
		}
		plan.OneMoreBounds = append(plan.OneMoreBounds, bound)
	}
	return nil
}

// placementSearch plans on one placement after another and keeps the best plan.
type placementSearch struct {
	search      *planSearch
	problem     *cascades.Problem
	rangeBounds []float64    // accuracy that no plan exceeds, by range
	totalBound  float64      // the same over all ranges
	bestPlan    *trials.Plan // nil before there is one
	firstError  error        // why the first placement without a plan has none

	wholeOnly          bool    // no member runs in stages
	singleCascadeBound float64 // accuracy that no plan of one cascade per range exceeds; 0 if not known
	trialBound         float64 // accuracy that no plan exceeds that passes trials; 0 if not known
}

// boundSingleCascade sets the bound on the accuracy of plans with one cascade per range of rates, which is lower than
// that of mixtures of cascades. It is for problems whose members (models of the family) may run in stages; whole models
// get theirs when placements are ranked. With an SLO over all requests ranges may be late, which this bound does not
// count, so none is set. Nor is it for the least latency. It returns an InfeasibleError if the bound misses the target.
func (t *placementSearch) boundSingleCascade(ctx context.Context, withStages *planspace.Space) (err error) {
	if t.wholeOnly || t.problem.OverRequests || t.search.problem.Goal() == cascades.LeastLatency {
		return nil
	}
	if t.singleCascadeBound, err = placement.BoundSingleCascades(ctx, withStages); err != nil {
		return err
	}
	isKnown := t.singleCascadeBound > 0 // 0 means that some range has no cascade
	if isKnown && t.problem.MissesTarget(t.singleCascadeBound+cascades.TargetTolerance) {
		return t.problem.TargetError(t.singleCascadeBound)
	}
	return nil
}

// searchPlacements plans with whole models, and then with members in stages if there are chains. It sets the best plan,
// and notes in firstError why the first placement without a plan has none. If no cascade of whole models is in time,
// that reason is there already (planFrom), and only stages are tried. chainUse is the share of the samples that each
// chain carries in the linear programs, which shows the chains that are worth placing. If the search is interrupted,
// the best plan so far, or an early one (one cascade for all ranges), stands.
func (t *placementSearch) searchPlacements(ctx context.Context, inputs *planInputs, chainUse []float64) (err error) {
	if inputs.wholeError == nil {
		err = t.planWholeModels(ctx, inputs.wholeModels)
	}
	if err == nil && !t.wholeOnly {
		err = t.planWithStages(ctx, inputs, chainUse)
	}
	t.bestPlan = t.search.orEarlyPlan(ctx, t.bestPlan) // the same plan, unless the search was interrupted without one
	_, err = trials.PlanOrError(ctx, t.bestPlan, err)
	return err
}

// useSharedLateness makes use of an SLO over all requests together: some ranges of rates may be late if others are in
// time, and one cascade may serve all ranges. It returns the best plan. If there is none, it returns the reason as an
// error. It changes the gears of the best plan so far. withStages is the space of plans whose cascades a single one is
// chosen from.
func (t *placementSearch) useSharedLateness(ctx context.Context, withStages *planspace.Space) (*trials.Plan, error) {
	plan := t.bestPlan
	if plan != nil {
		// If this is interrupted, the plan has the gears that it had before, and the error is dropped.
		_, err := trials.PlanOrError(ctx, plan, ranges.AllowLateRanges(ctx, plan))
		if err != nil {
			return nil, err
		}
		// Any plan will do. With a target it may still miss that, and a single cascade may not.
		if t.search.options.AnyPlan && !(t.problem.TargetAccuracy > 0) {
			return plan, nil
		}
	}
	return ranges.TrySingleCascade(ctx, t.problem, withStages, plan, t.firstError, t.search.history)
}

// isDone reports whether no other placement (models on devices) need be tried: there is a plan and any plan that
// reaches the target suffices, or no other plan can be more accurate by MinAccuracyGain.
func (t *placementSearch) isDone() bool {
	if t.bestPlan == nil || t.problem.TargetAccuracy > 0 || t.search.options.AnyPlan {
		return t.bestPlan != nil
	}
	bound := t.totalBound
	if t.singleCascadeBound > 0 {
		bound = t.singleCascadeBound
	}
	return !(bound > t.bestPlan.Accuracy+trials.MinAccuracyGain)
}

// maxPlacements returns the largest number of placements that are tried. For the least latency it is small,
// because then many plans are made and most of them fail.
func (t *placementSearch) maxPlacements() int {
	if t.search.problem.Goal() == cascades.LeastLatency {
		return latencyPlacements
	}
	return placement.FewPlacements
}

// accuracyToExceed returns the accuracy that the next plan must exceed to be worth completing, after triedBefore other
// placements. Ranking has already asked a placement for minPlacementGain without queueing; a plan with queueing may stay
// below that by MinAccuracyGain. limitIndex is the index of the limit on batches, in WithBatchLimits. Plans under shorter
// limits than the first must gain more, as shorter batches do less under overload. If any plan will do, it is 0.
func (t *placementSearch) accuracyToExceed(triedBefore, limitIndex int) float64 {
	switch {
	case t.bestPlan == nil:
		return 0
	case limitIndex > 0:
		return t.bestPlan.Accuracy + max(minPlacementGain(triedBefore)-trials.MinAccuracyGain, trials.ShorterBatchGain)
	}
	return t.bestPlan.Accuracy + minPlacementGain(triedBefore) - trials.MinAccuracyGain
}

// keepIfBetter takes the outcome of planning on a placement, a plan or an error. A plan that is more accurate than the
// best so far becomes the best. If the SLO is over all requests, so does one that is as accurate: later plans are made
// with shorter batches (WithBatchLimits), and climbing is to start on these. If the outcome is an InfeasibleError, or a
// plan below the target, firstError notes the first such reason. Only where measured rates are simulated a plan below
// the target counts, as climbing (ClimbRanges) may raise it. Any other error is returned.
func (t *placementSearch) keepIfBetter(plan *trials.Plan, err error) error {
	if cascades.IsInfeasible(err) {
		t.firstError = cmp.Or(t.firstError, err)
		return nil
	}
	if err != nil {
		return err
	}
	mayClimb := t.problem.SimulatesMeasured()
	switch {
	case t.problem.MissesTarget(plan.Accuracy) && !mayClimb:
		t.firstError = cmp.Or[error](t.firstError, &cascades.InfeasibleError{TargetAccuracy: t.problem.TargetAccuracy, BestAccuracy: plan.Accuracy})
	case t.bestPlan == nil || plan.Accuracy > t.bestPlan.Accuracy || t.problem.OverRequests && plan.Accuracy == t.bestPlan.Accuracy:
		t.bestPlan = plan
	}
	return nil
}

// planWithStages plans with members in stages (chains of devices): first with chains of a latency up to the SLO, then,
// if that leaves something to gain, with those of at most half the SLO, which leave time to queue. chainUse is the
// share of the samples that each chain of the first space carries in the linear programs.
func (t *placementSearch) planWithStages(ctx context.Context, inputs *planInputs, chainUse []float64) error {
	if t.isDone() {
		return nil
	}
	if err := t.planOnChains(ctx, inputs.withStages, chainUse); err != nil || t.isDone() {
		return err
	}
	space, err := inputs.withStages.WithStages(ctx, t.problem, planspace.UndominatedChains(inputs.chains, t.problem.SLO/2), inputs.stagedTimes)
	if err != nil { // no chain is that fast
		t.firstError = cmp.Or(t.firstError, err)
		return nil
	}
	if _, chainUse, err = space.RangeBounds(ctx); err != nil {
		return err
	}
	return t.planOnChains(ctx, space, chainUse)
}

// planOnChains plans on the best placement of every choice of chains (members in stages), and then on as many of the other
// placements of all choices as maxPlacements says, the best first, as far as planOn finds them worth it. A choice without a
// placement that moves few enough devices of what runs is left out. chainUse has the samples that each
// chain of the space carries in the linear programs, from which the choices are made.
func (t *placementSearch) planOnChains(ctx context.Context, space *planspace.Space, chainUse []float64) error {
	const limitIndex = 0 // batches are not limited further
	var others []*placement.RankedLayout
	for _, chosen := range space.ChainChoices(chainUse) {
		list, _, err := placement.RankPlacements(ctx, chosen, t.maxPlacements())
		if cascades.IsInfeasible(err) {
			t.firstError = cmp.Or(t.firstError, err)
			continue
		}
		if err == nil {
			err = t.planOn(ctx, list[:1], limitIndex) // with chains that of PlaceModels is always ranked
		}
		if err != nil {
			return err
		}
		others = append(others, list[1:]...)
	}
	slices.SortStableFunc(others, (*placement.RankedLayout).Compare)
	return t.planOn(ctx, others[:min(len(others), t.maxPlacements())], limitIndex)
}

// planWholeModels plans placements on which every member (model of the family) runs whole on single devices. It does so
// under each limit on the time of batches (WithBatchLimits): it ranks the placements by the accuracy that they allow
// without queueing, and makes plans on them by trials (simulated runs) until no other can be noticeably better. In the
// end settleByTrials may find a better plan, or show that there is none. It sets the best plan, the reason if there is
// none, and bounds.
func (t *placementSearch) planWholeModels(ctx context.Context, space *planspace.Space) error {
	// All ranked placements are candidates for the trials of single ranges at the end. otherBound bounds the accuracy of all other
	// placements: at first none (-1), infinity if some were not ranked.
	candidates := candidatePlacements{remainingRequests: t.search.proofBudget, otherBound: -1}
	for limitIndex, limited := range cascades.WithBatchLimits(space.Problem) {
		// Placements under the limits that are left out are no candidates, but the bound over all plans of single cascades holds for
		// them, too.
		if limitIndex > 0 && t.isDone() {
			candidates.otherBound = max(candidates.otherBound, t.singleCascadeBound)
			break
		}

		// Rank the placements under this limit.
		top, rankedAll, err := placement.RankPlacements(ctx, space.WithLimits(limited), t.maxPlacements())
		if cascades.IsInfeasible(err) { // none that moves so few devices of what runs
			t.firstError, candidates.otherBound = cmp.Or(t.firstError, err), math.Inf(1)
			continue
		}
		if err != nil {
			return err
		}

		// If all are ranked under the loosest limit, the accuracy of the first bounds all plans of one cascade per range, unless
		// members may run in stages or requests may be late, which ranking does not count.
		if rankedAll && limitIndex == 0 && t.wholeOnly && !t.problem.OverRequests {
			servesAllRanges := len(top[0].RangeAccuracies) == len(t.problem.RangeEdges)
			missesTarget := !servesAllRanges || t.problem.MissesTarget(top[0].Accuracy+cascades.TargetTolerance)
			if t.problem.TargetAccuracy > 0 && missesTarget {
				return t.problem.TargetError(top[0].Accuracy)
			}
			if servesAllRanges {
				t.singleCascadeBound = top[0].Accuracy
			}
		}

		// Look for an early plan, and try the placements.
		if limitIndex == 0 {
			if err := t.search.findEarlyPlan(ctx, top[0]); err != nil {
				return err
			}
		}
		candidates.add(top, t.maxPlacements())
		if !rankedAll {
			candidates.otherBound = math.Inf(1)
		}
		if err := t.planOn(ctx, top, limitIndex); err != nil {
			return err
		}
	}
	return t.settleByTrials(ctx, &candidates)
}

// planOn plans on ranked placements, the best first, by trials (simulated runs) of gears for each range of rates, until
// no further one is worth it, and updates the best plan. limitIndex is the index of the limit on batches (in
// WithBatchLimits) under which they were ranked; plans under later limits have to gain more. If it is interrupted, the
// early plan takes the gears that were done.
func (t *placementSearch) planOn(ctx context.Context, top []*placement.RankedLayout, limitIndex int) error {
	for triedBefore, ranked := range top {
		if t.isDone() || t.rulesOutRest(ranked, triedBefore) {
			break
		}
		trialPlacement := trials.NewPlacement(ranked.Layout, t.search.history, ranked.RangeAccuracies)
		minAccuracy := t.accuracyToExceed(triedBefore, limitIndex) // the first of the list has to gain less than the others
		plan, err := trialPlacement.PlanRanges(ctx, minAccuracy, t.search.options.Progress)
		if ctx.Err() != nil {
			t.search.earlyPlan.ImproveFrom(trialPlacement)
		}
		// The space of a layout with chains has a copy of the problem, whose fastest times of models are those in stages. The plan
		// gets the search's own problem.
		if err == nil && len(ranked.Layout.Space.ChosenChains) > 0 {
			plan.Problem = t.problem
		}
		if err := t.keepIfBetter(plan, err); err != nil {
			return err
		}
	}
	return nil
}

// rulesOutRest reports whether a ranked placement and all behind it, which allow less, are not worth a try after
// triedBefore others: it gains too little over the best plan or, if another placement has failed, cannot serve all
// ranges of rates or reach the target.
func (t *placementSearch) rulesOutRest(ranked *placement.RankedLayout, triedBefore int) bool {
	switch {
	case t.firstError != nil && len(ranked.RangeAccuracies) < len(t.problem.RangeEdges):
		return true
	case t.bestPlan == nil:
		return t.firstError != nil && t.problem.MissesTarget(ranked.Accuracy)
	}
	return ranked.Accuracy <= t.bestPlan.Accuracy+minPlacementGain(triedBefore)
}

// minPlacementGain returns the gain over the best plan that a placement must allow to be tried after some others.
func minPlacementGain(triedBefore int) float64 {
	if triedBefore > 0 {
		return trials.NextPlacementGain
	}
	return trials.MinAccuracyGain
}

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
