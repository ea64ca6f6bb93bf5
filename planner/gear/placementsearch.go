package gear

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// cascadeCache keeps pruned cascades by the set of usable models, as bits.
type cascadeCache map[uint32]prunedCascades

// prunedCascades are the cascades of some models that are on some front.
type prunedCascades struct {
	cascades        []Cascade
	enumeratedCount int // number before pruning
}

// prunedOver returns the cascades over the usable models that no other one beats (more accurate, with no more
// samples at any model), with the number before that pruning. They are computed once for each set of models and
// kept in c, which may be nil.
func (c cascadeCache) prunedOver(ctx context.Context, p *Problem, usable []bool) (prunedCascades, error) {
	usableBits := uint32(0)
	for m, ok := range usable {
		if ok {
			usableBits |= 1 << m
		}
	}
	found, ok := c[usableBits]
	if !ok {
		enumerated := Enumerate(p.PlanningSamples, p.Grid, usable)
		pruned, err := pruneCascades(ctx, enumerated, len(p.Models))
		if err != nil {
			return found, err
		}
		found = prunedCascades{pruned, len(enumerated)}
		if c != nil {
			c[usableBits] = found
		}
	}
	return found, nil
}

// planInputs holds the two spaces in which a problem is planned: the space of whole models, and the one with members in stages.
type planInputs struct {
	problem     *Problem
	wholeModels *planSpace
	wholeError  error // why no cascade of whole models is in time; nil if some is
	withStages  *planSpace
	chains      []*Chain
	stagedTimes []time.Duration // by member: least time of a sample in stages; 0 if it cannot be cut
}

// planInputsFor returns what planning a problem starts from: its chains (members in stages) and the spaces of
// plans of whole models and with stages. Those of the last SLO are kept, because numbers of devices do not
// change them.
func (s *planSearch) planInputsFor(ctx context.Context, p *Problem) (*planInputs, error) {
	if inputs := s.lastInputs; inputs != nil && inputs.problem.SLO == p.SLO {
		return inputs.forProblem(p), nil
	}
	chains, stagedTimes, err := enumerateChains(p)
	if err != nil {
		return nil, err
	}
	inputs := &planInputs{problem: p, chains: chains, stagedTimes: stagedTimes}
	// If whole models have no plan, members in stages may have one.
	if inputs.wholeModels, inputs.wholeError = wholeModelSpace(ctx, p, s.solver, s.cache); inputs.wholeError != nil && (len(chains) == 0 || !isInfeasible(inputs.wholeError)) {
		return nil, inputs.wholeError
	}
	if inputs.withStages, err = inputs.wholeModels.withStages(ctx, p, undominatedChains(chains, p.SLO), stagedTimes); err != nil {
		return nil, cmp.Or(inputs.wholeError, err)
	}
	s.lastInputs, s.enumeratedCount = inputs, max(s.enumeratedCount, inputs.withStages.enumeratedCount)
	return inputs.forProblem(p), nil
}

// forProblem returns the inputs for a problem with other numbers of devices.
func (inputs *planInputs) forProblem(p *Problem) *planInputs {
	adapted := *inputs
	adapted.problem, adapted.wholeModels, adapted.withStages = p, inputs.wholeModels.forProblem(p), inputs.withStages.forProblem(p)
	return &adapted
}

// forProblem returns the space of plans for a problem with other numbers of devices. It keeps its own models,
// because those of members in stages have other times than the problem's.
func (space *planSpace) forProblem(p *Problem) *planSpace {
	adapted, problem := *space, *p
	problem.Models, problem.SLO = space.problem.Models, space.problem.SLO // the models of members in stages are not the problem's
	adapted.problem = &problem
	return &adapted
}

// boundSpace returns the space of plans that bounds are computed over. If every range must keep the SLO, it is
// that of the inputs. If all requests together must keep it, single ones may be late: the space has all
// cascades with any latency, with the least share of late requests of each. A range then uses no cascade that
// makes more of all requests late than the percentile allows.
func (s *planSearch) boundSpace(ctx context.Context, p *Problem, inputs *planInputs) (*planSpace, error) {
	if !p.OverRequests {
		return inputs.withStages, nil
	}

	// Make the space without an SLO once, and keep it.
	if s.laxInputs == nil {
		laxProblem := *s.problem
		_, laxProblem.SLO = laxProblem.latencyExtremes()
		lastInputs := s.lastInputs
		s.lastInputs = nil
		laxInputs, err := s.planInputsFor(ctx, &laxProblem)
		if s.lastInputs = lastInputs; err != nil {
			return nil, err
		}
		space := *laxInputs.withStages
		// The share of late requests is by the SLO that is asked for.
		tight := *space.problem
		tight.SLO = p.SLO
		for i := range space.cascades {
			space.minLateShares = append(space.minLateShares, minLateShare(&tight, &space.cascades[i]))
		}
		laxInputs.withStages, s.laxInputs = &space, laxInputs
	}
	return s.laxInputs.forProblem(p).withStages, nil
}

