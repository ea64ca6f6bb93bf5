package pool

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
)

// everyPipeline lists all pipelines of a model that keep the SLO, by its own
// loops over partitions, cuts, kinds, shares and batches: no pruning.
func everyPipeline(p *Problem, d int) []stages.Template {
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
func finishPipeline(p *Problem, m *stages.Model, t *stages.Template) bool {
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

// near is how far values may be apart relative to each other for the times of templates, which
// the planner rounds to nanoseconds.
func near(list []stages.Template) float64 {
	least := time.Hour
	for i := range list {
		for _, s := range list[i].Stages {
			least = min(least, s.MaxTime)
		}
	}
	return 2 / float64(least)
}

// bruteForce tries every replica count of every pipeline. It gives up, with
// false, where that is too much.
func bruteForce(p *Problem, templates []stages.Template) (best float64, ok bool) {
	steps := 0
	rps := make([]float64, len(p.Models))
	slots := map[slotKey]float64{}
	fits := func() bool {
		for k := range p.Pools {
			taken := 0.0
			for key, part := range slots {
				if key.pool != k {
					continue
				}
				if p.Rounding == Slot {
					part = math.Ceil(part - 1e-9)
				}
				taken += part
			}
			if taken > float64(p.Pools[k].Count)+1e-9 {
				return false
			}
		}
		return true
	}
	var try func(i int)
	try = func(i int) {
		if steps++; steps > 50_000 {
			return
		}
		theta := math.Inf(1)
		for d := range rps {
			theta = math.Min(theta, rps[d]/p.Models[d].Weight)
		}
		best = math.Max(best, theta)
		if i == len(templates) {
			return
		}
		try(i + 1)
		t := &templates[i]
		counts := make([]int, len(t.Stages))
		var choose func(si int, rate float64)
		choose = func(si int, rate float64) {
			if si == len(t.Stages) {
				before := rps[t.Model]
				rps[t.Model] += rate
				try(i + 1)
				rps[t.Model] = before
				return
			}
			s := &t.Stages[si]
			key := slotKey{t.Model, si, s.Pool}
			for g := 1; ; g++ {
				counts[si] = g
				slots[key] += 1 / float64(s.Share)
				if !fits() || steps > 50_000 {
					slots[key] -= float64(g) / float64(s.Share)
					return
				}
				choose(si+1, math.Min(rate, s.Rate*float64(g)))
			}
		}
		choose(0, math.Inf(1))
	}
	try(0)
	return best, steps <= 50_000
}

// On problems small enough to try everything, the plan is the best one, and
// the bound holds.
func TestPlansMatchBruteForce(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, size{models: 2, pools: 2, count: 2, shares: 2, blocks: 2, batches: 2, partitions: 2, memory: true})
		var all []stages.Template
		for d := range p.Models {
			all = append(all, everyPipeline(p, d)...)
		}
		want, ok := bruteForce(p, all)
		if !ok {
			return
		}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, Options{})
		var inf *kind.InfeasibleError
		if want == 0 {
			if !errors.As(err, &inf) {
				t.Fatalf("nothing serves every model, got %v, %v", outcome, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if math.Abs(outcome.Value-want) > (2e-6+near(all))*want {
			t.Errorf("value %v, trying everything gives %v", outcome.Value, want)
		}
		if outcome.Bound < want*(1-1e-9-near(all)) {
			t.Errorf("bound %v is below a plan of value %v", outcome.Bound, want)
		}
	})
	t.Logf("%d problems compared", compared)
	if compared == 0 {
		t.Error("no case was small enough to compare")
	}
}

// Leaving out dominated pipelines, and stopping early on time, loses nothing:
// the relaxation has the same value over all of them.
func TestEnumerationLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, size{models: 2, pools: 2, count: 5, shares: 3, blocks: 4, batches: 3, partitions: 3, memory: true, timePools: true})
		var every []stages.Template
		for d := range p.Models {
			list := everyPipeline(p, d)
			kept, _, err := p.undominatedTemplates(d)
			if err != nil {
				t.Fatal(err)
			}
			if (len(kept) == 0) != (len(list) == 0) || len(kept) > len(list) {
				t.Fatalf("%d pipelines, enumeration has %d", len(list), len(kept))
			}
			if len(kept) == 0 {
				return
			}
			every = append(every, list...)
		}
		few, err := p.listTemplates()
		if err != nil {
			t.Fatal(err)
		}
		value := func(list []stages.Template) float64 {
			c := *few // its units
			c.templates = list
			r, err := c.solveRelaxation(context.Background(), highs.Solver{}, nil, indexesBelow(len(list)))
			if err != nil {
				t.Fatal(err)
			}
			if r.bound < r.value*(1-1e-6) {
				t.Errorf("bound %v below the value %v of the relaxation", r.bound, r.value)
			}
			return r.value
		}
		if a, b := value(every), value(few.templates); math.Abs(a-b) > (1e-6+near(every))*a {
			t.Errorf("the relaxation has %v over all %d pipelines, %v over the %d kept", a, len(every), b, len(few.templates))
		}
	})
}
