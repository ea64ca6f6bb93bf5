package trials

import (
	"context"
	"time"

	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/policy"
)

// Plan is a plan of gears.
type Plan struct {
	Problem  *cascades.Problem // as it was solved, with the least SLO or the fewest devices
	Configs  []planspace.Config
	Chains   []planspace.PlacedChain
	Gears    []PlannedGear
	Accuracy float64 // weighted over the ranges
	Bound    float64 // accuracy that no plan exceeds, even with mixtures of cascades
	// SingleCascadeBound is the accuracy that no plan over the same thresholds exceeds whose ranges have one
	// cascade each, on any placement, with batches of at most the SLO. It is 0 if it is not known.
	SingleCascadeBound float64
	// TrialBound bounds the value of plans that pass trials, of one cascade per range on placements of whole
	// models. It is 0 if it is not known.
	TrialBound float64
	// Value is the goal's value: accuracy, milliseconds, or price of the devices. No plan has a better value than
	// ValueBound. For an accuracy that is SingleCascadeBound, if it is known. IsProved says that the value is
	// optimal.
	Goal              string
	Value, ValueBound float64
	IsProved          bool
	// OneMoreBounds is, by kind, Bound with one more device.
	OneMoreBounds []float64
	// CascadeCount is the number of enumerated cascades, and RunCount that of simulated runs.
	CascadeCount, RunCount int
	// TailLatency is the latency at the percentile over all requests, simulated on the measured rates. It is 0 if
	// it was not simulated.
	TailLatency time.Duration

	MeasuredAccuracy float64    // accuracy simulated on the measured rates; 0 if not known
	Placement        *Placement // on which the plan was made
}

// PlannedGear is the gear of a range.
type PlannedGear struct {
	Cascade     cascades.Cascade
	MinQueue    int         // queue length at which the first model starts a batch
	Shares      [][]float64 // by model: over the replicas of the whole model, kind by kind, and then those of its chains
	BusiestLoad float64     // share of the time that the busiest device is busy at the upper edge
	Trial       Trial
	LateShare   float64 // share of late requests at the upper edge
	Accuracy    float64
	Bound       float64 // accuracy that no plan exceeds in the range
}

// NewGear returns a loaded cascade as the gear of a range with the given upper edge.
func NewGear(p *cascades.Problem, s *placement.LoadedCascade, edge float64, t Trial) PlannedGear {
	return PlannedGear{Cascade: *s.Cascade, MinQueue: 1, Shares: s.Shares, BusiestLoad: s.DeviceLoad * edge, Trial: t, Accuracy: cascades.PlannedAccuracy(p, s.Cascade)}
}

// NewPlan returns a plan without gears on the placement.
func (d *Placement) NewPlan() *Plan {
	return &Plan{Problem: d.Layout.Space.Problem, Configs: d.Layout.Configs, Chains: d.Layout.Chains, Placement: d}
}

// AddGear adds the gear of the next range of rates.
func (plan *Plan) AddGear(g PlannedGear) {
	plan.Accuracy += plan.Problem.RangeWeights[len(plan.Gears)] * g.Accuracy
	plan.Gears = append(plan.Gears, g)
}

// Gains of weighted accuracy that are worth an effort: MinAccuracyGain any simulation, ShorterBatchGain shorter
// batches, with which devices do less under overload, and NextPlacementGain the simulations of another placement.
const (
	MinAccuracyGain   = 5e-5
	ShorterBatchGain  = 2e-4
	NextPlacementGain = 1e-3
)

// Replicas returns the devices of a kind that hold a model whole.
func (plan *Plan) Replicas(model, kind int) []int {
	return planspace.DevicesWith(plan.Configs, kind, model)
}

// SetBounds sets the bounds on accuracy that the plan states: bounds has those of the ranges of rates, by range, and
// total is that of the whole plan. A bound of a range is for its upper edge, held forever. A plan on measured rates
// need not hold that edge and may be more accurate, and then the accuracy of the range is its bound.
func (plan *Plan) SetBounds(bounds []float64, total float64) {
	for r := range plan.Gears {
		plan.Gears[r].Bound = max(bounds[r], plan.Gears[r].Accuracy)
	}
	plan.Bound = total
}

// SetValue sets the plan's value to its accuracy, with the best bound on it that is known, and for the goal of most
// accuracy also whether that proves the plan to be the best. Searches for the least latency or price set other values
// afterwards.
func (plan *Plan) SetValue() {
	plan.Value, plan.ValueBound = plan.Accuracy, plan.Bound
	if plan.Goal != cascades.MostAccurate {
		return
	}
	if plan.SingleCascadeBound > 0 {
		plan.ValueBound = min(plan.Bound, plan.SingleCascadeBound)
	}
	plan.IsProved = plan.Value >= plan.ValueBound-cascades.SumTolerance
}