// computeBounds returns the accuracies that no plan exceeds, by range and over all ranges by weight. chainUse
// is the share of the samples that each chain (member in stages) carries in the linear programs, which shows
// what chains are worth.
func (s *planSearch) computeBounds(ctx context.Context, p *Problem, inputs *planInputs) (rangeBounds []float64, total float64, chainUse []float64, err error) {
	space, err := s.boundSpace(ctx, p, inputs)
	if err != nil {
		return nil, 0, nil, err
	}
	rangeBounds, chainUse, err = space.rangeBounds(ctx)
	if err == nil && space != inputs.withStages && len(inputs.chains) > 0 {
		_, chainUse, err = inputs.withStages.rangeBounds(ctx)
	}
	if total = p.weightedSum(rangeBounds); err != nil || !p.OverRequests {
		return rangeBounds, total, chainUse, err
	}

	// With an SLO over all requests ranges share the late ones.
	pool, err := p.poolDevices(ctx, inputs.withStages, space)
	if err != nil {
		return nil, 0, nil, err
	}
	total = pool.boundOverRequests(rangeBounds)
	if p.simulatesMeasured() { // a plan on measured rates need not hold the highest rate
		total = largerBound(total, pool.measuredBound())
	}
	return rangeBounds, total, chainUse, nil
}

// planMostAccurate returns the most accurate plan under the SLO of problem p. With a target accuracy it returns
// a plan that reaches it, or an InfeasibleError. It is called once for accuracy, and with other SLOs or numbers
// of devices if the latency or the price is minimised.
func (s *planSearch) planMostAccurate(ctx context.Context, p *Problem) (plan *Outcome, err error) {
	inputs, err := s.planInputsFor(ctx, p)
	if err == nil {
		plan, err = s.planFrom(ctx, p, inputs)
	}
	if err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	return plan, nil
}

// planFrom plans from the inputs: it bounds, plans on placements, raises the gears as far as the scope of the SLO
// and the measured rates allow, and fills in the outcome's figures.
func (s *planSearch) planFrom(ctx context.Context, p *Problem, inputs *planInputs) (*Outcome, error) {
	// Bound: a target above the bounds needs no search.
	bounds, total, chainUse, err := s.computeBounds(ctx, p, inputs)
	if err != nil {
		return nil, err
	}
	if p.missesTarget(total + targetTolerance) {
		return nil, p.targetError(total)
	}
	attempts := &placementSearch{search: s, problem: p, rangeBounds: bounds, totalBound: total, firstError: inputs.wholeError, wholeOnly: len(inputs.chains) == 0}
	if err := attempts.boundSingleCascade(ctx, inputs.withStages); err != nil {
		return nil, err
	}

	// Plan on placements.
	if err := attempts.searchPlacements(ctx, inputs, chainUse); err != nil {
		return nil, err
	}

	// Raise gears: ranges may be late together, and measured rates may allow more than their upper edges.
	plan, err := attempts.bestPlan, attempts.firstError
	if p.OverRequests {
		if plan, err = attempts.useSharedLateness(ctx, inputs.withStages); err != nil {
			return nil, err
		}
	}
	if plan == nil {
		return nil, err
	}
	if plan, err = climbRanges(ctx, plan, s.options.Seed, s.options.AnyPlan); err != nil {
		return nil, err
	}
	if p.missesTarget(plan.Accuracy) { // an interrupted search does not show what can be reached
		return nil, cmp.Or[error](ctx.Err(), &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: plan.Accuracy})
	}

	// Fill in the outcome's figures.
	plan.removeIdlePipelines(plan.Problem)
	plan.CascadeCount, plan.Goal, plan.RunCount, plan.SingleCascadeBound = s.enumeratedCount, s.problem.Goal(), s.history.runCount, attempts.singleCascadeBound
	if plan.TrialBound = 0; attempts.trialBound > 0 {
		plan.TrialBound = max(attempts.trialBound, plan.Accuracy)
	}
	plan.setBounds(bounds, total)
	plan.setValue()
	return plan, nil
}

// setBounds sets the bounds on accuracy, of the ranges and of the whole plan. A range's bound is at least its
// own accuracy, because the bound of all ranges lets one exceed its own.
func (plan *Outcome) setBounds(bounds []float64, total float64) {
	for r := range plan.Gears {
		plan.Gears[r].Bound = max(bounds[r], plan.Gears[r].Accuracy)
	}
	plan.Bound = total
}

