package search

import (
	"context"
	"errors"
	"math"
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
func bruteForce(p *problem.Problem, templates []stages.Template) (best float64, ok bool) {
	steps := 0
	rps := make([]float64, len(p.Models))
	type slot struct{ model, stage, pool int }
	slots := map[slot]float64{}
	fits := func() bool {
		for k := range p.Pools {
			taken := 0.0
			for key, part := range slots {
				if key.pool != k {
					continue
				}
				if p.Rounding == problem.Slot {
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
			key := slot{t.Model, si, s.Pool}
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
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 2, Shares: 2, Blocks: 2, Batches: 2, Partitions: 2, Memory: true})
		var all []stages.Template
		for d := range p.Models {
			all = append(all, pooldraw.EveryPipeline(p, d)...)
		}
		want, ok := bruteForce(p, all)
		if !ok {
			return
		}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
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
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 5, Shares: 3, Blocks: 4, Batches: 3, Partitions: 3, Memory: true, TimePools: true})
		var every []stages.Template
		for d := range p.Models {
			list := pooldraw.EveryPipeline(p, d)
			kept, _, err := templates.UndominatedTemplates(p, d)
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
		few, err := templates.ListAll(p)
		if err != nil {
			t.Fatal(err)
		}
		value := func(list []stages.Template) float64 {
			c := *few // its units
			c.Templates = list
			r, err := relaxation.Solve(context.Background(), &c, highs.Solver{}, nil, c.AllTemplates())
			if err != nil {
				t.Fatal(err)
			}
			if r.Bound < r.Value*(1-1e-6) {
				t.Errorf("bound %v below the value %v of the relaxation", r.Bound, r.Value)
			}
			return r.Value
		}
		if a, b := value(every), value(few.Templates); math.Abs(a-b) > (1e-6+near(every))*a {
			t.Errorf("the relaxation has %v over all %d pipelines, %v over the %d kept", a, len(every), b, len(few.Templates))
		}
	})
}
