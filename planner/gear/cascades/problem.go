package cascades

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// Problem is a cascade problem as numbers.
type Problem struct {
	Models          []Model     // the family, in the order in which cascades ask its models
	Thresholds      [][]float64 // by model: certainties at the quantiles 1/Grid, 2/Grid, …
	PlanningSamples *Samples    // that cascades are chosen on
	HeldOutSamples  *Samples    // that accuracies and trials are checked on; nil or empty if there are none
	Grid            int         // number of levels of a model's certainty

	Kinds []Kind // kinds of devices
	// Blocks has the models block by block, with the bytes that cross between devices. Its models and pools are in
	// the order of Models and Kinds. If it is nil, models run whole only.
	Blocks *stages.Problem

	// SLO is the latency that every range keeps. Target is the weighted accuracy to reach. Without an accuracy
	// target the accuracy is maximised, without an SLO the latency is minimised. With both, the number or price of
	// the devices is minimised, up to the devices of Kinds.
	SLO             time.Duration
	RequestOverhead time.Duration // time of a request outside of its runs
	FrontEndTime    time.Duration // time for which a request occupies the front end
	TargetAccuracy  float64       // 0 if no accuracy is asked for
	Percentile      float64       // of the SLO, such as 0.95
	Surplus         float64       // margin that kind.Problem keeps back; trials are longer by trialLengthFactor
	Drift           float64       // fraction by which trials run batches slower than profiled
	RangeEdges      []float64     // upper edge of every range, in requests per second, ascending
	RangeWeights    []float64     // share of the requests in every range; they sum to 1
	RateShares      []float64     // MeasuredWeights, if RangeWeights are ServedWeights; else nil

	// OverRequests says that all requests together keep the SLO, and not every range. Their rates are those that
	// the weights describe. A range with few requests may then be late if others are not. MeasuredRates has the
	// requests of every second that the weights were made from, if they are known. The plan is then simulated on
	// them. ScopeUnspecified says that the workload does not name the scope of the SLO. It is then the ranges,
	// unless one cascade for all measured rates is more accurate with the requests as scope.
	OverRequests, ScopeUnspecified bool
	MeasuredRates                  []float64

	// Running holds the replicas of the plan that runs, if plans may move only few devices of it. If it is nil, they may move all.
	Running *Running

	MaxBatchTime  time.Duration // limit on the time of a batch of several samples; if 0, the SLO limits it
	onlyFastKinds bool          // leaves out a model on a kind where one sample takes longer than MaxBatchTime but not on another kind
}

// The goals. What is optimised follows from what the workload's SLO names.
const (
	MostAccurate  = "accuracy" // the SLO names a latency
	LeastLatency  = "latency"  // the SLO names an accuracy
	FewestDevices = "gpus"     // the SLO names both
)

// Goal returns the word for what the problem optimises, which follows from its SLO: the accuracy if there is no target
// accuracy, the latency if there is no latency SLO, and the devices if there are both.
func (p *Problem) Goal() string {
	switch {
	case p.TargetAccuracy == 0:
		return MostAccurate
	case p.SLO == 0:
		return LeastLatency
	}
	return FewestDevices
}

// maxModels limits the family, because some steps visit all of its subsets.
const maxModels = 12

