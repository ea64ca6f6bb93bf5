package main

import (
	"context"
	"testing"
	"time"

	"inferplan/bench/figures"
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

// By hand: of two workers one goes at 1 s. Three requests that come then have 300 ms, which one
// worker does by then, beside three that came before and are held by the other.
func TestLeaversServeWhatTheyHold(t *testing.T) {
	p := &pipeline{name: "one", slo: 300 * time.Millisecond, stages: []stage{{name: "m1", batch: 1, ms: []float64{100}}}}
	f := &sim.FlowResult{Modules: []sim.FlowModule{{Workers: []int32{2, 1}}}}
	for _, c := range []struct {
		how    tightening
		before int
		want   int64
	}{{tightening{}, 0, 6}, {tightening{leavers: true}, 0, 3}, {tightening{leavers: true}, 3, 6}, {tightening{slack: 100 * time.Millisecond}, 0, 4},
		{tightening{after: []time.Duration{200 * time.Millisecond}}, 0, 2}} {
		w := newWholes(p, f, c.how)
		for range c.before {
			w.accepts(999 * time.Millisecond)
		}
		for range 8 {
			w.accepts(time.Second)
		}
		if w.count != c.want {
			t.Errorf("%+v, %d before: %d are accepted, expected %d", c.how, c.before, w.count, c.want)
		}
	}
}

// Alone, a request takes batches of one.
func TestSpansOfSingleRequests(t *testing.T) {
	p := twoStages()
	j := &job{pipe: p, rates: []float64{2, 2, 2, 2, 2}, start: []int{4, 4}, spans: newSpans(p, 5)}
	f, err := j.run(context.Background(), formats.PolicySpec{Name: "feas"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Seconds {
		f.Seconds[i].Good-- // as if one were late
	}
	a, b := p.stages[0].micros(1).D(), p.stages[1].micros(1).D()
	if after, left := j.spans.means(f); after[0] != b || after[1] != 0 || left != p.slo-a-b {
		t.Errorf("%v behind, %v left, expected %v, 0 and %v", after, left, b, p.slo-a-b)
	}
}

// Without whole batches the bound is that of the reports. With them, and where workers that go
// serve nothing that comes after, it is no more, and no policy exceeds it.
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
			if both := newWholes(p, f, tightening{leavers: true, batches: true}).bound(j, seed); both > whole || f.Good > both {
				t.Errorf("%s, seed %d: %d in time, of whole batches %d, without leavers %d", name, seed, f.Good, whole, both)
			}
		}
	}
}

// Figures of parts without cells name the command that makes them.
func TestFiguresNameTheirPart(t *testing.T) {
	s := &sheet{asked: []string{"S0", "b"}, command: func(part string) string { return part }}
	add := func() error {
		s.add(figures.Figure{})
		return nil
	}
	if err := makeParts(s, []maker{{"a", add}, {"b", add}}); err != nil || len(s.figures) != 1 || s.figures[0].Command != "b" {
		t.Errorf("figures %+v, error %v", s.figures, err)
	}
}
