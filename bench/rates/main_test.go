package main

import (
	"context"
	"testing"
)

// Default plans of a tenth of the drawn problems hold what they state in runs with fresh
// seeds, and neither they nor plans with explicit flags hold more than the stated bound.
func TestDefaultPlansHold(t *testing.T) {
	h := &tester{runs: 4, seed: 7919, attainment: 0.99, requests: 8000}
	for _, p := range []problem{pools(1), pools(4), pools(10), pools(37), pools(40), pools(49), applications(3), applications(38)} {
		byDefault, err := h.plan(context.Background(), &p, "default", recommended)
		if err != nil {
			t.Fatal(err)
		}
		if byDefault == nil {
			t.Errorf("%s: no plan", p.name)
			continue
		}
		if byDefault.attained < h.attainment-mostBelow {
			t.Errorf("%s: %.4f in time at the stated rate of %.4g", p.name, byDefault.attained, byDefault.stated)
		}
		for _, margin := range []float64{0, 0.2} {
			other, err := h.plan(context.Background(), &p, "margin", map[string]any{"margin": margin, "max-batch": 2})
			if err != nil {
				t.Fatal(err)
			}
			if other != nil && other.holds > byDefault.bound {
				t.Errorf("%s: a plan with margin %g holds %.4g, above the bound %.4g", p.name, margin, other.holds, byDefault.bound)
			}
			if other != nil && other.holds > byDefault.holds*(1+2*mostAbove) {
				t.Errorf("%s: a plan with margin %g holds %.4g, the default %.4g", p.name, margin, other.holds, byDefault.holds)
			}
		}
		if byDefault.holds > byDefault.bound {
			t.Errorf("%s holds %.4g, above its bound %.4g", p.name, byDefault.holds, byDefault.bound)
		}
	}
}
