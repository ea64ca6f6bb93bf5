package planner

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/fewdraws"
)

// withOtherNumbers returns a plan whose devices have random numbers, or nil if its chains cannot be paired under these.
func withOtherNumbers(plan *formats.Plan, seed uint64) *formats.Plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	var numbers [][]int
	for k := range plan.Pools {
		numbers = append(numbers, rng.Perm(plan.Pools[k].Count))
	}
	renumbered, _ := plan.WithDeviceNumbers(numbers)
	return renumbered
}

// A plan whose devices have other numbers is valid and simulates as before: as many requests are in time, and latencies
// differ by no more than the order in which equal devices are asked makes of them.
func TestOtherNumbersOfDevicesAreTheSamePlan(t *testing.T) {
	plans := map[string]*formats.Plan{}
	for _, name := range []string{"plan-gear.v2.json", "plan-flow.v2.json"} {
		plan, err := formats.ReadPlan(filepath.Join("..", "testdata", "compat", name))
		if err != nil {
			t.Fatal(err)
		}
		plans[name] = plan
	}
	plans["gears on two models each"] = mustSolve(t, tightFamily(3, 4500), Options{}).Plan
	fewdraws.Check(t, 6, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"plan-gear.v2.json", "plan-flow.v2.json", "gears on two models each"}).Draw(t, "plan")
		plan := plans[name]
		renumbered := withOtherNumbers(plan, rapid.Uint64().Draw(t, "seed"))
		if renumbered == nil {
			t.Skip("chains in another order")
		}
		if err := renumbered.Validate(); err != nil {
			t.Fatal(err)
		}
		before, after := figures(t, plan), figures(t, renumbered)
		isClose := func(a, b float64) bool { return math.Abs(a-b) <= .02*math.Abs(a) }
		if !slices.EqualFunc(before, after, isClose) {
			t.Errorf("%s: %v, with other numbers %v", name, before, after)
		}
	})
}

// figures returns what simulation shows of a plan: requests, those in time, and the latencies at two percentiles.
func figures(t *rapid.T, plan *formats.Plan) (list []float64) {
	scenario, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	scenario.Load, scenario.Duration, scenario.Seed, scenario.Verify = .7, 10*time.Second, 3, true
	result, err := sim.Replicate(t.Context(), scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range result.Report.Models {
		list = append(list, float64(m.Requests), m.Attainment, float64(m.Latency.P50US), float64(m.Latency.P99US))
	}
	return list
}

// drawnFamily is a family on one or two kinds of devices, of which some hold only two of its models.
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
