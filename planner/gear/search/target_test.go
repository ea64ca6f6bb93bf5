package search

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/planner/gear/cascades"
)

// The three goals belong together: what accuracy is reached under a latency is
// reached, asked for as a target, within that latency and on as many devices.
func TestGoalsAgree(t *testing.T) {
	for _, c := range []struct {
		name    string
		f       *family
		devices int
	}{{"bert5", &bert5, 2}, {"llama4", &llama4, 6}} {
		if c.f == &bert5 && !long {
			continue
		}
		s := solver(t)
		p := c.f.problem(t, c.devices, 10)
		most := c.f.planOnce(t, c.devices)
		slo := p.SLO
		p.TargetAccuracy = most.Accuracy - 1e-9
		few, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if few.Value > float64(c.devices) || few.ValueBound > few.Value || few.Accuracy < p.TargetAccuracy || few.Problem.Kinds[0].Devices != int(few.Value) {
			t.Errorf("%s: %v devices (bound %v) with accuracy %.4f, expected at most %d", c.name, few.Value, few.ValueBound, few.Accuracy, c.devices)
		}
		p.SLO = 0
		start := cputime.Used()
		fast, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: accuracy %.4f at %v; asked for: least worst p95 %.1f ms (bound %.1f), accuracy %.4f, %d simulations, %v of CPU; fewest devices %v (bound %v)",
			c.name, most.Accuracy, most.MaxTailLatency(), fast.Value, fast.ValueBound, fast.Accuracy, fast.RunCount, cputime.Used()-start, few.Value, few.ValueBound)
		if fast.Accuracy < p.TargetAccuracy || float64(fast.Problem.SLO) > latencyStep*float64(slo) || fast.Value < fast.ValueBound || fast.MaxTailLatency() > fast.Problem.SLO {
			t.Errorf("%s: %.1f ms (bound %.1f) with accuracy %.4f, expected no more than %v", c.name, fast.Value, fast.ValueBound, fast.Accuracy, slo)
		}
	}
}

// A lower target is not slower, and weights matter: what the measured requests
// see is what the target means. With INFERPLAN_LONG it is told what Zipf weights would promise.
func TestTargetOnHistogram(t *testing.T) {
	p := llama4.problem(t, 4, 10)
	p.SLO, p.TargetAccuracy = 0, .60
	p.RangeWeights = cascades.HistogramWeights([]float64{0, 0, .18, .12, .07, .05, .06, .08, .08, .36}) // heavy at the top, as the published trace
	s := solver(t)
	real, err := Solve(context.Background(), p, s, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("planned with the histogram: accuracy %.4f, worst p95 %.0f ms", real.Accuracy, real.Value)
	if real.Accuracy < .60 {
		t.Errorf("accuracy %.4f, expected .60", real.Accuracy)
	}
	if long {
		zipf := *p
		zipf.RangeWeights = cascades.ZipfWeights(10)
		guess, err := Solve(context.Background(), &zipf, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0.0
		for r := range guess.Gears {
			seen += p.RangeWeights[r] * guess.Gears[r].Accuracy
		}
		t.Logf("with Zipf: %.4f promised, %.4f on the histogram, %.0f ms", guess.Accuracy, seen, guess.Value)
		if guess.Accuracy < .60 {
			t.Errorf("accuracy %.4f with Zipf, expected .60", guess.Accuracy)
		}
	}
	low := *p
	low.TargetAccuracy = .58
	if easy, err := Solve(context.Background(), &low, s, Options{Seed: 1}); err != nil || easy.Value > latencyStep*real.Value {
		t.Errorf("accuracy .58: %+v, %v, expected no more than %.0f ms", easy, err, real.Value)
	}
}

// A target out of reach says what is in reach.
func TestTargetOutOfReach(t *testing.T) {
	for _, slo := range []time.Duration{0, 400 * time.Millisecond} {
		p := bert5.problem(t, 1, 10)
		p.SLO, p.TargetAccuracy = slo, .95
		_, err := Solve(context.Background(), p, programs, Options{Seed: 1})
		inf, ok := errors.AsType[*cascades.InfeasibleError](err)
		if !ok || inf.TargetAccuracy != .95 || !(inf.BestAccuracy > .92 && inf.BestAccuracy < .95) {
			t.Errorf("at %v: %v", slo, err)
		}
	}
}

// Least latencies on drawn problems are no longer than were found before: by bisection
// over all placements from twice the bound. Some need another placement, some a plan made
// for more than the plan before. Of one that is asked for .6 no batch may be as long as
// one sample takes. On the last two some models are on no device within the latency.
// Two that take seconds are solved with INFERPLAN_LONG.
func TestLeastLatenciesOfInstances(t *testing.T) {
	s := solver(t)
	for _, c := range []struct {
		seed           uint64
		target, latest float64 // milliseconds
	}{{205, .7625, 45.41}, {207, .675, 341.4}, {213, .7975, 67.5}, {218, .6, math.Inf(1)}, {218, .745, 129.3}, {228, .5375, 45.31}, {230, .5225, 53.4}, {439, .7975, 364.7}, {493, .7425, 12.23}} {
		if !long && (c.seed == 207 || c.target == .745) {
			continue
		}
		p := randomInstance(c.seed)
		p.SLO, p.TargetAccuracy = 0, c.target
		plan, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Errorf("seed %d: %v", c.seed, err)
			continue
		}
		t.Logf("seed %d: %.2f ms, bound %.2f, accuracy %.4f, %d runs", c.seed, plan.Value, plan.ValueBound, plan.Accuracy, plan.RunCount)
		if plan.Value > c.latest || plan.Accuracy < c.target || plan.Value < plan.ValueBound || plan.RunCount == 0 {
			t.Errorf("seed %d: %v ms (bound %v) with accuracy %v in %d runs, expected up to %v with %v", c.seed, plan.Value, plan.ValueBound, plan.Accuracy, plan.RunCount, c.latest, c.target)
		}
	}
}
