package gear

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/report"
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
func holdOutSamples(p *Problem, n int) {
	if p.HeldOutSamples != nil && p.HeldOutSamples.N > 0 {
		return
	}
	a, b := &Samples{N: p.PlanningSamples.N - n}, &Samples{N: n}
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
	inf, ok := errors.AsType[*InfeasibleError](err)
	if !ok || inf.ClosestHeldOut == nil || !strings.Contains(inf.Reason(), "out of sample") {
		t.Errorf("%v", err)
	}
}

// Of right and wrong alone the interval is Wilson's; it holds the mean that samples are
// drawn with as often as it says, also where a sample is right in some ranges only.
func TestIntervalOfHeldOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		mean := float64(k) / float64(n)
		low, high := wilsonInterval(mean, mean*(1-mean), float64(n))
		if a, b := report.Wilson(int64(k), int64(n), heldOutConfidence); math.Abs(a-low) > 1e-9 || math.Abs(b-high) > 1e-9 {
			t.Fatalf("%d of %d: %v to %v, expected %v to %v", k, n, low, high, a, b)
		}
	})
	rng, in := rand.New(rand.NewPCG(1, 1)), 0
	const tries, n, mean = 1000, 500, .7*.9 + .3*.6
	for range tries {
		sum, squares := 0.0, 0.0
		for range n {
			x := 0.0
			if rng.Float64() < .9 {
				x += .7
			}
			if rng.Float64() < .6 {
				x += .3
			}
			sum, squares = sum+x/n, squares+x*x/n
		}
		if low, high := wilsonInterval(sum, squares-sum*sum, n); low <= mean && mean <= high {
			in++
		}
	}
	if in < 930 || in > 970 {
		t.Errorf("%d of %d intervals at %v hold the mean", in, tries, heldOutConfidence)
	}
}
