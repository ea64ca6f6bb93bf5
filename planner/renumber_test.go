package planner

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/sim"
	"inferplan/testkit/fewdraws"
)

// withOtherNumbers returns a plan whose devices have random numbers, or nil if its chains cannot be paired under these.
func withOtherNumbers(plan *formats.Plan, seed uint64) *formats.Plan {
	rng := rand.New(rand.NewPCG(seed, 7))
	var numbers [][]int
	for k := range plan.Pools {
		numbers = append(numbers, rng.Perm(plan.Pools[k].Count))
	}
	renumbered, _, _ := plan.WithDeviceNumbers(numbers)
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
