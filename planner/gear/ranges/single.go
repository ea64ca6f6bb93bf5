package ranges

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
)

// One cascade for all ranges is a plan, too. If the SLO is over all requests, it may be more accurate than gears:
// rates may vary around the edge of two ranges or seldom reach the highest range, and each gear must hold its
// upper edge forever.

// TrySingleCascade looks for one cascade for all ranges of rates, if the SLO is over all requests together. It returns
// the plan of that cascade if plan, the one that the search has found, is less accurate, misses the target or is nil.
// Else it returns plan. searchErr is the first reason why the search found no plan on some placement, or nil. A reason
// that is no InfeasibleError ends the search, and is returned. history has the trials of the search.
//
// If it is interrupted, the best plan so far stands. If there is none at all, it returns the error of its own search or
// else searchErr.
func TrySingleCascade(ctx context.Context, p *cascades.Problem, space *planspace.Space, plan *trials.Plan, searchErr error, history *trials.History) (*trials.Plan, error) {
	if searchErr != nil && !cascades.IsInfeasible(searchErr) {
		return nil, searchErr
	}

	// The placement of the plan is tried in any case, but any cascade beats a plan that misses the target.
	toBeat := plan
	if plan != nil && p.MissesTarget(plan.Accuracy) {
		toBeat = nil
	}
	single, err := bestCascadePlan(ctx, space.WithLimits(p), plan, toBeat, history)
	if single == nil && plan == nil {
		return nil, cmp.Or(err, searchErr)
	}
	return trials.PlanOrError(ctx, cmp.Or(single, plan), err)
}

// IsBetter reports whether a plan of one cascade for all ranges is more accurate than another plan, which may be nil,
// by MinAccuracyGain: as planned or, if both were simulated on the measured rates, as simulated. On those a plan's
// gears may serve other shares of the requests than its weights state: at low rates a queue delays the switch to a
// slower gear.
func IsBetter(plan *trials.Plan, other *trials.Plan) bool {
	return other == nil || plan.Accuracy > other.Accuracy+trials.MinAccuracyGain || other.MeasuredAccuracy > 0 && plan.MeasuredAccuracy > other.MeasuredAccuracy+trials.MinAccuracyGain
}

// SingleCascadeAccuracy returns the accuracy of the best single cascade for all ranges under an SLO over all measured
// requests together, if it is more accurate than the plan (IsBetter), whose SLO is for every range. Else, or if the
// measured rates are not simulated, it returns 0. Such a cascade is late or unstable at the upper edge of some range,
// or it would be the plan. The user is told of the accuracy, or the planner plans again for an SLO over all requests.
func SingleCascadeAccuracy(ctx context.Context, plan *trials.Plan, seed uint64) (float64, error) {
	problem := *plan.Problem
	if problem.OverRequests || problem.Goal() != cascades.MostAccurate {
		return 0, nil
	}
	// The plan may be from a problem with shorter batches; here only the SLO limits them.
	problem.OverRequests, problem.MaxBatchTime = true, 0
	if !problem.SimulatesMeasured() {
		return 0, nil
	}

	// best stands for the plan in comparisons. With many requests each run takes long, so first ask, without any, whether some
	// cascade may be better.
	best := &trials.Plan{Problem: &problem, Configs: plan.Configs, Chains: plan.Chains, Accuracy: plan.Accuracy}
	space := plan.Placement.Layout.Space.WithLimits(&problem)
	if problem.HasManyRequests() {
		if noneIsBetter, err := noCascadeBeats(ctx, best, space); noneIsBetter || err != nil {
			return 0, err
		}
	}

	// What the plan shows on the measured rates, on the first stream to its end, and the best cascade.
	const firstStream, maxLateShare = 0, 1
	planned, err := trials.NewSimulator(&problem, plan.Configs, plan.Chains, seed).RunMeasured(ctx, plan.Gears, firstStream, maxLateShare)
	if err != nil {
		return 0, err
	}
	best.MeasuredAccuracy = planned.Accuracy
	single, err := bestCascadePlan(ctx, space, plan, best, trials.NewHistory(seed))
	if single == nil || err != nil {
		return 0, err
	}
	return single.Accuracy, nil
}

// bestCascadePlan returns the best plan in which one cascade serves all ranges of rates and that is more accurate than
// toBeat, which may be nil. It tries the placements of LayoutsFor: that of the reference plan, if that is not nil, and
// the best one for a single cascade. If there is no such plan, it returns nil. An error comes with the best plan so
// far.
func bestCascadePlan(ctx context.Context, space *planspace.Space, reference, toBeat *trials.Plan, history *trials.History) (best *trials.Plan, err error) {
	list, err := LayoutsFor(ctx, space, reference)
	if err != nil {
		return nil, err
	}
	for _, candidate := range list {
		// found says that the cascade has been given to all ranges of the plan, which can be so even with an error.
		plan := trials.NewPlacement(candidate.Layout, history, nil).NewPlan()
		found, err := findSingleCascade(ctx, plan, worthTrying(space.Problem, candidate.Cascades, toBeat))
		if found && IsBetter(plan, toBeat) {
			best, toBeat = plan, plan
		}
		if err != nil {
			return best, err
		}
	}
	return best, nil
}

