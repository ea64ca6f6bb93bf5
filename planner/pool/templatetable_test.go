package pool

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// Column generation from template tables agrees with the program over every template.
func TestSievesMatchEnumeration(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		ctx := context.Background()
		every, err := templates.ListAll(p)
		if err != nil {
			if _, _, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil); err == nil {
				t.Fatal("sieves hold pipelines where there are none")
			}
			return
		}
		want, wantErr := relaxation.Solve(ctx, every, highs.Solver{}, nil, every.AllTemplates())
		c, got, err := relaxation.GenerateColumns(ctx, p, highs.Solver{}, nil, nil)
		if (wantErr != nil) != (err != nil) {
			t.Fatalf("errors %v and %v", wantErr, err)
		}
		if err != nil {
			return
		}
		compared++
		a, b := want.Value*every.Units.Throughput, got.Value*c.Catalogue.Units.Throughput
		if math.Abs(a-b) > 1e-6*a {
			t.Fatalf("sieves have %v, enumeration %v", b, a)
		}
		if bound := got.Bound * c.Catalogue.Units.Throughput; bound < a*(1-1e-9) || bound > a*(1+1e-5) {
			t.Fatalf("bound %v of an optimum of %v", bound, a)
		}
	})
	if compared == 0 {
		t.Error("no problem was feasible")
	}
}

// Bundles from template tables make plans that fit the devices, below the bound.
func TestBundlesFitTheDevices(t *testing.T) {
	planned := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		ctx := context.Background()
		x := &planSearch{problem: p, goal: incumbent.MaxThroughput{}, solver: highs.Solver{}, options: problem.Options{Gap: 0.01, Effort: 1}, outcome: &problem.Outcome{}}
		if x.generateTemplates(ctx) != nil {
			return
		}
		if err := planByBundles(ctx, x.solver, x.choice, x.incumbent, x.tables, &x.options, x.recordPhase); err != nil {
			t.Fatal(err)
		}
		if x.incumbent.Plan == nil {
			return
		}
		planned++
		if placement.Recompute(x.catalogue, x.incumbent.Plan.Pipelines) == nil {
			t.Fatal("the plan exceeds the devices")
		}
		if value := x.incumbent.Value(); value > x.incumbent.ChoiceBound*(1+1e-9) || x.incumbent.ChoiceBound > x.choice.Relaxation.Bound*(1+1e-9) {
			t.Fatalf("value %v, bound %v, of the relaxation %v", value, x.incumbent.ChoiceBound, x.choice.Relaxation.Bound)
		}
	})
	if planned == 0 {
		t.Error("nothing was planned")
	}
}

// The bound by covers is never below the best plan.
func TestCoversBoundEveryPlan(t *testing.T) {
	compared, tighter := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 4, Shares: 2, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, Floors: true})
		ctx := context.Background()
		outcome, err := Solve(ctx, p, highs.Solver{}, problem.Options{NoPolish: true})
		if err != nil {
			return
		}
		compared++
		x, err := newSearch(ctx, p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{})
		if err != nil {
			t.Fatal(err)
		}
		newModelCovers(ctx, x.choice, x.incumbent, x.tables, 1)
		if bound := x.catalogue.UnitsToRate(x.incumbent.ChoiceBound); bound < outcome.Value*(1-1e-9) {
			t.Fatalf("bound %v, a plan has %v", bound, outcome.Value)
		}
		if x.incumbent.ChoiceBound < x.choice.Relaxation.Bound*(1-1e-6) {
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
			every = w.appendItems(every, s, i, most, nil)
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

// Where swaps end at a choice, it is one within the devices and of every model.
func TestRounderChoosesFittingBundles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, pools := rapid.IntRange(2, 5).Draw(t, "models"), rapid.IntRange(1, 3).Draw(t, "pools")
		of := make([][]int, models)
		s := &bundleRounder{chosen: make([]int, models), usedDevices: make([]float64, pools), availableDevices: make([]float64, pools), maxMoved: math.Inf(1)}
		s.devicePrices = slices.Repeat([]float64{1}, pools)
		for d := range models {
			for range 3 {
				of[d] = append(of[d], len(s.choices))
				b := bundle{model: d}
				for range pools {
					b.devices = append(b.devices, float64(rapid.IntRange(0, 4).Draw(t, "devices")))
				}
				s.choices, s.bundlePrices = append(s.choices, b), append(s.bundlePrices, 0)
			}
		}
		for d := range models {
			fits := of[d][rapid.IntRange(0, 2).Draw(t, "fits")]
			s.chosen[d] = fits
			for k, v := range s.choices[fits].devices {
				s.availableDevices[k] += v
			}
		}
		for range 2 {
			d := rapid.IntRange(0, models-1).Draw(t, "model")
			s.chosen[d] = of[d][rapid.IntRange(0, 2).Draw(t, "other")]
		}
		for _, i := range s.chosen {
			for k, v := range s.choices[i].devices {
				s.usedDevices[k] += v
			}
		}
		at := s.round()
		if at == nil {
			return // swaps go downhill, and may end beside it
		}
		use := make([]float64, pools)
		for d, i := range at {
			if s.choices[i].model != d {
				t.Fatalf("model %d has a bundle of model %d", d, s.choices[i].model)
			}
			for k, v := range s.choices[i].devices {
				use[k] += v
			}
		}
		for k, v := range use {
			if v > s.availableDevices[k] {
				t.Fatalf("%v devices of pool %d, there are %v", v, k, s.availableDevices[k])
			}
		}
	})
}

