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
	Models     []Model     // the family, in the order in which cascades ask its models
	Thresholds [][]float64 // by model: certainties at the quantiles 1/Grid, 2/Grid, …
	Planned    *Samples    // that cascades are chosen on
	HeldOut    *Samples    // that accuracies and trials are checked on; nil or empty if there are none
	Grid       int         // number of levels of a model's certainty

	Kinds []Kind // kinds of devices
	// Blocks has the models block by block, with the bytes that cross between devices. Its models and pools are in
	// the order of Models and Kinds. If it is nil, models run whole only.
	Blocks *stages.Problem

	// SLO is the latency that every range keeps. Target is the weighted accuracy to reach. Without an accuracy
	// target the accuracy is maximised, without an SLO the latency is minimised. With both, the number or price of
	// the devices is minimised, up to the devices of Kinds.
	SLO        time.Duration
	Beside     time.Duration // time of a request outside of its runs
	FrontEnd   time.Duration // time for which a request occupies the front end
	Target     float64       // 0 if no accuracy is asked for
	Percentile float64       // of the SLO, such as 0.95
	Surplus    float64       // margin that kind.Problem keeps back; trials are longer by trialLengthFactor
	Drift      float64       // fraction by which trials run batches slower than profiled
	Edges      []float64     // upper edge of every range, in requests per second, ascending
	Weights    []float64     // share of the requests in every range; they sum to 1
	ByRate     []float64     // MeasuredWeights, if RangeWeights are ServedWeights; else nil

	// OverRequests says that all requests together keep the SLO, and not every range. Their rates are those that
	// the weights describe. A range with few requests may then be late if others are not. MeasuredRates has the
	// requests of every second that the weights were made from, if they are known. The plan is then simulated on
	// them. ScopeUnspecified says that the workload does not name the scope of the SLO. It is then the ranges,
	// unless one cascade for all measured rates is more accurate with the requests as scope.
	Overall, Either bool
	Measured        []float64

	longest  time.Duration // limit on the time of a batch of several samples; if 0, the SLO limits it
	fastOnly bool          // leaves out a model on a kind where one sample takes longer than maxBatchTime but not on another kind
}

// Model is a model of the family.
type Model struct {
	Name  string
	On    []Variant       // by kind of devices
	Times []time.Duration // [b-1]: the undisturbed time of a batch of b on the kind where it is fastest
}

// NewModel returns the model that has the given variant on each kind of devices.
func NewModel(name string, on ...Variant) Model {
	m := Model{Name: name, On: on}
	for _, v := range on {
		for b, t := range v.Times {
			if b == len(m.Times) {
				m.Times = append(m.Times, t)
			}
			m.Times[b] = min(m.Times[b], t)
		}
	}
	return m
}

// cheapestBatch returns the batch size at which a variant is cheapest per sample within the SLO, and its seconds
// per sample. If not even one sample keeps the SLO, it returns 0 and infinity.
func cheapestBatch(p *Problem, v Variant) (batch int, per float64) {
	per = math.Inf(1)
	for b, t := range v.Times {
		if t > p.SLO || b > 0 && p.longest > 0 && t > p.longest {
			continue
		}
		if one := v.run(b+1).Seconds() / float64(b+1); one <= per {
			batch, per = b+1, one
		}
	}
	return batch, per
}

// batchesAndSpeeds returns the largest batch and the seconds per sample, by kind and model. They are 0 and
// infinity if a model misses the SLO on the kind or does not fit into its memory.
func speedsOf(p *Problem) (batch [][]int, per [][]float64) {
	for k, kind := range p.Kinds {
		batch, per = append(batch, make([]int, len(p.Models))), append(per, slices.Repeat([]float64{math.Inf(1)}, len(p.Models)))
		for m := range p.Models {
			if v := p.Models[m].On[k]; (kind.Memory == 0 || v.Memory <= kind.Memory) && !(p.fastOnly && elsewhere(p, m, k)) {
				batch[k][m], per[k][m] = cheapestBatch(p, v)
			}
		}
	}
	return batch, per
}

// withBatchLimits returns the problem under up to three limits on batches: as long as the SLO; at most half as
// long, because the queue in front of long batches of an expensive model can cost more time than these save; and
// the same without models on kinds where a single sample takes longer, if another kind is faster. A limit that
// changes no batch size is left out.
func batchLimits(p *Problem) (list []*Problem) {
	whole, half := *p, *p
	whole.longest, half.longest = 0, p.SLO/2
	fast := half
	fast.fastOnly = true
	var before [][]int
	for _, q := range []*Problem{&whole, &half, &fast} {
		if batch, _ := speedsOf(q); !slices.EqualFunc(before, batch, slices.Equal[[]int]) {
			list, before = append(list, q), batch
		}
	}
	return list
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
func (p *Problem) alone(c *Cascade) time.Duration {
	most := int32((1 - p.Percentile) * float64(p.Planned.N))
	path := time.Duration(0)
	for k, m := range c.Models {
		if c.Reach[k] <= most {
			break
		}
		path += p.Models[m].Times[0]
	}
	return path
}

// cascadesInTime returns the cascades whose least tail latency keeps the SLO.
func (p *Problem) inTime(list []Cascade) []Cascade {
	kept := make([]Cascade, 0, len(list))
	for i := range list {
		if p.alone(&list[i]) <= p.SLO {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// maxModels limits the family, because some steps visit all of its subsets.
const maxModels = 12

// validate returns an error if the problem has no solution by its form: no devices, no samples, or numbers that
// are out of range or inconsistent in length.
func (p *Problem) check() error {
	switch {
	case len(p.Models) == 0 || len(p.Models) > maxModels:
		return fmt.Errorf("a family of %d models, expected 1 to %d", len(p.Models), maxModels)
	case !slices.ContainsFunc(p.Kinds, func(k Kind) bool { return k.Devices > 0 }):
		return errors.New("no device, expected at least 1")
	case p.SLO < 0 || p.SLO == 0 && p.Target == 0 || p.Target < 0 || p.Target > 1 || !(p.Percentile > 0 && p.Percentile < 1):
		return fmt.Errorf("an SLO of %v at percentile %v and an accuracy of %v, expected a positive SLO or an accuracy up to 1, at a share between 0 and 1", p.SLO, p.Percentile, p.Target)
	case len(p.Edges) == 0 || len(p.Edges) != len(p.Weights):
		return fmt.Errorf("%d ranges with %d weights, expected at least one range and a weight for each", len(p.Edges), len(p.Weights))
	case p.Planned == nil || p.Planned.N == 0 || len(p.Planned.Levels) != len(p.Models):
		return fmt.Errorf("no samples of every model to plan on")
	case p.Grid < 2:
		return fmt.Errorf("a grid of %d quantiles, expected at least 2", p.Grid)
	}

	// Edges ascend.
	below := 0.0
	for _, e := range p.Edges {
		if !(e > below) || math.IsInf(e, 0) {
			return fmt.Errorf("rates %v, expected positive and ascending ones", p.Edges)
		}
		below = e
	}

	// Every model has a variant per kind and at least one latency.
	for m := range p.Models {
		if len(p.Models[m].On) != len(p.Kinds) {
			return fmt.Errorf("model %s on %d kinds of devices, expected %d", p.Models[m].Name, len(p.Models[m].On), len(p.Kinds))
		}
		if len(p.Models[m].Times) == 0 {
			return fmt.Errorf("no latency of model %s", p.Models[m].Name)
		}
	}
	return nil
}
