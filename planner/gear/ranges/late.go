package ranges

import (
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/solver/knapsack"
)

// Parameters of plans whose SLO is over all requests.
const (
	spentShare     = .9  // part of the late share allowed by the percentile that is planned for
	lateUnit       = 1e4 // units of the late share in the knapsack
	lateStepFactor = .8  // factor on the late share if measured rates show more late requests than the ranges did
	maxLateSteps   = 8   // number of such steps
)

// gearChoices are the gears that every range may have, its own first. items[r][k] has what gear k of range r adds
// to the accuracy of all requests, as its value, and to their late share, as its weight.
type gearChoices struct {
	gears [][]trials.PlannedGear
	items [][]knapsack.Choice
}

// addGear adds a gear to the choices of a range. weight is the range's share of the requests.
func (a *gearChoices) addGear(r int, g trials.PlannedGear, weight float64) {
	g.LateShare = g.Trial.LateShare
	a.gears[r] = append(a.gears[r], g)
	a.items[r] = append(a.items[r], knapsack.Choice{Value: weight * g.Accuracy, Weight: weight * g.LateShare})
}

// AllowLateRanges makes a plan more accurate under an SLO over all requests together: it gives ranges of rates more
// accurate gears that miss the SLO but are stable at the upper edge, as far as all requests together keep it. It
// changes the plan's gears and accuracy.
//
// The choice is a knapsack, whose capacity is most (spentShare) of the share of late requests that the percentile
// allows. If the measured rates are simulated and few enough for many runs, the chosen gears are run on them. While
// they miss the SLO there, the choice is repeated with less capacity, at last with none. If it returns an error, every
// range has the gear that it had before.
func AllowLateRanges(ctx context.Context, plan *trials.Plan) error {
	p, simulator := plan.Problem, plan.Placement.Simulator
	choices, err := listGearChoices(ctx, plan)
	for maxLateShare := spentShare * (1 - p.Percentile); err == nil; maxLateShare = choices.lowerCapacity(maxLateShare, 1-p.Percentile) {
		// Choose gears for the capacity. picks has, by range, the index of its choice; 0 is the gear that it had before.
		picks := knapsack.BestChoices(choices.items, maxLateShare, lateUnit)
		chooseGears(plan, choices, picks)
		if isSimulated := p.SimulatesMeasured() && !p.HasManyRequests(); !isSimulated {
			return nil
		}

		// Simulate them on the measured rates, to the end of the first stream however many are late, as the plan states the result.
		const endsAtLateShare = 1
		var measured trials.MeasuredResult
		if measured, err = simulator.RunStreams(ctx, plan.Gears, trials.StreamCount(p), endsAtLateShare); err != nil {
			break
		}
		plan.TailLatency, plan.MeasuredAccuracy = measured.Tail, measured.Accuracy
		if measured.KeepsSLO(p) {
			plan.AdoptMeasured(p, &measured)
			return nil
		}

		// Stop if no range has another gear.
		if unchanged := !slices.ContainsFunc(picks, func(k int) bool { return k > 0 }); unchanged {
			return nil
		}
	}
	gearsBefore := make([]int, len(p.RangeEdges)) // choice 0 of every range
	chooseGears(plan, choices, gearsBefore)
	return err
}

// lowerCapacity returns the next smaller capacity of the knapsack. allowedShare is the share of late requests that the
// percentile allows. After maxLateSteps smaller capacities it returns 0, into which only gears without late requests in their
// trials fit. If they miss the SLO, too, only the gears that the ranges had before are left as choices.
func (a *gearChoices) lowerCapacity(maxLateShare, allowedShare float64) float64 {
	if maxLateShare == 0 {
		for r := range a.items {
			a.items[r] = a.items[r][:1]
		}
	}
	if maxLateShare < allowedShare*math.Pow(lateStepFactor, maxLateSteps) {
		return 0
	}
	return maxLateShare * lateStepFactor
}

// listGearChoices returns, for the knapsack of AllowLateRanges, the gears that every range of rates may have: its own
// first, and more accurate cascades that are stable at its upper edge in trials (simulated runs), with the share of
// requests that is then late. Each range has its own gear even if an error is returned.
func listGearChoices(ctx context.Context, plan *trials.Plan) (*gearChoices, error) {
	p, simulator := plan.Problem, plan.Placement.Simulator
	choices := &gearChoices{make([][]trials.PlannedGear, len(p.RangeEdges)), make([][]knapsack.Choice, len(p.RangeEdges))}
	for r := range p.RangeEdges {
		choices.addGear(r, plan.Gears[r], p.RangeWeights[r])
	}

	// Try the more accurate cascades of each range, until two are unstable.
	for r, edge := range p.RangeEdges {
		weight := p.RangeWeights[r]
		candidates, err := plan.Placement.Layout.FeasibleFront(ctx, edge, plan.Gears[r].Cascade.CorrectCount)
		if err != nil {
			return choices, err
		}
		if n := len(candidates); n == 0 || weight*(cascades.PlannedAccuracy(p, candidates[n-1].Cascade)-plan.Gears[r].Accuracy) < trials.MinAccuracyGain/float64(len(p.RangeEdges)) {
			continue // no choice adds anything
		}
		maxLateShare := min(1, (1-p.Percentile)/weight) // of the range's requests, if it takes all late requests that the percentile allows
		for k, fails := 0, 0; k < len(candidates) && fails < 2; k++ {
			candidate := &candidates[k]
			trial, err := simulator.TryWithLateShare(ctx, candidate, edge, maxLateShare)
			if err != nil {
				return choices, err
			}
			if !trial.Stable {
				fails++
				continue
			}
			choices.addGear(r, trials.NewGear(p, candidate, edge, trial), weight)
		}
	}
	return choices, nil
}

// chooseGears gives every range one of its choices, by index, and adds up the plan's accuracy.
func chooseGears(plan *trials.Plan, choices *gearChoices, picks []int) {
	plan.Accuracy, plan.TailLatency, plan.MeasuredAccuracy = 0, 0, 0
	for r, k := range picks {
		plan.Gears[r] = choices.gears[r][k]
		plan.Accuracy += choices.items[r][k].Value
	}
}
