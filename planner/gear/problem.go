package gear

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

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

	maxBatchTime  time.Duration // limit on the time of a batch of several samples; if 0, the SLO limits it
	onlyFastKinds bool          // leaves out a model on a kind where one sample takes longer than maxBatchTime but not on another kind
}

// Model is a model of the family.
type Model struct {
	Name         string
	Variants     []Variant       // by kind of devices
	FastestTimes []time.Duration // [b-1]: the undisturbed time of a batch of b on the kind where it is fastest
}

// NewModel returns the model that has the given variant on each kind of devices.
func NewModel(name string, variants ...Variant) Model {
	m := Model{Name: name, Variants: variants}
	for _, v := range variants {
		for b, t := range v.MedianTimes {
			if b == len(m.FastestTimes) {
				m.FastestTimes = append(m.FastestTimes, t)
			}
			m.FastestTimes[b] = min(m.FastestTimes[b], t)
		}
	}
	return m
}

// cheapestBatch returns the batch size at which a variant (a model on a kind of devices) is cheapest per sample
// within the SLO and the limit on batches, and its seconds per sample. If not even one sample keeps the SLO, it
// returns 0 and infinity.
func cheapestBatch(p *Problem, v Variant) (batch int, secondsPerSample float64) {
	secondsPerSample = math.Inf(1)
	for b, t := range v.MedianTimes {
		if t > p.SLO || b > 0 && p.maxBatchTime > 0 && t > p.maxBatchTime {
			continue
		}
		if perSample := v.meanTime(b+1).Seconds() / float64(b+1); perSample <= secondsPerSample {
			batch, secondsPerSample = b+1, perSample
		}
	}
	return batch, secondsPerSample
}

// batchesAndSpeeds returns the largest batch and the seconds per sample, by kind and model. They are 0 and
// infinity if a model misses the SLO on the kind or does not fit into its memory.
func batchesAndSpeeds(p *Problem) (maxBatch [][]int, secondsPerSample [][]float64) {
	for k, kind := range p.Kinds {
		maxBatch, secondsPerSample = append(maxBatch, make([]int, len(p.Models))), append(secondsPerSample, slices.Repeat([]float64{math.Inf(1)}, len(p.Models)))
		for m := range p.Models {
			if v := p.Models[m].Variants[k]; (kind.Memory == 0 || v.Memory <= kind.Memory) && !(p.onlyFastKinds && fasterElsewhere(p, m, k)) {
				maxBatch[k][m], secondsPerSample[k][m] = cheapestBatch(p, v)
			}
		}
	}
	return maxBatch, secondsPerSample
}

// withBatchLimits returns the problem under up to three limits on the time of a batch: as long as the SLO; at
// most half as long, because the queue in front of long batches of an expensive model can cost more time than
// these save; and the same without models on kinds where a single sample takes longer, if another kind is
// faster. A limit that changes no batch size is left out.
func withBatchLimits(p *Problem) (problems []*Problem) {
	fullSLO, halfSLO := *p, *p
	fullSLO.maxBatchTime, halfSLO.maxBatchTime = 0, p.SLO/2
	fastKinds := halfSLO
	fastKinds.onlyFastKinds = true
	var previousBatch [][]int
	for _, q := range []*Problem{&fullSLO, &halfSLO, &fastKinds} {
		if batch, _ := batchesAndSpeeds(q); !slices.EqualFunc(previousBatch, batch, slices.Equal[[]int]) {
			problems, previousBatch = append(problems, q), batch
		}
	}
	return problems
}

// sum returns the sum of a list.
func sum(list []float64) float64 {
	s := 0.0
	for _, x := range list {
		s += x
	}
	return s
}

// minLatency returns the least tail latency of a cascade. That is the time through batches of one of all its
// models, except those that are reached by no more samples than the percentile allows to be late.
func (p *Problem) minLatency(c *Cascade) time.Duration {
	maxLate := int32((1 - p.Percentile) * float64(p.PlanningSamples.N))
	latency := time.Duration(0)
	for k, m := range c.Models {
		if c.ReachCounts[k] <= maxLate {
			break
		}
		latency += p.Models[m].FastestTimes[0]
	}
	return latency
}

// cascadesInTime returns the cascades whose least tail latency keeps the SLO.
func (p *Problem) cascadesInTime(list []Cascade) []Cascade {
	inTime := make([]Cascade, 0, len(list))
	for i := range list {
		if p.minLatency(&list[i]) <= p.SLO {
			inTime = append(inTime, list[i])
		}
	}
	return inTime
}

// maxModels limits the family, because some steps visit all of its subsets.
const maxModels = 12

// validate returns an error if the problem has no solution by its form: no devices, no samples, or numbers that
// are out of range or inconsistent in length.
func (p *Problem) validate() error {
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
