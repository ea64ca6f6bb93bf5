package main

import (
	"context"
	"math"
	"testing"

	"inferplan/bench/drawn"
	"inferplan/bench/held"
)

// Default plans of a tenth of the drawn problems hold what they state in runs with fresh
// seeds, and neither they nor plans with explicit flags hold more than the stated bound.
func TestDefaultPlansHold(t *testing.T) {
	h := &tester{Tester: held.Tester{Runs: 4, Seed: 7919, Requests: 8000}}
	for _, p := range []drawn.Problem{drawn.Pools(1), drawn.Pools(4), drawn.Pools(10), drawn.Pools(37), drawn.Pools(40), drawn.Pools(49), drawn.Applications(3), drawn.Applications(38), drawn.Cascades(32), drawn.Cascades(36), drawn.Queues(31), drawn.Queues(33)} {
		byDefault, err := h.plan(context.Background(), &p, "default", p.Values)
		if err != nil {
			t.Fatal(err)
		}
		if byDefault == nil {
			t.Errorf("%s: no plan", p.Name)
			continue
		}
		if byDefault.missed > mostMissed {
			t.Errorf("%s: misses by %.4f as stated, %.4g", p.Name, byDefault.missed, byDefault.stated)
		}
		if !p.Rated {
			continue
		}
		for _, margin := range []float64{0, 0.2} {
			other, err := h.plan(context.Background(), &p, "margin", map[string]any{"margin": margin, "max-batch": 2})
			if err != nil {
				t.Fatal(err)
			}
			if other != nil && other.holds > byDefault.bound {
				t.Errorf("%s: a plan with margin %g holds %.4g, above the bound %.4g", p.Name, margin, other.holds, byDefault.bound)
			}
			if other != nil && other.holds > byDefault.holds*(1+2*mostAbove) {
				t.Errorf("%s: a plan with margin %g holds %.4g, the default %.4g", p.Name, margin, other.holds, byDefault.holds)
			}
		}
		if byDefault.holds > byDefault.bound {
			t.Errorf("%s holds %.4g, above its bound %.4g", p.Name, byDefault.holds, byDefault.bound)
		}
	}
}

// The causes of a gap add up to it, and batches that fill for free hold no less.
func TestCausesAddUp(t *testing.T) {
	h := &tester{Tester: held.Tester{Runs: 2, Seed: 7919, Requests: 8000}}
	for _, devices := range []int{1, 3} {
		s, err := h.smallGap(context.Background(), gapSeed, devices, 8)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, cause := range causes {
			sum += cause.of(s)
		}
		if s.Gap <= 0 || math.Abs(sum-s.Gap) > 1e-9 {
			t.Errorf("%d devices: causes add up to %v, the gap is %v", devices, sum, s.Gap)
		}
		if s.Filling < 0 || s.Links != 0 {
			t.Errorf("%d devices: filling %v, links %v of a model in one piece", devices, s.Filling, s.Links)
		}
	}
}