// SettledByTrials reports whether trials (simulated runs) have shown that no better plan passes them: by accuracy none
// that gains NextPlacementGain or more, by price none that is cheaper. A TrialBound of 0 is not known.
func (plan *Plan) SettledByTrials() bool {
	if plan.Goal == cascades.MostAccurate {
		return plan.TrialBound > 0 && plan.TrialBound < plan.Value+NextPlacementGain
	}
	return plan.TrialBound > 0 && plan.TrialBound >= plan.Value
}

// MaxTailLatency returns the longest tail latency of all gears.
func (plan *Plan) MaxTailLatency() time.Duration {
	return lists.Max(time.Duration(0), len(plan.Gears), func(r int) time.Duration { return plan.Gears[r].Trial.Latency })
}

// PlanOrError returns a plan together with the error of the step that came after it. If there is a plan and the context
// has ended, the step was interrupted: then the plan stands, and the error is nil. Searches call it after each step
// that may only improve a plan.
func PlanOrError(ctx context.Context, plan *Plan, err error) (*Plan, error) {
	if plan != nil && ctx.Err() != nil {
		return plan, nil
	}
	return plan, err
}

// ImproveFrom gives an early plan (one cascade of little load for all ranges) the better gears of those ranges of rates
// that an interrupted search on the same placement had done, and corrects its accuracy. On another placement, or if the
// early plan is nil, it does nothing.
func (plan *Plan) ImproveFrom(placement *Placement) {
	if plan == nil || plan.Placement.Layout != placement.Layout {
		return
	}
	for r := range placement.partialPlan.Gears {
		plan.Accuracy += plan.Problem.RangeWeights[r] * (placement.partialPlan.Gears[r].Accuracy - plan.Gears[r].Accuracy)
		plan.Gears[r] = placement.partialPlan.Gears[r]
	}
}

// Tables returns the run-time tables of the plan's gears, for the problem as it was solved.
func (plan *Plan) Tables() *policy.Tables {
	return NewSimulator(plan.Problem, plan.Configs, plan.Chains, 0).gearTables(plan.Gears)
}

// RetryGear tries the gear of a range again at its upper edge, in one run with new random arrivals, freshTrialFactor
// times as long as the short run of a trial. Trials promise that such a run fails with a chance of at most
// MaxFailChance; tests and benchmarks call RetryGear to see whether that holds. Its requests bring the given samples
// or, if samples is nil, the planning samples.
func (plan *Plan) RetryGear(ctx context.Context, samples *cascades.Samples, rangeIndex int, seed uint64) (Trial, error) {
	p, planned, edge := plan.Problem, &plan.Gears[rangeIndex], plan.Problem.RangeEdges[rangeIndex]
	simulator := NewSimulator(p, plan.Configs, plan.Chains, seed)
	simulator.MinQueue = planned.MinQueue
	length := freshTrialFactor * ShortestRunLength(trialSLO(p, &planned.Cascade, edge), edge)
	return simulator.TryOnce(ctx, &placement.LoadedCascade{Cascade: &planned.Cascade, Shares: planned.Shares}, edge, length, p.SLO, samples)
}

// heldOutConfidence is the confidence of these intervals.
const heldOutConfidence = .95

// HeldOutAccuracy returns the plan's accuracy on the held-out samples, which planning did not see: the mean over the
// ranges of rates by weight, with the ends of its confidence interval. If there are no held-out samples, ok is false.
func (plan *Plan) HeldOutAccuracy() (heldOut cascades.HeldOutAccuracy, ok bool) {
	p := plan.Problem
	if p.HeldOutSamples == nil || p.HeldOutSamples.N == 0 {
		return heldOut, false
	}
	correctShares := make([]float64, p.HeldOutSamples.N) // by sample: share of the requests, over the ranges, that would be answered correctly

	// Replay the gear of each range.
	for r := range plan.Gears {
		n, c := 0, &plan.Gears[r].Cascade
		p.HeldOutSamples.EachSample(c.Models, c.Levels, func(i, _ int, ok bool) {
			if ok {
				correctShares[i] += p.RangeWeights[r]
				n++
			}
		})
		heldOut.Accuracy += p.RangeWeights[r] * float64(n) / float64(len(correctShares))
	}
	heldOut.Accuracy = min(1, heldOut.Accuracy) // more is rounding

	// The interval, by the variance between samples: the mean of the squares less the square of the mean.
	squares := lists.Sum(len(correctShares), func(i int) float64 { return correctShares[i] * correctShares[i] / float64(len(correctShares)) })
	heldOut.Low, heldOut.High = wilsonInterval(heldOut.Accuracy, squares-heldOut.Accuracy*heldOut.Accuracy, float64(len(correctShares)))
	return heldOut, true
}

// wilsonInterval returns Wilson's confidence interval of the mean of n values from 0 to 1. Wilson's formula is for
// values that are 0 or 1. Values between have less variance, so they count as more values of 0 and 1.
func wilsonInterval(mean, variance, n float64) (low, high float64) {
	if binaryVariance := mean * (1 - mean); variance > 1e-12 && variance < binaryVariance {
		n *= binaryVariance / variance
	}
	return report.WilsonOf(mean, n, heldOutConfidence)
}