// Validate returns an error if the problem cannot be solved by its form: no devices, no samples, numbers out of range,
// range edges (requests per second) that do not ascend, or lists of inconsistent length. Searches call it first.
func (p *Problem) Validate() error {
	switch {
	case len(p.Models) == 0 || len(p.Models) > maxModels:
		return fmt.Errorf("a family of %d models, expected 1 to %d", len(p.Models), maxModels)
	case !slices.ContainsFunc(p.Kinds, func(k Kind) bool { return k.Devices > 0 }):
		return errors.New("no device, expected at least 1")
	case p.SLO < 0 || p.SLO == 0 && p.TargetAccuracy == 0 || p.TargetAccuracy < 0 || p.TargetAccuracy > 1 || !(p.Percentile > 0 && p.Percentile < 1):
		return fmt.Errorf("an SLO of %v at percentile %v and an accuracy of %v, expected a positive SLO or an accuracy up to 1, at a share between 0 and 1", p.SLO, p.Percentile, p.TargetAccuracy)
	case len(p.RangeEdges) == 0 || len(p.RangeEdges) != len(p.RangeWeights):
		return fmt.Errorf("%d ranges with %d weights, expected at least one range and a weight for each", len(p.RangeEdges), len(p.RangeWeights))
	case p.PlanningSamples == nil || p.PlanningSamples.N == 0 || len(p.PlanningSamples.Levels) != len(p.Models):
		return fmt.Errorf("no samples of every model to plan on")
	case p.Grid < 2:
		return fmt.Errorf("a grid of %d quantiles, expected at least 2", p.Grid)
	}

	// Edges ascend.
	previousEdge := 0.0
	for _, edge := range p.RangeEdges {
		if !(edge > previousEdge) || math.IsInf(edge, 0) {
			return fmt.Errorf("rates %v, expected positive and ascending ones", p.RangeEdges)
		}
		previousEdge = edge
	}

	// Every model has a variant per kind and at least one latency.
	for m := range p.Models {
		if len(p.Models[m].Variants) != len(p.Kinds) {
			return fmt.Errorf("model %s on %d kinds of devices, expected %d", p.Models[m].Name, len(p.Models[m].Variants), len(p.Kinds))
		}
		if len(p.Models[m].FastestTimes) == 0 {
			return fmt.Errorf("no latency of model %s", p.Models[m].Name)
		}
	}
	return nil
}

// WithSLO returns the problem under another SLO.
func (p *Problem) WithSLO(slo time.Duration) *Problem {
	q := *p
	q.SLO = slo
	return &q
}

// DeviceCounts returns the number of devices of every kind.
func (p *Problem) DeviceCounts() (n []int) {
	return lists.Map(len(p.Kinds), func(k int) int { return p.Kinds[k].Devices })
}

// WithDevices returns the problem with other numbers of devices, by kind.
func (p *Problem) WithDevices(n []int) *Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	for k := range q.Kinds {
		q.Kinds[k].Devices = n[k]
	}
	return &q
}

// PlannedAccuracy returns the share of the planning samples that a cascade answers correctly.
func PlannedAccuracy(p *Problem, c *Cascade) float64 {
	return float64(c.CorrectCount) / float64(p.PlanningSamples.N)
}

// WeightedSum returns the sum of values of the ranges, by weight.
func (p *Problem) WeightedSum(list []float64) float64 {
	return lists.Sum(len(list), func(r int) float64 { return p.RangeWeights[r] * list[r] })
}

// SumTolerance is more than the rounding of sums of weighted accuracies.
const SumTolerance = 1e-12

// TargetTolerance is the distance below the target at which a relaxation still counts as reaching it, because
// programs are only solved to that precision.
const TargetTolerance = 1e-7

// MissesTarget reports whether an accuracy is below the target.
func (p *Problem) MissesTarget(accuracy float64) bool {
	return accuracy < p.TargetAccuracy-SumTolerance
}

// Running says what devices hold under the plan that runs, and how many of them a new plan may move. A device moves if it
// loads a model or stage that it does not hold.
type Running struct {
	Devices  []RunningDevices
	MaxMoved int
}

// RunningDevices are devices of a kind that hold the same.
type RunningDevices struct {
	Kind     int    // index of the kind
	ModelSet uint32 // bits of the models that they hold whole
	Stages   []RunningStage
	Count    int
}

// RunningStage is a part of a model that a device holds.
type RunningStage struct {
	Model                int // index of the model
	FirstBlock, EndBlock int // blocks, half-open
}

// WithRunning returns the problem of plans that move at most maxMoved of some devices that run.
func (p *Problem) WithRunning(devices []RunningDevices, maxMoved int) *Problem {
	q := *p
	q.Running = &Running{Devices: devices, MaxMoved: maxMoved}
	return &q
}
