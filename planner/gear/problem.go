package gear

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/stages"
)

// Problem is what is to be planned.
type Problem struct {
	Models     []Model // of the family, in the order in which they are asked
	Thresholds [][]float64
	Planned    *Samples
	HeldOut    *Samples // may be empty
	Grid       int

	Kinds []Kind // of devices
	// Blocks are the models block by block, with what crosses between devices, its
	// models and pools in the order of Models and Kinds; then models may run in stages.
	// Nil: whole models only.
	Blocks *stages.Problem

	// SLO is the latency that every range keeps, Target the weighted accuracy to
	// reach. Without a target accuracy is maximised, without an SLO latency is
	// minimised, with both the devices, up to Devices.
	SLO        time.Duration
	Beside     time.Duration // that a request takes beside its runs
	FrontEnd   time.Duration // for which a request takes up the front end
	Target     float64
	Percentile float64   // of the SLO: 0.95
	Surplus    float64   // see kind.Problem: trials are longer, see lengthened
	Drift      float64   // share by which runs take longer than profiled in trials
	Edges      []float64 // upper edge of every range of rates, ascending
	Weights    []float64 // of the ranges, sum 1
	ByRate     []float64 // where Weights follow the switch rule (Served): what the rates alone say (Measured)

	// Overall: the SLO is for all requests together, whose rates the weights
	// tell, not for every range alone. Ranges that few requests see late pay for
	// others. Measured are the requests of every second that the weights are of,
	// if known: the plan is then shown on them. Either: nobody said which; it is for
	// every range, but where one cascade for all of the measured rates is better off
	// with the other.
	Overall, Either bool
	Measured        []float64

	longest  time.Duration // that a batch of several may take; 0: the SLO
	fastOnly bool          // no model on kinds where one sample takes longer, if it takes less elsewhere
}

// Model is a model of the family.
type Model struct {
	Name  string
	On    []Variant       // by kind
	Times []time.Duration // [b-1]: of a batch of b, undisturbed, where it is fastest
}

// NewModel returns a model that takes, by kind, what variants say.
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

// cheapestBatch is the batch at which a model is cheapest per sample within the SLO, given the
// times of its batches, and its time per sample in seconds; 0 and infinite where not even
// one sample is.
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

// speedsOf are the largest batches and the seconds per sample, by kind and model; 0 and
// infinite where a model is not in time or does not fit.
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

// batchLimits are the problem with batches as long as the SLO, and with batches of at
// most half the SLO where that makes a difference: with long ones an expensive model's
// queue costs more time than it saves work. Then it is without models on kinds where even one
// sample takes longer, if it takes less elsewhere.
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

func sum(list []float64) float64 {
	s := 0.0
	for _, x := range list {
		s += x
	}
	return s
}

// alone is how long a cascade takes at least: the percentile of its way through
// batches of one.
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

// inTime leaves out cascades that miss the SLO even alone.
func (p *Problem) inTime(list []Cascade) []Cascade {
	kept := make([]Cascade, 0, len(list))
	for i := range list {
		if p.alone(&list[i]) <= p.SLO {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// maxModels bounds the family: steps go over its subsets.
const maxModels = 12

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
	below := 0.0
	for _, e := range p.Edges {
		if !(e > below) || math.IsInf(e, 0) {
			return fmt.Errorf("rates %v, expected positive and ascending ones", p.Edges)
		}
		below = e
	}
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
