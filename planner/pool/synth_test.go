package pool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
)

// synthetic is the size of a made-up instance.
type synthetic struct {
	seed                                uint64
	models, classes, kinds, gpus        int
	layers, partitions, shares, batches int
	rounding                            Rounding
}

// problem makes costs that look like measured ones: kinds of different speed,
// and models that gain differently from the faster ones; layers of very unequal
// weight, cuts that shrink along the model; batches and shares that pay in
// part. Every class of a model has its own SLO and weight, and the same costs.
func (z synthetic) problem() *Problem {
	r := rand.New(rand.NewPCG(z.seed, 1))
	in := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	p := &Problem{Problem: stages.Problem{MaxPartitions: z.partitions}, Rounding: z.rounding, MarginShare: 0.4}
	speed := make([]float64, z.kinds) // time per work: 1 is the fastest
	left := z.gpus
	for k := range z.kinds {
		speed[k] = math.Pow(8, float64(k)/float64(max(z.kinds-1, 1)))
		n := z.gpus / z.kinds
		if k+1 == z.kinds {
			n = left
		}
		left -= n
		pool := stages.Pool{Kind: fmt.Sprintf("K%d", k), Count: n, MaxShares: z.shares, PerNode: 1 << r.IntN(3), Gbps: []float64{6, 10, 25}[r.IntN(3)]}
		p.Pools = append(p.Pools, pool)
	}
	for d := range z.models {
		total := in(3, 20) // milliseconds at batch 1 on the fastest kind
		shape := make([]float64, z.layers)
		sum := 0.0
		for i := range shape {
			shape[i] = math.Exp(in(-1, 1))
			sum += shape[i]
		}
		m := stages.Model{Weights: make([]int64, z.layers)}
		start, fall := in(3e5, 1.5e6), in(1, 4)
		for i := range z.layers {
			shape[i] *= total / sum
			m.Weights[i] = 1 << 20
			if i+1 < z.layers {
				m.CutBytes = append(m.CutBytes, int64(start*math.Exp(-fall*float64(i)/float64(z.layers))*in(0.3, 1.7)))
			}
		}
		fixed, crowd := in(0.25, 0.7), in(0.7, 0.95)
		for k := range z.kinds {
			affinity := in(0.75, 1.3)
			tilt := in(-0.3, 0.3) // early layers suit some kinds better
			var shares []stages.ShareCosts
			for v := 1; v <= z.shares; v++ {
				var s stages.ShareCosts
				for b := 1; b <= max(z.batches/v, 1); b *= 2 {
					c := stages.BatchCost{Batch: b, Blocks: make([]time.Duration, z.layers)}
					f := speed[k] * affinity * (fixed + (1-fixed)*float64(b)) * math.Pow(float64(v), crowd)
					for i := range z.layers {
						at := 1 + tilt*(float64(i)/float64(z.layers)-0.5)
						c.Blocks[i] = time.Duration(math.Round(shape[i]*f*at*1e6)) * time.Nanosecond
					}
					s.Batches = append(s.Batches, c)
				}
				shares = append(shares, s)
			}
			m.ShareCosts = append(m.ShareCosts, shares)
		}
		weight := in(0.5, 2)
		for class := range z.classes {
			c := m
			c.Name = fmt.Sprintf("m%d.%d", d, class)
			c.SLO = time.Duration(total*float64(5+4*class)*1e3) * time.Microsecond * 3 / 2
			c.Margin = kind.Margin(c.SLO, p.MarginShare)
			c.Weight = weight * in(0.3, 1)
			p.Models = append(p.Models, c)
		}
	}
	return p
}

// classed is the problem with classes that run the blocks of one network.
func (z synthetic) classed() *Problem {
	p := z.problem()
	for d := range p.Models {
		p.Models[d].Network = fmt.Sprintf("m%d", d/z.classes)
	}
	return p
}