// setValue sets the plan's value to its accuracy, with the best bound on it that is known, and whether that
// proves the plan to be the best. Searches for the least latency or price set other values afterwards.
func (plan *Outcome) setValue() {
	if plan.Value, plan.ValueBound = plan.Accuracy, plan.Bound; plan.Goal != MostAccurate {
		return
	}
	if plan.SingleCascadeBound > 0 {
		plan.ValueBound = min(plan.Bound, plan.SingleCascadeBound)
	}
	plan.IsProved = plan.Value >= plan.ValueBound-sumTolerance
}

// settledByTrials reports whether trials leave no better plan: by accuracy none that gains nextPlacementGain or
// more, by price none that is cheaper.
func (plan *Outcome) settledByTrials() bool {
	if plan.Goal == MostAccurate {
		return plan.TrialBound > 0 && plan.TrialBound < plan.Value+nextPlacementGain
	}
	return plan.TrialBound > 0 && plan.TrialBound >= plan.Value
}

// boundsFor returns the accuracies that no plan of a problem exceeds, by range and over all ranges.
func (s *planSearch) boundsFor(ctx context.Context, p *Problem) (bounds []float64, total float64, err error) {
	inputs, err := s.planInputsFor(ctx, p)
	if err == nil {
		bounds, total, _, err = s.computeBounds(ctx, p, inputs)
	}
	return bounds, total, err
}

