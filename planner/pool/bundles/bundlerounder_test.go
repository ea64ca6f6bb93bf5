package bundles

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
)

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
