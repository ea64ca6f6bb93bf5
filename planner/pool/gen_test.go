package pool

import (
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/stages"
)

// size bounds a random problem.
type size struct {
	models, pools, count, shares, blocks, batches, partitions int
	timePools, memory, floors                                 bool
}

// drawProblem makes a problem of random costs. SLOs are drawn around what a
// pipeline takes, so that some models fit easily and others hardly.
func drawProblem(t *rapid.T, z size) *Problem {
	p := &Problem{
		Problem:     stages.Problem{MaxPartitions: rapid.IntRange(1, z.partitions).Draw(t, "partitions")},
		Rounding:    Rounding(rapid.IntRange(0, 1).Draw(t, "rounding")),
		MarginShare: rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(t, "margin"),
	}
	for k := range rapid.IntRange(1, z.pools).Draw(t, "pools") {
		pool := stages.Pool{
			Kind: string(rune('A' + k)), Count: rapid.IntRange(1, z.count).Draw(t, "count"),
			MaxShares: rapid.IntRange(1, z.shares).Draw(t, "shares"), PerNode: rapid.IntRange(1, 2).Draw(t, "per node"),
			Gbps: rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "gbps"),
		}
		if z.timePools && rapid.Bool().Draw(t, "time") {
			pool.Time, pool.MaxShares = true, 1
		}
		if z.memory && rapid.Bool().Draw(t, "limited") {
			pool.Memory = int64(rapid.IntRange(50, 400).Draw(t, "memory"))
		}
		p.Pools = append(p.Pools, pool)
	}
	for d := range rapid.IntRange(1, z.models).Draw(t, "models") {
		m := stages.Model{Name: string(rune('a' + d)), Weight: rapid.SampledFrom([]float64{0.3, 0.5, 1, 2}).Draw(t, "weight")}
		blocks := rapid.IntRange(1, z.blocks).Draw(t, "blocks")
		for b := range blocks {
			m.Weights = append(m.Weights, int64(rapid.IntRange(1, 60).Draw(t, "weights")))
			if b+1 < blocks {
				m.CutBytes = append(m.CutBytes, int64(rapid.IntRange(-1, 500_000).Draw(t, "cut")))
			}
		}
		least := time.Duration(0)
		for range p.Pools {
			speed := rapid.IntRange(1, 5).Draw(t, "speed")
			var shares []stages.Share
			for v := 1; v <= z.shares; v++ {
				var s stages.Share
				for b := 1; b <= z.batches; b++ {
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
					s.Batches = append(s.Batches, c)
				}
				shares = append(shares, s)
			}
			m.Costs = append(m.Costs, shares)
		}
		m.SLO = least*time.Duration(rapid.IntRange(8, 60).Draw(t, "slo"))/10 + time.Millisecond
		m.Margin = Margin(m.SLO, p.MarginShare)
		if rapid.Bool().Draw(t, "build") {
			m.Build, m.EveryBatch = float64(rapid.IntRange(0, 500).Draw(t, "build us")), true
		}
		if z.floors && rapid.Bool().Draw(t, "floor") {
			m.MinRPS = float64(rapid.IntRange(1, 300).Draw(t, "min rps"))
		}
		p.Models = append(p.Models, m)
	}
	return p
}

// asClasses makes some of the models SLO classes of the first, and lets some
// time-shared pools hold the same blocks once.
func asClasses(t *rapid.T, p *Problem) {
	first := &p.Models[0]
	for d := range p.Models {
		m := &p.Models[d]
		if d == 0 || !rapid.Bool().Draw(t, "class of the first") {
			continue
		}
		m.Network, m.Weights, m.CutBytes, m.Costs = first.Name, first.Weights, first.CutBytes, first.Costs
		m.SLO = first.SLO * time.Duration(rapid.IntRange(5, 30).Draw(t, "of its SLO")) / 10
		m.Margin = Margin(m.SLO, p.MarginShare)
	}
	for k := range p.Pools {
		p.Pools[k].OneCopy = p.Pools[k].Time && rapid.Bool().Draw(t, "one copy")
	}
}
