package bundles

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/testkit/pooldraw"
	"inferplan/testkit/poolrelaxed"
)

// The bound by covers is never below the best plan.
func TestCoversBoundEveryPlan(t *testing.T) {
	compared, tighter := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 4, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, Floors: true})
		ctx := context.Background()
		choice, best, err := poolrelaxed.Relax(p)
		if err != nil {
			return
		}
		plan, err := poolrelaxed.PlanOver(choice)
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil {
			return
		}
		compared++
		newModelCovers(ctx, choice, best, nil, 1)
		if bound := choice.Catalogue.UnitsToRate(best.ChoiceBound); bound < plan.Value*(1-1e-9) {
			t.Fatalf("bound %v, a plan has %v", bound, plan.Value)
		}
		if best.ChoiceBound < choice.Relaxation.Bound*(1-1e-6) {
			tighter++
		}
	})
	if compared == 0 || tighter == 0 {
		t.Errorf("%d compared, the bound was tighter than the relaxation's in %d", compared, tighter)
	}
}

// The covers of a few configurations are those of all their sums, within what
// rounding to the grid does.
func TestCoversMatchEverySum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []coverItem
		for i := range rapid.IntRange(1, 4).Draw(t, "configurations") {
			list = append(list, coverItem{int32(i), rapid.Float64Range(1, 10).Draw(t, "rate"), rapid.Float64Range(1, 10).Draw(t, "cost")})
		}
		const most = 20.0
		// least is what a sum that carries a rate takes, by looking at all.
		var least func(rate float64) float64
		least = func(rate float64) float64 {
			if rate <= 0 {
				return 0
			}
			best := math.Inf(1)
			for _, x := range list {
				best = min(best, x.cost+least(rate-x.rate))
			}
			return best
		}
		// A sum has at most 20 parts, each of which is less than a step off.
		const steps = 2000
		up, down := newCoverTable(list, most, steps, true), newCoverTable(list, most, steps, false)
		for _, rate := range []float64{rapid.Float64Range(0.1, 15).Draw(t, "asked"), most} {
			at := least(rate)
			if got := up.costBySteps[up.stepsFor(rate)]; got > at+1e-9 {
				t.Fatalf("at least %v for %v, a sum takes %v", got, rate, at)
			}
			got := down.costBySteps[down.stepsFor(rate)]
			if got < at-1e-9 {
				t.Fatalf("%v for %v, the cheapest sum takes %v", got, rate, at)
			}
			if next := least(rate + 21*down.rateStep); got > next+1e-9 {
				t.Fatalf("%v for %v, a sum that carries a little more takes %v", got, rate, next)
			}
			carried, cost := 0.0, 0.0
			for _, x := range down.appendCover(nil, down.stepsFor(rate)) {
				carried, cost = carried+x.rate, cost+x.cost
			}
			if carried < rate-1e-9 || math.Abs(cost-got) > 1e-9 {
				t.Fatalf("a sum of %v carries %v at %v, asked %v", got, carried, cost, rate)
			}
		}
	})
}

// The configurations that are left out do not make the cheapest sums dearer.
func TestConfigurationsLeaveNothingOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		w := &coverBuilder{wholeDevices: p.Rounding == problem.Slot}
		for k := range p.Pools {
			w.devicePrice = append(w.devicePrice, rapid.Float64Range(0.1, 2).Draw(t, "price"))
			w.poolSizes = append(w.poolSizes, p.Pools[k].Count)
		}
		s, _, err := templates.NewTable(p, 0)
		if err != nil || s.Len() == 0 {
			return
		}
		most := rapid.Float64Range(100, 5000).Draw(t, "rate")
		var every []coverItem
		for i := range s.Len() {
			every = w.appendItems(every, s, i, 0, most, nil)
		}
		some := w.listItems(s, most)
		for _, up := range []bool{false, true} {
			a, b := newCoverTable(every, most, 300, up), newCoverTable(some, most, 300, up)
			for j := range a.costBySteps {
				// Rounded down, a sum of good ones may lose a step for each of its parts.
				if up && b.costBySteps[j] > a.costBySteps[j]*(1+1e-9) {
					t.Fatalf("%d of %d configurations: %v for %d steps, with all %v", len(some), len(every), b.costBySteps[j], j, a.costBySteps[j])
				}
				if b.costBySteps[j] < a.costBySteps[j]*(1-1e-9) {
					t.Fatalf("%v for %d steps, with more to choose from %v", b.costBySteps[j], j, a.costBySteps[j])
				}
			}
		}
	})
}
