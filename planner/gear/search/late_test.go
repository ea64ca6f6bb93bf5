package search

import (
	"context"
	"errors"
	"math"
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/trials"
)

// histogram are the shares of the requests of twenty minutes of Azure functions
// by range (llama4).
var histogram = []float64{0, .024, .371, .134, 0, 0, 0, 0, .104, .367}

// An SLO over all requests is at least as accurate as one in every range, keeps
// the lateness that the percentile allows, and no range grows without end. On
// eight devices with INFERPLAN_LONG.
func TestOverRequestsIsNoLessAccurate(t *testing.T) {
	fleets := []int{3}
	if long {
		fleets = append(fleets, 2, 6, 8)
	}
	for _, devices := range fleets {
		p := llama4.problem(t, devices, 10)
		p.RangeWeights = cascades.HistogramWeights(histogram)
		apart, err := Solve(context.Background(), p, programs, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		p.OverRequests = true
		plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		late := 0.0
		for r := range plan.Gears {
			g := &plan.Gears[r]
			late += p.RangeWeights[r] * g.LateShare
			if g.BusiestLoad > 1 || !g.Trial.Stable {
				t.Errorf("%d devices, range %d: load %.3f, %+v", devices, r, g.BusiestLoad, g.Trial)
			}
		}
		t.Logf("%d devices: every range %.4f, all requests %.4f with %.3f late, bound %.4f", devices, apart.Accuracy, plan.Accuracy, late, plan.Bound)
		if plan.Accuracy < apart.Accuracy || plan.Accuracy > plan.Bound+1e-9 || late > 1-p.Percentile {
			t.Errorf("%d devices: accuracy %.4f with %.3f late, every range alone %.4f, bound %.4f", devices, plan.Accuracy, late, apart.Accuracy, plan.Bound)
		}
	}
}

// On measured rates the plan is run as a whole, and keeps the SLO there.
func TestTogetherOnMeasuredRates(t *testing.T) {
	p := llama4.problem(t, 6, 10)
	for _, rate := range []float64{15, 20, 30, 55, 58, 22, 12} {
		for range 60 { // seconds
			p.MeasuredRates = append(p.MeasuredRates, rate)
		}
	}
	p.RangeWeights, p.OverRequests = cascades.MeasuredWeights(p.MeasuredRates, 60, 10), true
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if plan.TailLatency == 0 || plan.TailLatency > p.SLO {
		t.Errorf("%v at the percentile of all requests, expected up to %v", plan.TailLatency, p.SLO)
	}
	onFreshStreams(t, plan, 0)
}

// onFreshStreams checks that no more than some of 20 streams of requests that the planner
// did not see, at random instants of the measured rates, miss the SLO.
func onFreshStreams(t *testing.T, plan *trials.Plan, most int) {
	t.Helper()
	b, late := trials.NewSimulator(plan.Problem, plan.Configs, nil, 1000), 0
	for k := range 20 {
		shown, err := b.RunMeasured(context.Background(), plan.Gears, k, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !shown.KeepsSLO(plan.Problem) {
			late++
		}
	}
	if t.Logf("%d of 20 fresh streams late", late); late > most {
		t.Errorf("%d of 20 fresh streams are late, expected %d at most", late, most)
	}
}

// Few requests do not tell a latency that wanders from one that grows: a gear with
// room passes, one at the edge of its SLO or that its devices cannot hold does not.
func TestTrendOfFewRequests(t *testing.T) {
	p := llama4.problem(t, 8, 10)
	p.RangeWeights = cascades.HistogramWeights(histogram)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	// 13B and 70B for .6506 at a load of .84 come to 2.9 s of the 3 s: three in a hundred are late.
	if top := plan.Gears[9].Accuracy; math.Abs(top-.6473) > 1e-4 || plan.Accuracy < .649 {
		t.Errorf("accuracy %.4f, of the fastest gear %.4f, expected .6491 and .6473", plan.Accuracy, top)
	}
	b := trials.NewSimulator(plan.Problem, plan.Configs, nil, 7)
	g := &plan.Gears[9]
	trial, err := b.TryCascade(context.Background(), &placement.LoadedCascade{Cascade: &g.Cascade, Shares: g.Shares, MaxLoad: g.BusiestLoad / 60}, 1.05*60/g.BusiestLoad)
	if err != nil {
		t.Fatal(err)
	}
	if trial.Passed {
		t.Errorf("at 105 %% of what the devices hold: %+v", trial)
	}
}

// secondCanceled is cancelled for all that is derived from it but the first.
type secondCanceled struct {
	context.Context
	derived int
}

func (c *secondCanceled) Done() <-chan struct{} {
	if c.derived++; c.derived == 1 {
		return nil
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (c *secondCanceled) Err() error {
	if c.derived > 1 {
		return context.Canceled
	}
	return nil
}

// Streams that are interrupted between two of them say so. The second one showed nothing,
// not even that the SLO is kept.
func TestInterruptedBetweenStreams(t *testing.T) {
	p := burstyProblem(t, 4, 1, 30)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 7, AnyPlan: true})
	if err != nil {
		t.Fatal(err)
	}
	b := trials.NewSimulator(p, plan.Configs, nil, 7)
	if _, err := b.RunStreams(&secondCanceled{Context: context.Background()}, plan.Gears, 3, 1); !errors.Is(err, context.Canceled) || *b.RunCount != 2 {
		t.Errorf("%v after %d runs, expected to be cancelled in the second", err, *b.RunCount)
	}
}
