package search

import (
	"context"
	"errors"
	"strings"
	"testing"

	"inferplan/planner/gear/cascades"
)

// An accuracy that is asked for is reached by the lower end of what the samples held
// out say, and what that takes is no less than what the planned accuracy takes.
func TestTargetHoldsOutOfSample(t *testing.T) {
	s := solver(t)
	for _, c := range []struct {
		f       *family
		devices int
		target  float64
	}{{&bert5, 8, .92}, {&llama4, 12, .63}} {
		if c.f == &bert5 && !long {
			continue
		}
		p := c.f.problem(t, c.devices, 10)
		p.TargetAccuracy = c.target
		holdOutSamples(p, 4000)
		inSample, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		before, ok := inSample.HeldOutAccuracy()
		plan, planned, err := SolveHeldOut(context.Background(), p, s, Options{Seed: 1})
		if err != nil || !ok {
			t.Fatal(err)
		}
		h, _ := plan.HeldOutAccuracy()
		t.Logf("%.3f: planned for it %.4f on %v devices, held out %.4f (%.4f to %.4f); out of sample %.4f on %v devices of at least %v, held out %.4f (%.4f to %.4f), planned for %.4f",
			c.target, inSample.Accuracy, inSample.Value, before.Accuracy, before.Low, before.High, plan.Accuracy, plan.Value, plan.ValueBound, h.Accuracy, h.Low, h.High, planned)
		if before.Low >= c.target {
			t.Error("the plan of the samples planned on holds by itself: the case shows nothing")
		}
		if h.Low < c.target || plan.Accuracy < c.target || planned <= c.target || plan.Value < inSample.Value || plan.ValueBound != inSample.ValueBound || plan.Problem.TargetAccuracy != c.target {
			t.Errorf("%.3f: %+v, planned for %.4f, %v devices of at least %v", c.target, h, planned, plan.Value, plan.ValueBound)
		}
	}
}

// holdOutSamples leaves n samples held out, moved over from those planned on where there are none.
func holdOutSamples(p *cascades.Problem, n int) {
	if p.HeldOutSamples != nil && p.HeldOutSamples.N > 0 {
		return
	}
	a, b := &cascades.Samples{N: p.PlanningSamples.N - n}, &cascades.Samples{N: n}
	for m := range p.Models {
		a.Levels, b.Levels = append(a.Levels, p.PlanningSamples.Levels[m][:a.N]), append(b.Levels, p.PlanningSamples.Levels[m][a.N:])
		a.Correct, b.Correct = append(a.Correct, p.PlanningSamples.Correct[m][:a.N]), append(b.Correct, p.PlanningSamples.Correct[m][a.N:])
	}
	p.PlanningSamples, p.HeldOutSamples = a, b
}

// Where the samples held out say that an accuracy is out of reach, the error says so.
func TestTargetOutOfReachOutOfSample(t *testing.T) {
	p := llama4.problem(t, 4, 10)
	holdOutSamples(p, 4000)
	most, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.TargetAccuracy = most.Accuracy - 1e-9
	_, _, err = SolveHeldOut(context.Background(), p, programs, Options{Seed: 1})
	inf, ok := errors.AsType[*cascades.InfeasibleError](err)
	if !ok || inf.ClosestHeldOut == nil || !strings.Contains(inf.Reason(), "with these samples only") {
		t.Errorf("%v", err)
	}
}