// noCascadeBeats reports whether no single cascade, on the plan's placement or the best one, is worth trying
// against the plan.
func noCascadeBeats(ctx context.Context, plan *trials.Plan, space *planspace.Space) (bool, error) {
	list, err := LayoutsFor(ctx, space, plan)
	return !slices.ContainsFunc(list, func(candidate SingleLayout) bool {
		return len(worthTrying(space.Problem, candidate.Cascades, plan)) > 0
	}), err
}

// SingleLayout is a placement for one cascade, with the cascades that it may be, by rising load.
type SingleLayout struct {
	Layout   *placement.Layout
	Cascades []placement.LoadedCascade
}

// LayoutsFor returns the placements on which one cascade for all ranges is tried, each with the cascades that it has
// time for at SteadyRate, the rate that such a cascade must hold. The first is the placement of a plan, if there is one
// and it differs from the second. The second is the best placement of whole models at that rate.
func LayoutsFor(ctx context.Context, space *planspace.Space, plan *trials.Plan) (list []SingleLayout, err error) {
	// Rank placements for that rate: in a copy of the space whose problem has it as the only range, and which places no chains, so
	// that its configs have whole models only. The layout is then made in the space itself, for the problem's own ranges.
	steadySpace, steadyProblem := *space, *space.Problem
	steadyProblem.RangeEdges, steadyProblem.RangeWeights = []float64{SteadyRate(space.Problem)}, []float64{1}
	steadySpace.Problem, steadySpace.ChosenChains = &steadyProblem, nil
	steadySpace.SetConfigs()
	top, _, err := placement.RankPlacements(ctx, &steadySpace, 1)
	if err != nil {
		return nil, err
	}
	var layouts []*placement.Layout
	if len(top) > 0 { // if all members are in stages, no placement of whole models exists
		layouts = append(layouts, placement.NewLayout(space, top[0].Layout.Configs, nil))
	}

	// The placement of the plan, unless it is the same.
	isSame := plan != nil && len(plan.Chains) == 0 && len(layouts) > 0 && slices.Equal(plan.Configs, layouts[0].Configs)
	if plan != nil && !isSame {
		layouts = slices.Insert(layouts, 0, placement.NewLayout(space, plan.Configs, plan.Chains))
	}

	// The cascades on each, of any accuracy.
	const anyAccuracy = -1
	for _, l := range layouts {
		front, err := l.FeasibleFront(ctx, SteadyRate(space.Problem), anyAccuracy)
		if err != nil {
			return nil, err
		}
		list = append(list, SingleLayout{l, front})
	}
	return list, nil
}

// SteadyRate returns the rate that one cascade must hold: the mean of the measured rates if they are simulated,
// else the highest rate.
func SteadyRate(p *cascades.Problem) float64 {
	if p.SimulatesMeasured() {
		return lists.Total(p.MeasuredRates) / float64(len(p.MeasuredRates))
	}
	return p.RangeEdges[len(p.RangeEdges)-1]
}

// worthTrying returns those cascades of a list, which it reuses, that are more accurate than the plan to beat, which
// may be nil, and reach the target. If a simulation of the measured rates takes long, it leaves out cascades that are
// much too late even if requests come evenly.
func worthTrying(p *cascades.Problem, list []placement.LoadedCascade, toBeat *trials.Plan) []placement.LoadedCascade {
	return slices.DeleteFunc(list, func(s placement.LoadedCascade) bool {
		accuracy := cascades.PlannedAccuracy(p, s.Cascade)
		return p.MissesTarget(accuracy) || toBeat != nil && accuracy <= minAccuracy(toBeat)+trials.MinAccuracyGain ||
			p.SimulatesMeasured() && p.HasManyRequests() && evenLateShare(p, s.DeviceLoad) > maxEvenLateFactor*(1-p.Percentile)
	})
}

// maxEvenLateFactor limits the evenLateShare of a cascade that a long simulation is worth, as a multiple of the
// late share that the percentile allows.
const maxEvenLateFactor = 2

// minAccuracy returns the accuracy that another plan has to beat: the planned one, or the one simulated on
// measured rates if that is less.
func minAccuracy(plan *trials.Plan) float64 {
	if plan.MeasuredAccuracy > 0 {
		return min(plan.Accuracy, plan.MeasuredAccuracy)
	}
	return plan.Accuracy
}

