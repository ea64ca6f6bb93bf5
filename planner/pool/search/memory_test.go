package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// inMemory is what each device of every time-shared pool holds, by its own
// arithmetic: block ranges of a network once where the pool says so.
func inMemory(p *problem.Problem, templates []stages.Template) []int64 {
	type blocks struct {
		network           string
		pool, first, last int
	}
	out := make([]int64, len(p.Pools))
	var loaded []blocks
	for i := range templates {
		m := &p.Models[templates[i].Model]
		name := m.Network
		if name == "" {
			name = m.Name
		}
		for _, s := range templates[i].Stages {
			pool := &p.Pools[s.Pool]
			if !pool.TimeShared {
				continue
			}
			var weights int64
			for b := s.FirstBlock; b < s.EndBlock; b++ {
				weights += m.Weights[b]
			}
			out[s.Pool] += s.Memory - weights
			what := blocks{name, s.Pool, s.FirstBlock, s.EndBlock}
			if !pool.SharedWeights || !slices.Contains(loaded, what) {
				out[s.Pool] += weights
			}
			loaded = append(loaded, what)
		}
	}
	return out
}

// Two SLO classes of a model have its weights in memory once: both fit where
// the weights would not fit twice, and beside a third model only as they count.
func TestClassesShareWeights(t *testing.T) {
	const mb = 1 << 20
	planned := func(memory int64, oneCopy bool) *problem.Problem {
		model := func(name, network string, batch int) stages.Model {
			return stages.Model{
				Name: name, Network: network, SLO: time.Second, Weight: 1, Weights: []int64{60 * mb, 40 * mb}, CutBytes: []int64{1000},
				ShareCosts: [][]stages.ShareCosts{{{Batches: []stages.BatchCost{{Batch: batch, Memory: 110 * mb, Blocks: []time.Duration{time.Millisecond, time.Millisecond}}}}}},
			}
		}
		p := &problem.Problem{Problem: stages.Problem{MaxPartitions: 1, Pools: []stages.Pool{{Kind: "cpu-1", Count: 2, MaxShares: 1, PerNode: 1, Memory: memory, TimeShared: true, SharedWeights: oneCopy}}}}
		p.Models = []stages.Model{model("a/fast", "a", 1), model("a/slow", "a", 4), model("b", "b", 1)}
		return p
	}
	for _, c := range []struct {
		memory  int64
		oneCopy bool
		fits    bool
	}{
		{230 * mb, true, true},          // 100 + 2 x 10 of a, 110 of b
		{230*mb - 1, true, false},       // a byte less
		{230 * mb, false, false},        // 3 x 110
		{330 * mb, false, true},         //
		{330*mb - 1, false, false},      //
		{330*mb - 1, true, true},        //
		{0, false, true},                // no limit
		{3 * 110 * mb / 2, true, false}, // a alone would
	} {
		outcome, err := Solve(context.Background(), planned(c.memory, c.oneCopy), highs.Solver{}, problem.Options{})
		if (err == nil) != c.fits {
			t.Errorf("%d bytes, weights once %v: %v", c.memory, c.oneCopy, err)
			continue
		}
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
			need := int64(330 * mb)
			if c.oneCopy {
				need = 230 * mb
			}
			if inf.Constraint != "memory" || inf.Nearest.MemoryBytes != need {
				t.Errorf("%d bytes, weights once %v: %s, %d bytes: %v", c.memory, c.oneCopy, inf.Constraint, inf.Nearest.MemoryBytes, err)
			}
		}
		if c.fits && math.Abs(outcome.Value/(2*500/(1+.25+1))-1) > 1e-6 {
			t.Errorf("%d bytes: value %v", c.memory, outcome.Value)
		}
	}
}

// onePiece is what the batch of a pipeline takes in one stage on its first pool.
func onePiece(list []stages.Template, x *stages.Template) time.Duration {
	for i := range list {
		if y := &list[i]; len(y.Stages) == 1 && y.Batch == x.Batch && y.Stages[0].Pool == x.Stages[0].Pool {
			return y.Stages[0].MaxTime
		}
	}
	return math.MaxInt64 // it may not run so
}

