package pooldraw

import (
	"math"
	"time"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// EveryPipeline lists all pipelines of a model that keep the SLO, by its own
// loops over partitions, cuts, kinds, shares and batches: no pruning.
func EveryPipeline(p *problem.Problem, d int) []stages.Template {
	m := &p.Models[d]
	var out []stages.Template
	largest := 0
	for _, pool := range m.ShareCosts {
		for _, s := range pool {
			for _, c := range s.Batches {
				largest = max(largest, c.Batch)
			}
		}
	}
	var grow func(t stages.Template)
	grow = func(t stages.Template) {
		first := 0
		if n := len(t.Stages); n > 0 {
			first = t.Stages[n-1].EndBlock
		}
		if first == m.NumBlocks() {
			t.Stages = append([]stages.Stage(nil), t.Stages...)
			if finishPipeline(p, m, &t) {
				out = append(out, t)
			}
			return
		}
		if len(t.Stages) == p.MaxPartitions || first > 0 && m.CutBytes[first-1] < 0 {
			return
		}
		for last := first + 1; last <= m.NumBlocks(); last++ {
			for k := range p.Pools {
				for v := 1; v <= p.Pools[k].MaxShares; v++ {
					next := t
					next.Stages = append(t.Stages[:len(t.Stages):len(t.Stages)], stages.Stage{FirstBlock: first, EndBlock: last, Pool: k, Share: v})
					grow(next)
				}
			}
		}
	}
	for b := 1; b <= largest; b++ {
		grow(stages.Template{Model: d, Batch: b})
	}
	return out
}

// finishPipeline fills in times and rates by the formulas of the reference
// setting; false where the SLO or the memory is broken.
func finishPipeline(p *problem.Problem, m *stages.Model, t *stages.Template) bool {
	us := 0.0 // of everything
	for i := range t.Stages {
		s := &t.Stages[i]
		pool := &p.Pools[s.Pool]
		var cost *stages.BatchCost
		for j := range m.ShareCosts[s.Pool][s.Share-1].Batches {
			if c := &m.ShareCosts[s.Pool][s.Share-1].Batches[j]; c.Batch >= t.Batch && (cost == nil || c.Batch < cost.Batch) {
				cost = c
			}
		}
		if cost == nil {
			return false
		}
		infer := pieceTime(cost, m.CutBytes, s.FirstBlock, s.EndBlock)
		s.MaxTime = time.Duration(math.Round(infer * 1000))
		s.Rate = 1e6 * float64(t.Batch) / infer
		us += infer
		link := func(a, b int, bytes int64) float64 {
			ga, gb := p.Pools[a].Gbps, p.Pools[b].Gbps
			g := math.Min(ga, gb)
			if g == 0 {
				g = math.Max(ga, gb)
			}
			if g == 0 {
				return 0
			}
			return float64(bytes) * 8 / (g * 1000)
		}
		if i > 0 {
			if x := link(t.Stages[i-1].Pool, s.Pool, m.CutBytes[s.FirstBlock-1]); x > 0 && pool.Gbps > 0 {
				s.Rate = math.Min(s.Rate, 1e6/x/float64(s.Share*pool.PerNode))
			}
		}
		if i+1 < len(t.Stages) {
			x := link(s.Pool, t.Stages[i+1].Pool, m.CutBytes[s.EndBlock-1])
			us += math.Round(x*float64(t.Batch)*1000) / 1000
			if x > 0 && pool.Gbps > 0 {
				s.Rate = math.Min(s.Rate, 1e6/x/float64(s.Share*pool.PerNode))
			}
		}
		var weights, whole int64
		for b, w := range m.Weights {
			whole += w
			if b >= s.FirstBlock && b < s.EndBlock {
				weights += w
			}
		}
		s.Memory = weights + max(0, cost.Memory-whole)
		need := s.Memory * int64(s.Share)
		for j := range i {
			if pool.TimeShared && t.Stages[j].Pool == s.Pool {
				need += t.Stages[j].Memory // every device holds all stages
			}
		}
		if pool.Memory > 0 && need > pool.Memory {
			return false
		}
	}
	t.Latency = time.Duration(math.Round(us * 1000))
	build := time.Duration(math.Round(m.BatchWaitMicros * float64(t.Batch-1) * 1000))
	return m.Margin+build+t.Latency <= m.SLO
}
