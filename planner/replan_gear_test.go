package planner

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/solver/highs"
	"inferplan/testkit/fewdraws"
)

// tightFamily is threeSizes with few samples, on devices that hold two of the three models each.
func tightFamily(devices int, maxRate float64) Inputs {
	in := threeSizes(devices)
	in.Cluster.Pools[0].Memory = document.Bytes(4000)
	r := &in.Profile.Records[0]
	for i := range r.Models {
		r.Models[i].Certainty, r.Models[i].Correct = r.Models[i].Certainty[:400], r.Models[i].Correct[:400]
	}
	r.Samples, r.PlanningSamples = 400, 400
	cascade := formats.CascadeOf(in.Workload)
	cascade.Grid, cascade.QPS = 4, formats.CascadeQPS{Max: maxRate, Ranges: 2, Distribution: "uniform"}
	return in
}

// A cascade that runs goes on where it can: nothing moves if nothing changed or if rates are lower, at higher rates no more
// devices move than may, and the more may, the better is the plan. If none may and what runs does not hold the rates, there is
// none.
func TestCascadeGoesOnWhereItCan(t *testing.T) {
	before := mustSolve(t, tightFamily(4, 6000), Options{}).Plan
	solve := func(devices int, rate, maxMoved, gap float64) (*Result, error) {
		in := tightFamily(devices, rate)
		in.RunningPlan = before
		var opt Options
		opt.Set("max-moved", maxMoved)
		opt.Set("gap", gap)
		return Solve(t.Context(), in, opt, highs.Solver{}, nil)
	}
	for _, c := range []struct {
		name    string
		devices int
		rate    float64
	}{{"nothing changed", 4, 6000}, {"lower rates", 4, 1000}, {"a device less", 3, 1000}} {
		res, err := solve(c.devices, c.rate, 1, .02)
		if err != nil {
			t.Fatal(c.name, err)
		}
		if r := res.Plan.Replan; r.MovedGPUs != 0 || r.GPUs != c.devices || r.RunningValue == nil || res.Plan.Objective.Value < *r.RunningValue {
			t.Errorf("%s: %+v", c.name, r)
		}
	}

	// Higher rates.
	if _, err := solve(4, 9000, 0, .001); err == nil || !strings.Contains(err.Error(), "at most 0 of 4 devices; the best one does so on") {
		t.Errorf("none may move: %v", err)
	}
	value := 0.0
	for _, maxMoved := range []float64{.25, 1} {
		res, err := solve(4, 9000, maxMoved, .001)
		if err != nil {
			t.Fatal(err)
		}
		if r := res.Plan.Replan; r.MovedGPUs < 1 || float64(r.MovedGPUs) > 4*maxMoved || r.RunningValue != nil || !(res.Plan.Objective.Value > value) {
			t.Errorf("at most %v move: %+v with a value of %v after %v", maxMoved, r, res.Plan.Objective.Value, value)
		}
		value = res.Plan.Objective.Value
	}
}

// The latency is minimised near what runs, too, by the latency that this has today.
func TestLatencyOfARunningCascade(t *testing.T) {
	problem := func(rate float64) Inputs {
		in := tightFamily(2, rate)
		formats.CascadeOf(in.Workload).SLO = formats.CascadeSLO{Accuracy: .75}
		return in
	}
	in := problem(300)
	in.RunningPlan = mustSolve(t, problem(200), Options{}).Plan
	var opt Options
	opt.Set("max-moved", 0.0)
	got := mustSolve(t, in, opt).Plan
	if r := got.Replan; r.MovedGPUs != 0 || r.RunningValue == nil || got.Objective.Value > *r.RunningValue || got.Objective.Value < *got.Objective.Bound {
		t.Errorf("%+v after a running plan: %+v", got.Objective, r)
	}
}

// Members in stages go on, too: chains that run are found again, and nothing moves.
func TestCascadeInStagesGoesOn(t *testing.T) {
	problem := func(rate float64) Inputs {
		in := inBlocks(4, 0, []float64{1.5, 1.5, 1.5, 1.5}) // the largest member fits on no device whole
		in.Cluster.Pools[0].Memory = document.Bytes(2600)
		cascade := formats.CascadeOf(in.Workload)
		cascade.Grid, cascade.QPS = 4, formats.CascadeQPS{Max: rate, Ranges: 2, Distribution: "uniform"}
		return in
	}
	before := mustSolve(t, problem(800), Options{}).Plan
	inStages := false
	for s := range before.Stages() {
		inStages = inStages || s.Position > 0
	}
	if !inStages {
		t.Fatal("the plan that runs has no stages, so the test says nothing")
	}
	for _, rate := range []float64{800, 600} {
		in := problem(rate)
		in.RunningPlan = before
		var opt Options
		opt.Set("max-moved", 0.0)
		got := mustSolve(t, in, opt).Plan
		if r := got.Replan; r.MovedGPUs != 0 || r.RunningValue == nil || got.Objective.Value < *r.RunningValue {
			t.Errorf("%v rps: %+v, assumed %v", rate, r, got.Assumptions)
		}
	}
}

// drawnFamily is tightFamily on one to four devices at a drawn rate, with or without an accuracy that is asked for.
func drawnFamily(t *rapid.T, label string) Inputs {
	in := tightFamily(rapid.IntRange(1, 4).Draw(t, label+" devices"), float64(rapid.IntRange(100, 3000).Draw(t, label+" rate")))
	cascade := formats.CascadeOf(in.Workload)
	if rapid.Bool().Draw(t, label+" has an accuracy target") { // the fewest devices
		cascade.SLO.Accuracy = .78
	}
	return in
}

// A cascade that starts from another one moves no more devices than it may, and is no worse than what runs.
func TestCascadesStartFromWhatRuns(t *testing.T) {
	fewdraws.Check(t, 5, func(t *rapid.T) {
		solve := func(in Inputs, opt Options) *formats.Plan {
			opt.SkipNearest = true
			res, err := Solve(t.Context(), in, opt, highs.Solver{}, nil)
			if _, ok := errors.AsType[*InfeasibleError](err); ok {
				t.Skip("no plan")
			}
			if err != nil {
				t.Fatal(err)
			}
			return res.Plan
		}
		running := solve(drawnFamily(t, "running"), Options{})
		next := drawnFamily(t, "next")
		next.RunningPlan = running
		maxMoved := rapid.SampledFrom([]float64{0, .25, .5, 1}).Draw(t, "max-moved")
		var opt Options
		opt.Set("max-moved", maxMoved)
		made := solve(next, opt)
		if err := made.Validate(); err != nil {
			t.Fatal(err)
		}
		moved, before := 0, running.HeldByDevice()
		for n, held := range made.HeldByDevice()[0] {
			if n >= len(before[0]) && len(held) > 0 || n < len(before[0]) && !before[0][n].Covers(held) {
				moved++
			}
		}
		if r := made.Replan; r.MovedGPUs != moved || float64(moved) > maxMoved*float64(r.GPUs)+1e-9 {
			t.Errorf("%d of %d devices move, at most %v: %+v", moved, r.GPUs, maxMoved, r)
		}
		if v, o := made.Replan.RunningValue, made.Objective; v != nil && (o.Name == "accuracy" && o.Value < *v || o.Name != "accuracy" && o.Value > *v) {
			t.Errorf("%s of %v, and %v runs", o.Name, o.Value, *v)
		}
	})
}
