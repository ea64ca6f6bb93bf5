package main

import (
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/sim"
)

// twoStages is a pipeline of two stages in a chain.
func twoStages() *pipeline {
	p := &pipeline{name: "small", slo: 400 * time.Millisecond, stages: chain("a", "b")}
	for i := range p.stages {
		s := &p.stages[i]
		for b := 1; b <= 8; b++ {
			s.ms = append(s.ms, 12+4*float64(b)+3*float64(i))
		}
		s.batch = 6
	}
	return p
}

// By hand: one worker, batches of two in 120 ms, six requests at once with 300 ms. The
// fluid does five, whole batches four.
func TestWholeBatches(t *testing.T) {
	p := &pipeline{name: "one", slo: 300 * time.Millisecond, stages: []stage{{name: "m1", batch: 2, ms: []float64{100, 120}}}}
	f := &sim.FlowResult{Modules: []sim.FlowModule{{Workers: []int32{1}}}}
	for _, c := range []struct {
		how  tightening
		want int64
	}{{tightening{}, 5}, {tightening{batches: true}, 4}} {
		w := newWholes(p, f, c.how)
		for range 6 {
			w.accepts(0)
		}
		if w.count != c.want {
			t.Errorf("%+v: %d are accepted, expected %d", c.how, w.count, c.want)
		}
	}
}

// Without whole batches the bound is that of the reports. With them it is no more, and no
// policy exceeds it.
func TestWholesAreABound(t *testing.T) {
	p := twoStages()
	rates := make([]float64, 40)
	for s := range rates {
		rates[s] = 20
		if s%10 > 7 {
			rates[s] = 2 * p.capacity(8)
		}
	}
	for seed := range uint64(3) {
		for _, name := range []string{"feas", "pard", "clipper++", "nexus"} {
			j := &job{pipe: p, rates: rates, rule: notesRule(p, false)}
			f, err := j.run(context.Background(), formats.PolicySpec{Name: name}, seed)
			if err != nil {
				t.Fatal(err)
			}
			fluid, whole := newWholes(p, f, tightening{}).bound(j, seed), newWholes(p, f, tightening{batches: true}).bound(j, seed)
			if fluid != f.Bound || whole > fluid || f.Good > whole {
				t.Errorf("%s, seed %d: %d in time, bound %d, fluid %d, of whole batches %d", name, seed, f.Good, f.Bound, fluid, whole)
			}
		}
	}
}