// boundOneMoreDevice computes, for each kind, the bound on the accuracy with one more device of it, for the
// limits that the plan names to its reader.
func (s *planSearch) boundOneMoreDevice(ctx context.Context, plan *Outcome) error {
	available := s.problem.deviceCounts()
	for k := range available {
		counts := slices.Clone(available)
		counts[k]++
		p := s.problem.withDevices(counts)
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
	problem     *Problem
	rangeBounds []float64 // accuracy that no plan exceeds, by range
	totalBound  float64   // the same over all ranges
	bestPlan    *Outcome  // nil before there is one
	firstError  error     // why the first placement without a plan has none

	wholeOnly          bool    // no member runs in stages
	singleCascadeBound float64 // accuracy that no plan of one cascade per range exceeds; 0 if not known
	trialBound         float64 // accuracy that no plan exceeds that passes trials; 0 if not known
}

// boundSingleCascade sets the bound on accuracy of plans with one cascade per range, which is lower than that
// of mixtures of cascades. It is for problems whose members may run in stages. It returns an InfeasibleError if
// that bound misses the target.
func (t *placementSearch) boundSingleCascade(ctx context.Context, withStages *planSpace) (err error) {
	if t.wholeOnly || t.problem.OverRequests || t.search.problem.Goal() == LeastLatency {
		return nil
	}
	if t.singleCascadeBound, err = boundSingleCascades(ctx, withStages); err != nil {
		return err
	}
	if t.singleCascadeBound > 0 && t.problem.missesTarget(t.singleCascadeBound+targetTolerance) {
		return t.problem.targetError(t.singleCascadeBound)
	}
	return nil
}

// searchPlacements plans with whole models, then with members in stages. If the search is interrupted, the best
// plan so far, or an early one, stands.
func (t *placementSearch) searchPlacements(ctx context.Context, inputs *planInputs, chainUse []float64) (err error) {
	if inputs.wholeError == nil {
		err = t.planWholeModels(ctx, inputs.wholeModels)
	}
	if err == nil && !t.wholeOnly {
		err = t.planWithStages(ctx, inputs, chainUse)
	}
	t.bestPlan = t.search.orEarlyPlan(ctx, t.bestPlan)
	_, err = planOrError(ctx, t.bestPlan, err)
	return err
}

// useSharedLateness makes use of an SLO over all requests together: some ranges may be late if others are in
// time, and one cascade may serve all ranges. It returns the best plan. If there is none, it returns why.
func (t *placementSearch) useSharedLateness(ctx context.Context, withStages *planSpace) (*Outcome, error) {
	plan := t.bestPlan
	if plan != nil {
		err := plan.allowLateRanges(ctx)
		if _, err := planOrError(ctx, plan, err); err != nil {
			return nil, err
		}
		if t.search.options.AnyPlan && !(t.problem.TargetAccuracy > 0) {
			return plan, nil
		}
	}
	return trySingleCascade(ctx, t.problem, withStages, plan, t.firstError, t.search.history)
}

// isDone reports whether no other placement (models on devices) need be tried: there is a plan and any plan
// suffices, or no other plan can be noticeably better.
func (t *placementSearch) isDone() bool {
	if t.bestPlan == nil || t.problem.TargetAccuracy > 0 || t.search.options.AnyPlan {
		return t.bestPlan != nil
	}
	bound := t.totalBound
	if t.singleCascadeBound > 0 {
		bound = t.singleCascadeBound
	}
	return !(bound > t.bestPlan.Accuracy+minAccuracyGain)
}

// maxPlacements returns the largest number of placements that are tried. For the least latency it is small,
// because then many plans are made and most of them fail.
func (t *placementSearch) maxPlacements() int {
	if t.search.problem.Goal() == LeastLatency {
		return latencyPlacements
	}
	return fewPlacements
}

// accuracyToExceed returns the accuracy that the next plan must exceed to be worth completing, after
// triedBefore other placements and with the batch limit at an index of withBatchLimits (0 is none). If any plan
// will do, it is 0.
func (t *placementSearch) accuracyToExceed(triedBefore, limitIndex int) float64 {
	switch {
	case t.bestPlan == nil:
		return 0
	case limitIndex > 0:
		return t.bestPlan.Accuracy + max(minPlacementGain(triedBefore)-minAccuracyGain, shorterBatchGain)
	}
	return t.bestPlan.Accuracy + minPlacementGain(triedBefore) - minAccuracyGain
}

// keepIfBetter keeps a plan that is better than the best so far; without a plan it notes the error. If the SLO
// is over all requests, it also keeps one that is as good, because its batches are shorter. A plan below the
// target is kept only if it may still climb, on measured rates.
func (t *placementSearch) keepIfBetter(plan *Outcome, err error) error {
	if isInfeasible(err) {
		t.firstError = cmp.Or(t.firstError, err)
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case t.problem.missesTarget(plan.Accuracy) && !t.problem.simulatesMeasured():
		t.firstError = cmp.Or[error](t.firstError, &InfeasibleError{TargetAccuracy: t.problem.TargetAccuracy, BestAccuracy: plan.Accuracy})
	case t.bestPlan == nil || plan.Accuracy > t.bestPlan.Accuracy || t.problem.OverRequests && plan.Accuracy == t.bestPlan.Accuracy:
		t.bestPlan = plan
	}
	return nil
}

// planWithStages plans with members in stages (chains): first with chains up to the SLO long, then, if that
// leaves something to gain, with those of at most half the SLO, which leave time to queue.
func (t *placementSearch) planWithStages(ctx context.Context, inputs *planInputs, chainUse []float64) error {
	if t.isDone() {
		return nil
	}
	if err := t.planOnChains(ctx, inputs.withStages, chainUse); err != nil || t.isDone() {
		return err
	}
	space, err := inputs.withStages.withStages(ctx, t.problem, undominatedChains(inputs.chains, t.problem.SLO/2), inputs.stagedTimes)
	if err != nil { // no chain is that fast
		t.firstError = cmp.Or(t.firstError, err)
		return nil
	}
	if _, chainUse, err = space.rangeBounds(ctx); err != nil {
		return err
	}
	return t.planOnChains(ctx, space, chainUse)
}

// planOnChains plans on the best placement of every choice of chains (members in stages), and then on the
// others that may be noticeably better. chainUse has the samples that each chain carries in the linear program.
func (t *placementSearch) planOnChains(ctx context.Context, space *planSpace, chainUse []float64) error {
	var others []*rankedLayout
	for _, chosen := range space.chainChoices(chainUse) {
		list, _, err := chosen.rankPlacements(ctx, t.maxPlacements())
		if err == nil {
			err = t.planOn(ctx, list[:1], 0)
		}
		if err != nil {
			return err
		}
		others = append(others, list[1:]...)
	}
	slices.SortStableFunc(others, (*rankedLayout).compare)
	return t.planOn(ctx, others[:min(len(others), t.maxPlacements())], 0)
}

// chainChoices returns spaces of plans that differ in the chains (members in stages) that may be placed: those
// that the linear program uses; these and chains for devices that a member does not fit on whole; and each
// chain alone.
func (space *planSpace) chainChoices(chainUse []float64) (choices []*planSpace) {
	usedChains := space.mostUsedChains(chainUse)
	allChains := append(slices.Clone(usedChains), space.chainsForMemory()...)
	chainLists := [][]*Chain{usedChains, allChains}
	for c := range allChains {
		chainLists = append(chainLists, allChains[c:c+1])
	}
	for _, chains := range chainLists {
		choice := *space
		choice.chooseChains(chains)
		if len(choice.chosenChains) > 0 && !slices.ContainsFunc(choices, func(other *planSpace) bool { return slices.Equal(other.chosenChains, choice.chosenChains) }) {
			choices = append(choices, &choice)
		}
	}
	return choices
}