// On time-shared pools of little memory the plan is as good as the best over
// all sets of pipelines that fit, found by trying every set.
func TestMemoryAgainstSubsets(t *testing.T) {
	compared, proven, shared := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := tightMemory(t)
		all := usefulPipelines(p)
		want, ok := bestSet(p, all)
		if !ok {
			return
		}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
			if want > 1e-9 {
				t.Fatalf("a plan of %v exists: %v", want, inf)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if outcome.Value > want*(1+1e-5) || outcome.Bound < want*(1-1e-5) {
			t.Errorf("value %v, bound %v, trying every set gives %v", outcome.Value, outcome.Bound, want)
		}
		if outcome.Bound <= outcome.Value*(1+1e-6) {
			proven++
		}
		shared += sharedWeights(t, p, outcome)
	})
	t.Logf("%d problems compared, %d proven, %d with weights shared for lack of room", compared, proven, shared)
	if compared == 0 || proven == 0 || shared == 0 {
		t.Error("no case showed what was to be shown")
	}
}

// TightMemory draws a problem in whose pools not everything has room.
func tightMemory(t *rapid.T) *problem.Problem {
	p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 2, Count: 3, Shares: 1, Blocks: 2, Batches: 2, Partitions: 2, Memory: true, TimePools: true})
	for k := range p.Pools {
		p.Pools[k].TimeShared, p.Pools[k].MaxShares = true, 1
		p.Pools[k].Memory = int64(rapid.IntRange(60, 200).Draw(t, "bytes"))
	}
	pooldraw.AsClasses(t, p)
	for d := range p.Models {
		p.Models[d].SLO = time.Minute // waiting for others is no matter here
		// Costs within two orders of magnitude: the solver's tolerance is of the largest rate.
		for _, pool := range p.Models[d].ShareCosts {
			for _, c := range pool[0].Batches {
				for b := range c.Blocks {
					c.Blocks[b] = max(c.Blocks[b], 200*time.Microsecond)
				}
			}
		}
	}
	return p
}

// usefulPipelines are all pipelines but those in two stages on one pool. What they do,
// one piece does in fewer hops, unless that was measured to take longer than they.
func usefulPipelines(p *problem.Problem) (all []stages.Template) {
	for d := range p.Models {
		list := pooldraw.EveryPipeline(p, d)
		for _, x := range list {
			if len(x.Stages) == 1 || x.Stages[0].Pool != x.Stages[1].Pool || x.Stages[0].MaxTime+x.Stages[1].MaxTime < onePiece(list, &x) {
				all = append(all, x)
			}
		}
	}
	return all
}

// bestSet is the best value of all sets of pipelines that fit into memory together. ok
// is false where there are too many sets.
func bestSet(p *problem.Problem, all []stages.Template) (want float64, ok bool) {
	fits := func(set []int) bool {
		var list []stages.Template
		for _, i := range set {
			list = append(list, all[i])
		}
		for k, bytes := range inMemory(p, list) {
			if bytes > p.Pools[k].Memory {
				return false
			}
		}
		return true
	}
	c := &templates.Catalogue{Problem: p, Templates: all}
	c.SetUnits()
	sets, steps := 0, 0
	var grow func(set []int, from int)
	grow = func(set []int, from int) {
		if steps++; steps > 800 || sets > 20 {
			return
		}
		whole := true
		for i := range all {
			if slices.Contains(set, i) {
				continue
			}
			if with := append(slices.Clone(set), i); fits(with) {
				whole = false // of the sets that fit only those that nothing can join count
				if i >= from {
					grow(with, i+1)
				}
			}
		}
		if !whole {
			return
		}
		sets++
		if r, err := relaxation.Solve(context.Background(), c, highs.Solver{}, nil, set); err == nil {
			want = max(want, r.Value*c.Units.Throughput)
		}
	}
	grow(nil, 0)
	return want, steps <= 800 && sets <= 20
}

// sharedWeights counts the pools in which a plan has room only because pipelines share
// weights. Every pool has to have room.
func sharedWeights(t *rapid.T, p *problem.Problem, outcome *problem.Outcome) (shared int) {
	var list []stages.Template
	for i := range outcome.Pipelines {
		list = append(list, outcome.Pipelines[i].Template)
	}
	for k, bytes := range inMemory(p, list) {
		if bytes > p.Pools[k].Memory {
			t.Errorf("%d bytes on each %s, which has %d", bytes, p.Pools[k].Kind, p.Pools[k].Memory)
		}
		var twice int64
		for i := range list {
			for _, s := range list[i].Stages {
				if s.Pool == k {
					twice += s.Memory
				}
			}
		}
		if twice > p.Pools[k].Memory {
			shared++
		}
	}
	return shared
}
