package gear

import (
	"cmp"
	"context"
	"slices"
	"sort"
)

// One cascade for all ranges is a plan, too. If the SLO is over all requests, it may be more accurate than gears:
// rates may vary around the edge of two ranges or seldom reach the highest range, and each gear must hold its
// upper edge forever.

// trySingleCascade looks, for an SLO over all requests, for one cascade for all ranges, and returns its plan if
// that is more accurate than the plan found so far, or if there is none. wholeErr is why the search has found
// none.
func trySingleCascade(ctx context.Context, p *Problem, space *planSpace, plan *Outcome, wholeErr error, history *trialHistory) (*Outcome, error) {
	if wholeErr != nil && !isInfeasible(wholeErr) {
		return nil, wholeErr
	}
	toBeat := plan
	if plan != nil && p.missesTarget(plan.Accuracy) {
		toBeat = nil
	}
	single, err := bestCascadePlan(ctx, space.withLimits(p), plan, toBeat, history)
	if single == nil && plan == nil {
		return nil, cmp.Or(err, wholeErr)
	}
	return planOrError(ctx, cmp.Or(single, plan), err)
}

// isBetterThan reports whether a plan of one cascade is more accurate than another plan: as planned or, if both
// were simulated on the measured rates, as simulated. On those a plan's gears may serve other shares of the
// requests than its weights state: at low rates a queue delays the switch to a slower gear.
func (plan *Outcome) isBetterThan(other *Outcome) bool {
	return other == nil || plan.Accuracy > other.Accuracy+minAccuracyGain || other.measuredAccuracy > 0 && plan.measuredAccuracy > other.measuredAccuracy+minAccuracyGain
}

// SingleCascadeAccuracy returns the accuracy of one cascade for all ranges that keeps the SLO over all measured
// requests together, if that is more than the accuracy of the plan, whose SLO is for every range. Else it returns
// 0. Such a cascade is late or unstable at the upper edge of some range, or it would be the plan.
func (plan *Outcome) SingleCascadeAccuracy(ctx context.Context, seed uint64) (float64, error) {
	problem := *plan.Problem
	if problem.OverRequests || problem.Goal() != MostAccurate {
		return 0, nil
	}
	if problem.OverRequests, problem.maxBatchTime = true, 0; !problem.simulatesMeasured() {
		return 0, nil
	}

	// With many requests first ask whether any cascade can be better.
	best := &Outcome{Problem: &problem, Configs: plan.Configs, Chains: plan.Chains, Accuracy: plan.Accuracy}
	space := plan.placement.layout.space.withLimits(&problem)
	if problem.hasManyRequests() {
		if leads, err := best.noCascadeBeats(ctx, space); leads || err != nil {
			return 0, err // with so many requests the plan's own accuracy counts
		}
	}

	// What the plan shows on the measured rates, and the best cascade.
	planned, err := newSimulator(&problem, plan.Configs, plan.Chains, seed).runMeasured(ctx, plan.Gears, 0, 1)
	if err != nil {
		return 0, err
	}
	best.measuredAccuracy = planned.accuracy
	single, err := bestCascadePlan(ctx, space, plan, best, newTrialHistory(seed))
	if single == nil || err != nil {
		return 0, err
	}
	return single.Accuracy, nil
}

// bestCascadePlan returns the best plan in which one cascade serves all ranges and that is more accurate than
// toBeat. It tries the placement of the reference plan and others. If there is none, the plan is nil. An error comes
// with the best plan so far.
func bestCascadePlan(ctx context.Context, space *planSpace, reference, toBeat *Outcome, history *trialHistory) (best *Outcome, err error) {
	list, err := layoutsFor(ctx, space, reference)
	for _, candidate := range list {
		placement := newTrialPlacement(candidate.layout, history, nil)
		plan, simulator := &Outcome{Problem: space.problem, Configs: candidate.layout.configs, Chains: candidate.layout.chains, FrontSize: len(candidate.cascades), placement: placement}, placement.simulator
		ok, err := plan.findSingleCascade(ctx, simulator, worthTrying(space.problem, candidate.cascades, toBeat))
		if ok && plan.isBetterThan(toBeat) {
			best, toBeat = plan, plan
		}
		if err != nil {
			return best, err
		}
	}
	return best, err
}

// noCascadeBeats reports whether no single cascade, on the plan's placement or the best one, is worth trying
// against the plan.
func (plan *Outcome) noCascadeBeats(ctx context.Context, space *planSpace) (bool, error) {
	list, err := layoutsFor(ctx, space, plan)
	return !slices.ContainsFunc(list, func(candidate singleLayout) bool {
		return len(worthTrying(space.problem, candidate.cascades, plan)) > 0
	}), err
}

