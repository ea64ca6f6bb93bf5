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
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// The least price is that of the cheapest set of devices on which a plan for
// throughput carries the floors, over all sets; the bound never exceeds it, and
// the plan keeps the rules.
func TestCheapestMatchesEnumeration(t *testing.T) {
	solved, infeasible := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 3, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2, TimePools: rapid.Bool().Draw(t, "time")})
		// On time-shared pools what may run depends on which devices there are,
		// and planning for throughput is not exact: no comparison there.
		exclusive := true
		for k := range p.Pools {
			exclusive = exclusive && !p.Pools[k].TimeShared
		}
		prices := make([]float64, len(p.Pools))
		whole := rapid.Bool().Draw(t, "devices")
		for k := range prices {
			prices[k] = 1
			if !whole {
				prices[k] = float64(rapid.IntRange(1, 20).Draw(t, "price")) / 4
			}
		}
		free, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		load := rapid.Float64Range(0.1, 1.2).Draw(t, "load")
		for d := range p.Models {
			p.Models[d].MinRPS = load * free.Value * p.Models[d].Weight
		}
		if checkCheapest(t, p, prices, exclusive) {
			solved++
		} else {
			infeasible++
		}
	})
	t.Logf("%d solved, %d infeasible", solved, infeasible)
	if solved == 0 {
		t.Error("no problem was feasible")
	}
}

// checkCheapest compares the least price with that of enumeration, where pools are exclusive. It tells whether there is
// a plan.
func checkCheapest(t *rapid.T, p *problem.Problem, prices []float64, exclusive bool) bool {
	least := math.Inf(1)
	if exclusive {
		least = leastByEnumeration(t, p, prices)
	}
	outcome, err := Cheapest(context.Background(), p, prices, highs.Solver{}, problem.Options{})
	var inf *kind.InfeasibleError
	if errors.As(err, &inf) {
		if !math.IsInf(least, 1) {
			t.Errorf("infeasible (%v), but devices for %v carry the floors", err, least)
		}
		if inf.Nearest.LoadFactor > 1+1e-6 {
			t.Errorf("nearest feasible is %v times what is infeasible", inf.Nearest.LoadFactor)
		}
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if exclusive && math.Abs(outcome.Value-least) > 1e-9*least {
		t.Errorf("price %v, enumeration has %v", outcome.Value, least)
	}
	if outcome.Bound > outcome.Value*(1+1e-9) || exclusive && outcome.Bound > least*(1+1e-6) {
		t.Errorf("bound %v, price %v, enumeration %v", outcome.Bound, outcome.Value, least)
	}
	min := math.Inf(1)
	for d := range p.Models {
		min = math.Min(min, outcome.RPS[d]/p.Models[d].Weight)
	}
	same := *outcome
	same.Value = min
	holds(t, p, &same)
	return true
}

// The same for floors that are, to the last bit, what the replicas of a plan on some of the devices carry.
func TestCheapestAtWholeReplicas(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 3, Shares: 2, Blocks: 2, Batches: 2, Partitions: 2})
		prices := make([]float64, len(p.Pools))
		some := *p
		some.Pools = slices.Clone(p.Pools)
		for k := range prices {
			prices[k] = float64(rapid.IntRange(1, 4).Draw(t, "price"))
			some.Pools[k].Count = rapid.IntRange(0, p.Pools[k].Count).Draw(t, "used")
		}
		free, err := Solve(context.Background(), &some, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		for d := range p.Models {
			p.Models[d].MinRPS = free.RPS[d]
		}
		if !checkCheapest(t, p, prices, true) {
			t.Errorf("infeasible, and devices for %v carry it", some.Pools)
		}
		solved++
	})
	if solved == 0 {
		t.Error("no problem was feasible")
	}
}

// The plan that is found first takes all three devices, and a better one only the first kind's and one of the other. The
// floor of a is to the last bit what one device of that kind carries.
func TestCheapestFromADearPlan(t *testing.T) {
	us := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Microsecond} }
	batches := func(one, two int) []stages.ShareCosts {
		s := stages.ShareCosts{Batches: []stages.BatchCost{{Batch: 1, Blocks: us(one)}, {Batch: 2, Blocks: us(two)}}}
		return []stages.ShareCosts{s, s}
	}
	model := func(name string, other []stages.ShareCosts) stages.Model {
		return stages.Model{
			Name: name, SLO: time.Millisecond, Weight: 1, MinRPS: 500_000, Weights: []int64{1},
			ShareCosts: [][]stages.ShareCosts{batches(2, 2), other},
		}
	}
	p := &problem.Problem{Problem: stages.Problem{
		MaxPartitions: 1,
		Pools:         []stages.Pool{{Kind: "A", Count: 1, MaxShares: 2, PerNode: 1}, {Kind: "B", Count: 2, MaxShares: 1, PerNode: 1}},
		Models:        []stages.Model{model("a", batches(2, 4)), model("b", batches(1003, 1003))},
	}}
	outcome, err := Cheapest(context.Background(), p, []float64{1, 1}, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Value != 2 || outcome.Bound != 2 || outcome.RPS[0] < 500_000 || outcome.RPS[1] < 500_000 {
		t.Errorf("price %v, bound %v, rates %v; one A for b and one B for a carry the floors", outcome.Value, outcome.Bound, outcome.RPS)
	}
}