// findSingleCascade gives all ranges of a plan the most accurate cascade of a list, by rising load, that keeps the SLO
// over all requests together in simulation. It returns false if there is none; the plan's gears then mean nothing.
//
// If there are few cascades, all are tried on all streams (random arrivals), the heaviest first. Else the list is first
// bisected on the first stream alone. On measured rates the bisection begins at the first cascade of which too many
// requests would be late even if they came evenly, and goes on in steps that double until one cascade has passed and
// one has failed. Then, from the cascade found downwards, all streams decide.
//
// If a run of the bisection ends with an error, the plan has the heaviest cascade that passed on the first stream. If
// there is no other stream, that suffices, and the result is true.
func findSingleCascade(ctx context.Context, plan *trials.Plan, list []placement.LoadedCascade) (bool, error) {
	p, simulator, heaviest := plan.Problem, plan.Placement.Simulator, len(list)-1
	streams := trials.StreamCount(p)

	// Bisect by the first stream. If there are few cascades, all are tried: a heavier one may hold where a lighter one
	// fails.
	if len(list) > fewCascades || p.HasManyRequests() {
		low, high := 0, len(list)    // cascades below low keep the SLO, those from high on do not
		middle, step := high/2, high // so large a step limits nothing: plain bisection
		if p.SimulatesMeasured() {   // each test takes long, so begin near the likely result, with small steps
			middle, step = min(firstLateCascade(p, list), max(high-1, 0)), 1
		}
		for ; low < high; step *= 2 {
			ok, err := UseInAllRanges(ctx, plan, simulator, &list[middle], 1)
			if err != nil {
				return low > 0 && streams == 1, err
			}
			if ok {
				low = middle + 1
			} else {
				high = middle
			}
			// Go on half way, but at most a step from the cascade just tried while all have passed so far, or all have failed.
			switch middle = (low + high) / 2; {
			case high == len(list) && step < high: // none has failed
				middle = min(middle, low+step-1)
			case low == 0 && step < high: // none has passed
				middle = max(middle, high-step)
			}
		}
		if heaviest = low - 1; streams == 1 {
			return heaviest >= 0, nil
		}
	}

	// All streams decide.
	for ; heaviest >= 0; heaviest-- {
		if ok, err := UseInAllRanges(ctx, plan, simulator, &list[heaviest], streams); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// fewCascades is the number of cascades up to which all are tried, the most accurate first.
const fewCascades = 8

// firstLateCascade returns the index of the first cascade, by rising load, of which too many requests are late
// even if they come evenly.
func firstLateCascade(p *cascades.Problem, list []placement.LoadedCascade) int {
	return sort.Search(len(list), func(i int) bool { return evenLateShare(p, list[i].DeviceLoad) > 1-p.Percentile })
}

// evenLateShare returns the share of the measured requests that find a backlog of more than the SLO (in seconds of
// work) at the busiest device, if requests come evenly within each second. load is that device's work per request in
// seconds. It is a cheap stand-in for a simulation.
func evenLateShare(p *cascades.Problem, load float64) float64 {
	backlog, lateRequests := 0.0, 0.0
	for _, rate := range p.MeasuredRates {
		backlog = max(0, backlog+rate*load-1) // in a second the device gets rate*load seconds of work and does one
		if backlog > p.SLO.Seconds() {
			lateRequests += rate
		}
	}
	return lateRequests / lists.Total(p.MeasuredRates)
}

// UseInAllRanges gives all ranges of a plan one cascade, if that keeps the SLO over all requests together in
// simulation, and reports whether it does. If not, the plan is unchanged. If the measured rates are simulated, it is
// run on their first `streams` random streams, and the late share of every range is that of all requests. Else each
// range is tried at its upper edge. The late shares, summed by weight, may then be up to spentShare of what the
// percentile allows; the rest is a reserve.
func UseInAllRanges(ctx context.Context, plan *trials.Plan, simulator *trials.Simulator, cascade *placement.LoadedCascade, streams int) (bool, error) {
	p := simulator.Problem
	lateShare := 0.0
	gears := lists.Filled(len(p.RangeEdges), func(r int) trials.PlannedGear { return trials.NewGear(p, cascade, p.RangeEdges[r], trials.Trial{}) })

	// Streams of the measured rates. The first ends early, too, once more are late than the percentile allows.
	maxLateShare := 1 - p.Percentile
	if p.SimulatesMeasured() {
		measured, err := simulator.RunStreams(ctx, gears, streams, maxLateShare)
		if err != nil || !measured.KeepsSLO(p) {
			return false, err
		}
		for r := range gears {
			gears[r].LateShare, gears[r].Trial = measured.LateShare, measured.AsTrial()
		}
		plan.Gears, plan.Accuracy, plan.TailLatency, plan.MeasuredAccuracy = gears, gears[0].Accuracy, measured.Tail, measured.Accuracy
		return true, nil
	}

	// Else trials at the upper edges. All ranges share the late requests that the percentile allows: if one range takes all of
	// them, that is a share maxLateShare / weight of its requests.
	for r := len(p.RangeEdges) - 1; r >= 0; r-- { // the highest rate is the first to fail
		rangeGear := &gears[r]
		trial, err := simulator.TryWithLateShare(ctx, cascade, p.RangeEdges[r], min(1, maxLateShare/p.RangeWeights[r]))
		if err != nil {
			return false, err
		}
		rangeGear.Trial, rangeGear.LateShare = trial, trial.LateShare
		lateShare += p.RangeWeights[r] * trial.LateShare
		if rangeGear.BusiestLoad > 1 || !trial.Stable || lateShare > spentShare*maxLateShare {
			return false, nil
		}
	}
	plan.Gears, plan.Accuracy = gears, gears[0].Accuracy
	return true, nil
}
