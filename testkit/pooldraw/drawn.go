package pooldraw

import (
	"math"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// Size bounds a random problem.
type Size struct {
	Models, Pools, Count, Shares, Blocks, Batches, Partitions int
	TimePools, Memory, Floors                                 bool
}

// DrawProblem makes a problem of random costs. SLOs are drawn around what a
// pipeline takes, so that some models fit easily and others hardly.
func DrawProblem(t *rapid.T, z Size) *problem.Problem {
	p := &problem.Problem{
		Problem:     stages.Problem{MaxPartitions: rapid.IntRange(1, z.Partitions).Draw(t, "partitions")},
		Rounding:    problem.Rounding(rapid.IntRange(0, 1).Draw(t, "rounding")),
		MarginShare: rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(t, "margin"),
	}
	for k := range rapid.IntRange(1, z.Pools).Draw(t, "pools") {
		pool := stages.Pool{
			Kind: string(rune('A' + k)), Count: rapid.IntRange(1, z.Count).Draw(t, "count"),
			MaxShares: rapid.IntRange(1, z.Shares).Draw(t, "shares"), PerNode: rapid.IntRange(1, 2).Draw(t, "per node"),
			Gbps: rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "gbps"),
		}
		if z.TimePools && rapid.Bool().Draw(t, "time") {
			pool.TimeShared, pool.MaxShares = true, 1
		}
		if z.Memory && rapid.Bool().Draw(t, "limited") {
			pool.Memory = int64(rapid.IntRange(50, 400).Draw(t, "memory"))
		}
		p.Pools = append(p.Pools, pool)
	}
	for d := range rapid.IntRange(1, z.Models).Draw(t, "models") {
		m := stages.Model{Name: string(rune('a' + d)), Weight: rapid.SampledFrom([]float64{0.3, 0.5, 1, 2}).Draw(t, "weight")}
		blocks := rapid.IntRange(1, z.Blocks).Draw(t, "blocks")
		for b := range blocks {
			m.Weights = append(m.Weights, int64(rapid.IntRange(1, 60).Draw(t, "weights")))
			if b+1 < blocks {
				m.CutBytes = append(m.CutBytes, int64(rapid.IntRange(-1, 500_000).Draw(t, "cut")))
			}
		}
		least := time.Duration(0)
		for range p.Pools {
			speed := rapid.IntRange(1, 5).Draw(t, "speed")
			var shares []stages.ShareCosts
			for v := 1; v <= z.Shares; v++ {
				var s stages.ShareCosts
				for b := 1; b <= z.Batches; b++ {
					c := stages.BatchCost{Batch: b, Memory: int64(rapid.IntRange(0, 120).Draw(t, "used"))}
					total := time.Duration(0)
					for range blocks {
						us := rapid.IntRange(0, 2000).Draw(t, "us") * speed * v * (b + 1) / 2
						c.Blocks = append(c.Blocks, time.Duration(us)*time.Microsecond)
						total += c.Blocks[len(c.Blocks)-1]
					}
					if least == 0 || total < least {
						least = total
					}
					c.SetPieces(drawPieces(t, blocks, c.Blocks), m.CutBytes)
					s.Batches = append(s.Batches, c)
				}
				shares = append(shares, s)
			}
			m.ShareCosts = append(m.ShareCosts, shares)
		}
		m.SLO = least*time.Duration(rapid.IntRange(8, 60).Draw(t, "slo"))/10 + time.Millisecond
		m.Margin = kind.Margin(m.SLO, p.MarginShare)
		if rapid.Bool().Draw(t, "build") {
			m.BatchWaitMicros, m.EveryBatch = float64(rapid.IntRange(0, 500).Draw(t, "build us")), true
		}
		if z.Floors && rapid.Bool().Draw(t, "floor") {
			m.MinRPS = float64(rapid.IntRange(1, 300).Draw(t, "min rps"))
		}
		p.Models = append(p.Models, m)
	}
	return p
}

// drawPieces draws what was measured in one piece: nothing, the whole model, some
// ranges. Pieces may take more than their blocks, or less than a part of them.
func drawPieces(t *rapid.T, blocks int, times []time.Duration) []stages.MeasuredRange {
	var out []stages.MeasuredRange
	add := func(first, last int) {
		sum := time.Duration(0)
		for _, d := range times[first:last] {
			sum += max(d, time.Microsecond)
		}
		out = append(out, stages.MeasuredRange{FirstBlock: first, EndBlock: last, Time: sum * time.Duration(rapid.IntRange(50, 120).Draw(t, "of the blocks")) / 100})
	}
	if rapid.Bool().Draw(t, "whole") {
		add(0, blocks)
	}
	if !rapid.Bool().Draw(t, "ranges") {
		return out
	}
	for i := range blocks {
		for j := i + 2; j <= blocks; j++ {
			if j-i < blocks && rapid.IntRange(0, 2).Draw(t, "measured") == 0 {
				add(i, j)
			}
		}
	}
	return out
}