// tryOverRequests plans for all requests together if the workload does not name the scope of the SLO and one
// cascade is more accurate that way than a plan for every range.
func (s *planSearch) tryOverRequests(ctx context.Context, plan *Outcome) (*Outcome, error) {
	accuracy, err := plan.SingleCascadeAccuracy(ctx, s.options.Seed)
	if err != nil || accuracy == 0 {
		return planOrError(ctx, plan, err)
	}
	q := *s.problem
	q.OverRequests = true
	overRequests, err := s.planMostAccurate(ctx, &q)
	if err != nil || ctx.Err() != nil && !overRequests.isBetterThan(plan) {
		return planOrError(ctx, plan, err)
	}
	return overRequests, nil
}

// singleLayout is a placement for one cascade, with the cascades that it may be, by rising load.
type singleLayout struct {
	layout   *deviceLayout
	cascades []loadedCascade
}

// layoutsFor returns the placements on which one cascade for all ranges is tried, each with the cascades it has
// time for: that of a plan, if there is one, and the best one at the rate that such a cascade must hold.
func layoutsFor(ctx context.Context, space *planSpace, plan *Outcome) (list []singleLayout, err error) {
	// The best placement at that rate.
	steadySpace, steadyProblem := *space, *space.problem
	steadyProblem.RangeEdges, steadyProblem.RangeWeights = []float64{space.problem.steadyRate()}, []float64{1}
	steadySpace.problem, steadySpace.chosenChains = &steadyProblem, nil
	steadySpace.setConfigs()
	top, _, err := steadySpace.rankPlacements(ctx, 1)
	if err != nil {
		return nil, err
	}
	var layouts []*deviceLayout
	if len(top) > 0 { // if all members are in stages, no placement of whole models exists
		layouts = append(layouts, space.newLayout(top[0].layout.configs, nil))
	}

	// The placement of the plan.
	if plan != nil && (len(plan.Chains) > 0 || len(layouts) == 0 || !slices.Equal(plan.Configs, layouts[0].configs)) {
		layouts = slices.Insert(layouts, 0, space.newLayout(plan.Configs, plan.Chains))
	}

	// The cascades on each.
	for _, l := range layouts {
		stairs, err := l.feasibleFront(ctx, space.problem.steadyRate(), -1)
		if err != nil {
			return nil, err
		}
		list = append(list, singleLayout{l, stairs})
	}
	return list, nil
}

// steadyRate returns the rate that one cascade must hold: the mean of the measured rates if they are simulated,
// else the highest rate.
func (p *Problem) steadyRate() float64 {
	if p.simulatesMeasured() {
		return sum(p.MeasuredRates) / float64(len(p.MeasuredRates))
	}
	return p.RangeEdges[len(p.RangeEdges)-1]
}

// worthTrying returns those of some cascades that are more accurate than the plan to beat, which may be nil,
// and reach the target. If a simulation of the measured rates takes long, it leaves out cascades that are much
// too late even if requests come evenly.
func worthTrying(p *Problem, list []loadedCascade, toBeat *Outcome) []loadedCascade {
	return slices.DeleteFunc(list, func(s loadedCascade) bool {
		accuracy := plannedAccuracy(p, s.cascade)
		return p.missesTarget(accuracy) || toBeat != nil && accuracy <= toBeat.minAccuracy()+minAccuracyGain ||
			p.simulatesMeasured() && p.hasManyRequests() && p.evenLateShare(s.deviceLoad) > maxEvenLateFactor*(1-p.Percentile)
	})
}

// maxEvenLateFactor limits the evenLateShare of a cascade that a long simulation is worth, as a multiple of the
// late share that the percentile allows.
const maxEvenLateFactor = 2

// minAccuracy returns the accuracy that another plan has to beat: the planned one, or the one simulated on
// measured rates if that is less.
func (plan *Outcome) minAccuracy() float64 {
	if plan.measuredAccuracy > 0 {
		return min(plan.Accuracy, plan.measuredAccuracy)
	}
	return plan.Accuracy
}

