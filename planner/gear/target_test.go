package gear

import (
	"context"
	"errors"
	"testing"
	"time"
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
		most, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		slo := p.SLO
		p.Target = most.Accuracy - 1e-9
		few, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if few.Value > float64(c.devices) || few.ValueBound > few.Value || few.Accuracy < p.Target || few.Problem.Devices != int(few.Value) {
			t.Errorf("%s: %v devices (bound %v) with accuracy %.4f, expected at most %d", c.name, few.Value, few.ValueBound, few.Accuracy, c.devices)
		}
		p.SLO = 0
		start := cpuMS(t)
		fast, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: accuracy %.4f at %v; asked for: least worst p95 %.1f ms (bound %.1f), accuracy %.4f, %d simulations, %.0f ms of CPU; fewest devices %v (bound %v)",
			c.name, most.Accuracy, most.worst(), fast.Value, fast.ValueBound, fast.Accuracy, fast.Runs, cpuMS(t)-start, few.Value, few.ValueBound)
		if fast.Accuracy < p.Target || float64(fast.Problem.SLO) > latencyStep*float64(slo) || fast.Value < fast.ValueBound || fast.worst() > fast.Problem.SLO {
			t.Errorf("%s: %.1f ms (bound %.1f) with accuracy %.4f, expected no more than %v", c.name, fast.Value, fast.ValueBound, fast.Accuracy, slo)
		}
	}
}

// A lower target is not slower, and weights matter: what the measured requests
// see is what the target means.
func TestTargetOnHistogram(t *testing.T) {
	p := llama4.problem(t, 6, 10)
	p.SLO, p.Target = 0, .62
	p.Weights = Shares([]float64{0, 0, .18, .12, .07, .05, .06, .08, .08, .36}) // heavy at the top, as the published trace
	s := solver(t)
	zipf := *p
	zipf.Weights = Zipf(10)
	real, err := Solve(context.Background(), p, s, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	guess, err := Solve(context.Background(), &zipf, s, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0.0
	for r := range guess.Gears {
		seen += p.Weights[r] * guess.Gears[r].Accuracy
	}
	t.Logf("planned with the histogram: accuracy %.4f, worst p95 %.0f ms; with Zipf: %.4f promised, %.4f on the histogram, %.0f ms", real.Accuracy, real.Value, guess.Accuracy, seen, guess.Value)
	if real.Accuracy < .62 || guess.Accuracy < .62 {
		t.Errorf("accuracy %.4f and %.4f, expected .62", real.Accuracy, guess.Accuracy)
	}
	low := *p
	low.Target = .60
	if easy, err := Solve(context.Background(), &low, s, Options{Seed: 1}); err != nil || easy.Value > latencyStep*real.Value {
		t.Errorf("accuracy .60: %+v, %v, expected no more than %.0f ms", easy, err, real.Value)
	}
}

// A target out of reach says what is in reach.
func TestTargetOutOfReach(t *testing.T) {
	for _, slo := range []time.Duration{0, 400 * time.Millisecond} {
		p := bert5.problem(t, 1, 10)
		p.SLO, p.Target = slo, .95
		_, err := Solve(context.Background(), p, nil, Options{Seed: 1})
		inf, ok := errors.AsType[*Infeasible](err)
		if !ok || inf.Target != .95 || !(inf.Best > .92 && inf.Best < .95) {
			t.Errorf("at %v: %v", slo, err)
		}
	}
}