// pieceTime is the time of blocks [first, last) by the definition: measured, or the
// blocks less what the cuts inside cost by the smallest measured piece that holds
// them.
func pieceTime(c *stages.BatchCost, bytes []int64, first, last int) float64 {
	us := func(b int) float64 { return math.Max(1, float64(c.Blocks[b])/1000) }
	sum := func(i, j int) (s float64) {
		for b := i; b < j; b++ {
			s += us(b)
		}
		return s
	}
	var holder *stages.MeasuredRange
	for i := range c.Pieces {
		p := &c.Pieces[i]
		if p.FirstBlock == first && p.EndBlock == last {
			return math.Max(1, float64(p.Time)/1000)
		}
		if size := p.EndBlock - p.FirstBlock; p.FirstBlock <= first && last <= p.EndBlock && (holder == nil || size < holder.EndBlock-holder.FirstBlock || size == holder.EndBlock-holder.FirstBlock && p.FirstBlock < holder.FirstBlock) {
			holder = p
		}
	}
	if holder == nil || last-first == 1 {
		return sum(first, last)
	}
	known, most := true, int64(0)
	for _, b := range bytes {
		known, most = known && b >= 0, max(most, b)
	}
	cost := func(cut int, s float64) float64 {
		w := 1.0
		if known && most > 0 {
			w = float64(bytes[cut-1])
		}
		if w == 0 {
			return 0
		}
		return math.Min(s*w, math.Min(us(cut-1), us(cut)))
	}
	over := sum(holder.FirstBlock, holder.EndBlock) - math.Max(1, float64(holder.Time)/1000)
	lo, hi := -1e9, 1e9
	for range 200 {
		s, got := (lo+hi)/2, 0.0
		for cut := holder.FirstBlock + 1; cut < holder.EndBlock; cut++ {
			got += cost(cut, s)
		}
		if got < over {
			lo = s
		} else {
			hi = s
		}
	}
	out := sum(first, last)
	for cut := first + 1; cut < last; cut++ {
		out -= cost(cut, hi)
	}
	return out
}

// AsClasses makes some of the models SLO classes of the first, and lets some
// time-shared pools hold the same blocks once.
func AsClasses(t *rapid.T, p *problem.Problem) {
	first := &p.Models[0]
	for d := range p.Models {
		m := &p.Models[d]
		if d == 0 || !rapid.Bool().Draw(t, "class of the first") {
			continue
		}
		m.Network, m.Weights, m.CutBytes, m.ShareCosts = first.Name, first.Weights, first.CutBytes, first.ShareCosts
		m.SLO = first.SLO * time.Duration(rapid.IntRange(5, 30).Draw(t, "of its SLO")) / 10
		m.Margin = kind.Margin(m.SLO, p.MarginShare)
	}
	for k := range p.Pools {
		p.Pools[k].SharedWeights = p.Pools[k].TimeShared && rapid.Bool().Draw(t, "one copy")
	}
}

// ForgetPieces forgets what was measured in one piece.
func ForgetPieces(p *problem.Problem) {
	for d := range p.Models {
		for _, shares := range p.Models[d].ShareCosts {
			for v := range shares {
				for i := range shares[v].Batches {
					shares[v].Batches[i].Pieces = nil
				}
			}
		}
	}
}

// DrawMany makes a small problem of as many models as bundles are tried for: the
// drawn ones again and again, each time with other weights.
func DrawMany(t *rapid.T) *problem.Problem {
	p := DrawProblem(t, Size{Models: 3, Pools: 3, Count: 12, Shares: 3, Blocks: 4, Batches: 3, Partitions: 3, Memory: true, Floors: true})
	for drawn := p.Models; !p.UsesBundles(); {
		m := drawn[len(p.Models)%len(drawn)]
		m.Name += string(rune('0' + len(p.Models)))
		m.Weight *= rapid.Float64Range(0.5, 2).Draw(t, "of its weight")
		p.Models = append(p.Models, m)
	}
	return p
}

// OneBlock is a model of one block that takes so many milliseconds at batch 1
// on a whole device of each kind; 0: not measured there.
func OneBlock(name string, slo time.Duration, weight float64, ms ...float64) stages.Model {
	m := stages.Model{Name: name, SLO: slo, Weight: weight, Weights: []int64{1}}
	for _, v := range ms {
		var s stages.ShareCosts
		if v > 0 {
			s.Batches = []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{time.Duration(v * 1e6)}}}
		}
		m.ShareCosts = append(m.ShareCosts, []stages.ShareCosts{s})
	}
	return m
}