// findSingleCascade gives all ranges the most accurate of some cascades, which come by rising load, that keeps
// the SLO over all requests. It returns false if there is none. If there are few, all are tried, the heaviest
// first. On measured rates the search begins at the heaviest cascade that devices without queues could serve
// and goes on in steps that double, on the first stream (random arrivals). From the cascade found downwards all
// streams decide. An error may come with a cascade that keeps the SLO if there is one stream only.
func (plan *Outcome) findSingleCascade(ctx context.Context, simulator *gearSimulator, list []loadedCascade) (bool, error) {
	if len(list) <= fewCascades && !simulator.problem.hasManyRequests() { // a heavier cascade may hold where a lighter one fails
		for k := len(list) - 1; k >= 0; k-- {
			if ok, err := plan.useInAllRanges(ctx, simulator, &list[k], streamCount(simulator.problem)); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}

	// Bisect by the first stream.
	low, high := 0, len(list) // cascades below low keep the SLO, those from high on do not
	middle, step := high/2, high
	if simulator.problem.simulatesMeasured() {
		middle, step = min(simulator.problem.firstLateCascade(list), max(high-1, 0)), 1
	}
	for ; low < high; step *= 2 {
		ok, err := plan.useInAllRanges(ctx, simulator, &list[middle], 1)
		if err != nil {
			return low > 0 && streamCount(simulator.problem) == 1, err
		}
		if ok {
			low = middle + 1
		} else {
			high = middle
		}
		switch middle = (low + high) / 2; {
		case high == len(list) && step < high:
			middle = min(middle, low+step-1)
		case low == 0 && step < high:
			middle = max(middle, high-step)
		}
	}

	// Confirm by all streams.
	heaviest := low - 1
	if streamCount(simulator.problem) == 1 {
		return heaviest >= 0, nil
	}
	for ; heaviest >= 0; heaviest-- {
		if ok, err := plan.useInAllRanges(ctx, simulator, &list[heaviest], streamCount(simulator.problem)); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// fewCascades is the number of cascades up to which all are tried, the most accurate first.
const fewCascades = 8

// firstLateCascade returns the index of the first cascade, by rising load, of which too many requests are late
// even if they come evenly.
func (p *Problem) firstLateCascade(list []loadedCascade) int {
	return sort.Search(len(list), func(i int) bool { return p.evenLateShare(list[i].deviceLoad) > 1-p.Percentile })
}

// evenLateShare returns the share of the measured requests that find a backlog of more than the SLO at the busiest
// device, if requests come evenly within each second. load is in seconds per request.
func (p *Problem) evenLateShare(load float64) float64 {
	backlog, lateRequests := 0.0, 0.0
	for _, rate := range p.MeasuredRates {
		if backlog = max(0, backlog+rate*load-1); backlog > p.SLO.Seconds() {
			lateRequests += rate
		}
	}
	return lateRequests / sum(p.MeasuredRates)
}

// useInAllRanges makes a plan in which one cascade serves all ranges, if it keeps the SLO over all requests in
// simulation, and reports whether it does. If the measured rates are simulated, their streams decide, and the
// late share of every range is that of all requests. Else each range is tried at its upper edge.
func (plan *Outcome) useInAllRanges(ctx context.Context, simulator *gearSimulator, cascade *loadedCascade, streams int) (bool, error) {
	p := simulator.problem
	gears, lateShare := make([]PlannedGear, len(p.RangeEdges)), 0.0
	for r, edge := range p.RangeEdges {
		gears[r] = newGear(p, cascade, edge, Trial{})
	}

	// Streams of the measured rates.
	if p.simulatesMeasured() {
		measured, err := simulator.runStreams(ctx, gears, streams, 1-p.Percentile)
		if err != nil || !measured.keepsSLO(p) {
			return false, err
		}
		for r := range gears {
			gears[r].LateShare, gears[r].Trial = measured.lateShare, measured.asTrial()
		}
		plan.Gears, plan.Accuracy, plan.TailLatency, plan.measuredAccuracy = gears, gears[0].Accuracy, measured.tail, measured.accuracy
		return true, nil
	}
	// Else trials at the upper edges. All ranges share the late requests that the percentile allows.
	for r := len(p.RangeEdges) - 1; r >= 0; r-- { // the highest rate is the first to fail
		g := &gears[r]
		t, err := simulator.tryWithLateShare(ctx, cascade, p.RangeEdges[r], min(1, (1-p.Percentile)/p.RangeWeights[r]))
		if err != nil {
			return false, err
		}
		g.Trial, g.LateShare = t, t.lateShare
		if lateShare += p.RangeWeights[r] * t.lateShare; g.BusiestLoad > 1 || !t.Stable || lateShare > spentShare*(1-p.Percentile) {
			return false, nil
		}
	}
	plan.Gears, plan.Accuracy = gears, gears[0].Accuracy
	return true, nil
}