// leastByEnumeration tries every number of devices of every pool.
func leastByEnumeration(t *rapid.T, p *problem.Problem, prices []float64) float64 {
	best := math.Inf(1)
	q := *p
	q.Pools = append([]stages.Pool(nil), p.Pools...)
	var try func(k int, price float64)
	try = func(k int, price float64) {
		if price >= best {
			return
		}
		if k < len(p.Pools) {
			for n := 0; n <= p.Pools[k].Count; n++ {
				q.Pools[k].Count = n
				try(k+1, price+float64(n)*prices[k])
			}
			return
		}
		if price == 0 {
			return
		}
		_, err := Solve(context.Background(), &q, highs.Solver{}, problem.Options{})
		var inf *kind.InfeasibleError
		switch {
		case err == nil:
			best = price
		case !errors.As(err, &inf):
			t.Fatal(err)
		}
	}
	try(0, 0)
	return best
}

// A stage of one device may carry more than all time-shared devices of the next
// one: such a pipeline may be in a plan all the same.
func TestCheapestBesideTimeSharing(t *testing.T) {
	us := func(list ...int) []time.Duration {
		var out []time.Duration
		for _, v := range list {
			out = append(out, time.Duration(v)*time.Microsecond)
		}
		return out
	}
	one := func(blocks []time.Duration) []stages.ShareCosts {
		return []stages.ShareCosts{{Batches: []stages.BatchCost{{Batch: 1, Blocks: blocks}}}}
	}
	p := &problem.Problem{Problem: stages.Problem{
		MaxPartitions: 2,
		Pools:         []stages.Pool{{Kind: "A", Count: 2, MaxShares: 1, PerNode: 2}, {Kind: "B", Count: 3, MaxShares: 1, PerNode: 1, TimeShared: true}},
		Models: []stages.Model{
			{Name: "a", SLO: time.Second, Weight: 0.3, MinRPS: 20_000, Weights: []int64{1}, ShareCosts: [][]stages.ShareCosts{one(us(3)), {{}}}},
			{Name: "b", SLO: time.Second, Weight: 1, MinRPS: 87_000, Weights: []int64{1, 1}, CutBytes: []int64{1}, ShareCosts: [][]stages.ShareCosts{one(us(16, 4)), one(us(24, 90))}},
		},
	}}
	outcome, err := Cheapest(context.Background(), p, []float64{1, 1}, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if outcome.RPS[0] < 20_000*(1-1e-6) || outcome.RPS[1] < 87_000*(1-1e-6) {
		t.Errorf("rates %v", outcome.RPS)
	}
}

// A kind without devices, as a lost one is, has no price, and what is proven beside it
// is. The relaxation here is far from whole devices, so that sums of losses decide.
func TestEmptyPoolChangesNothing(t *testing.T) {
	us := func(list ...int) []time.Duration {
		var out []time.Duration
		for _, v := range list {
			out = append(out, time.Duration(v)*time.Microsecond)
		}
		return out
	}
	costs := []stages.ShareCosts{
		{Batches: []stages.BatchCost{{Batch: 1, Blocks: us(30, 7, 96)}, {Batch: 2, Blocks: us(4, 1, 15)}}},
		{Batches: []stages.BatchCost{{Batch: 1, Blocks: us(0, 20, 2)}, {Batch: 2, Blocks: us(2769, 84, 0)}}},
	}
	pool := func(kind string, n int) stages.Pool {
		return stages.Pool{Kind: kind, Count: n, MaxShares: 2, PerNode: 1}
	}
	for _, pools := range [][]stages.Pool{{pool("B", 1)}, {pool("A", 0), pool("B", 1)}} {
		p := &problem.Problem{Problem: stages.Problem{MaxPartitions: 2, Pools: pools}}
		m := stages.Model{Name: "a", SLO: time.Millisecond, Weight: 1, Weights: []int64{20, 2, 24}, CutBytes: []int64{28, 7}}
		for range pools {
			m.ShareCosts = append(m.ShareCosts, costs)
		}
		p.Models = []stages.Model{m}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := 2 / 20e-6; math.Abs(outcome.Value-want) > 1 || outcome.Bound < want*(1-1e-9) {
			t.Errorf("%d pools: %v rps with bound %v, expected %v", len(pools), outcome.Value, outcome.Bound, want)
		}
	}
}
