package pooldraw

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// Synthetic is the size of a made-up instance.
type Synthetic struct {
	Seed                                uint64
	Models, Classes, Kinds, GPUs        int
	Layers, Partitions, Shares, Batches int
	Rounding                            problem.Rounding
}

// Problem makes costs that look like measured ones: kinds of different speed,
// and models that gain differently from the faster ones; layers of very unequal
// weight, cuts that shrink along the model; batches and shares that pay in
// part. Every class of a model has its own SLO and weight, and the same costs.
func (z Synthetic) Problem() *problem.Problem {
	r := rand.New(rand.NewPCG(z.Seed, 1))
	in := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	p := &problem.Problem{Problem: stages.Problem{MaxPartitions: z.Partitions}, Rounding: z.Rounding, MarginShare: 0.4}
	speed := make([]float64, z.Kinds) // time per work: 1 is the fastest
	left := z.GPUs
	for k := range z.Kinds {
		speed[k] = math.Pow(8, float64(k)/float64(max(z.Kinds-1, 1)))
		n := z.GPUs / z.Kinds
		if k+1 == z.Kinds {
			n = left
		}
		left -= n
		pool := stages.Pool{Kind: fmt.Sprintf("K%d", k), Count: n, MaxShares: z.Shares, PerNode: 1 << r.IntN(3), Gbps: []float64{6, 10, 25}[r.IntN(3)]}
		p.Pools = append(p.Pools, pool)
	}
	for d := range z.Models {
		total := in(3, 20) // milliseconds at batch 1 on the fastest kind
		shape := make([]float64, z.Layers)
		sum := 0.0
		for i := range shape {
			shape[i] = math.Exp(in(-1, 1))
			sum += shape[i]
		}
		m := stages.Model{Weights: make([]int64, z.Layers)}
		start, fall := in(3e5, 1.5e6), in(1, 4)
		for i := range z.Layers {
			shape[i] *= total / sum
			m.Weights[i] = 1 << 20
			if i+1 < z.Layers {
				m.CutBytes = append(m.CutBytes, int64(start*math.Exp(-fall*float64(i)/float64(z.Layers))*in(0.3, 1.7)))
			}
		}
		fixed, crowd := in(0.25, 0.7), in(0.7, 0.95)
		for k := range z.Kinds {
			affinity := in(0.75, 1.3)
			tilt := in(-0.3, 0.3) // early layers suit some kinds better
			var shares []stages.ShareCosts
			for v := 1; v <= z.Shares; v++ {
				var s stages.ShareCosts
				for b := 1; b <= max(z.Batches/v, 1); b *= 2 {
					c := stages.BatchCost{Batch: b, Blocks: make([]time.Duration, z.Layers)}
					f := speed[k] * affinity * (fixed + (1-fixed)*float64(b)) * math.Pow(float64(v), crowd)
					for i := range z.Layers {
						at := 1 + tilt*(float64(i)/float64(z.Layers)-0.5)
						c.Blocks[i] = time.Duration(math.Round(shape[i]*f*at*1e6)) * time.Nanosecond
					}
					s.Batches = append(s.Batches, c)
				}
				shares = append(shares, s)
			}
			m.ShareCosts = append(m.ShareCosts, shares)
		}
		weight := in(0.5, 2)
		for class := range z.Classes {
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

// Classed is the problem with classes that run the blocks of one network.
func (z Synthetic) Classed() *problem.Problem {
	p := z.Problem()
	for d := range p.Models {
		p.Models[d].Network = fmt.Sprintf("m%d", d/z.Classes)
	}
	return p
}