// Bundles are picked wherever a choice of them fits: where swaps end beside it too.
func TestPickBundlesFindsFittingChoice(t *testing.T) {
	beside := 0
	rapid.Check(t, func(t *rapid.T) {
		const each = 20
		p := &problem.Problem{Rounding: problem.Slot, Problem: stages.Problem{Pools: make([]stages.Pool, 2)}}
		var choices []bundle
		for d := range rapid.IntRange(3, 9).Draw(t, "models") {
			p.Models = append(p.Models, stages.Model{})
			// All take as many devices, and the last of each model fit to the device.
			for i := range 3 {
				shift := rapid.IntRange(1-each, each-1).Draw(t, "shift")
				choices = append(choices, bundle{model: d, devices: []float64{float64(each + shift), float64(each - shift)}})
				if i == 2 {
					p.Pools[0].Count += each + shift
					p.Pools[1].Count += each - shift
				}
			}
		}
		choice := &relaxation.WaitChoice{Relaxation: &relaxation.Solution{PoolPrice: slices.Repeat([]float64{1}, len(p.Pools))}}
		covers := &modelCovers{problem: p, choice: choice, incumbent: &incumbent.Incumbent{Goal: incumbent.MaxThroughput{}}}
		pick := func(nodes int64) []int {
			b := newBundleSearch(highs.Solver{}, &problem.Options{Effort: 1}, covers)
			b.remainingNodes = nodes
			at, err := b.pickBundles(context.Background(), choices, &bundleLimits{idleDevices: make([]float64, len(p.Pools))})
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		if pick(0) == nil {
			beside++
		}
		at := pick(bundleNodes)
		if at == nil {
			t.Fatal("nothing was picked")
		}
		use := make([]float64, len(p.Pools))
		for d, i := range at {
			if choices[i].model != d {
				t.Fatalf("model %d has a bundle of model %d", d, choices[i].model)
			}
			for k, v := range choices[i].devices {
				if use[k] += v; use[k] > float64(p.Pools[k].Count) {
					t.Fatalf("%v devices of pool %d, there are %d", use[k], k, p.Pools[k].Count)
				}
			}
		}
	})
	t.Logf("swaps alone ended beside a choice that fits %d times", beside)
	if beside == 0 {
		t.Error("swaps alone always sufficed")
	}
}

// Bundles come as near to the bound as is asked, where whole replicas make other devices
// scarce than the relaxation shows.
func TestBundlesReachTheGap(t *testing.T) {
	z := pooldraw.Synthetic{Seed: 15, Models: 12, Classes: 3, Kinds: 4, GPUs: 400, Layers: 8, Partitions: 2, Shares: 3, Batches: 4, Rounding: problem.Slot}
	ctx := context.Background()
	x, err := newSearch(ctx, z.Problem(), highs.Solver{}, problem.Options{Gap: 0.01}, incumbent.MaxThroughput{})
	if err != nil {
		t.Fatal(err)
	}
	if err := planByBundles(ctx, x.solver, x.choice, x.incumbent, x.tables, &x.options, x.recordPhase); err != nil {
		t.Fatal(err)
	}
	if gap := x.incumbent.Gap(); gap > 0.01 {
		t.Errorf("gap %.3f %%, asked 1 %%", 100*gap)
	}
}
