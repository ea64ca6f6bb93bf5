package planner

import (
	"bytes"
	"context"
	"math"
	"testing"

	"inferplan/formats"
	"inferplan/solver/highs"
)

// onTwoKinds is the family on a second kind of devices as well, which is slower at
// small models and faster at the largest, and has memory for two of them.
func onTwoKinds(first, second int) Inputs {
	in := threeSizes(first)
	for k := range in.Profile.Models {
		m := &in.Profile.Models[k]
		factor := []float64{2.5, 1.5, .5}[k]
		for _, ms := range m.Measurements {
			ms.Device = "cpu-4"
			ms.Blocks = []formats.Latency{{WallUS: formats.Micros(math.Round(factor * float64(ms.Blocks[0].WallUS)))}}
			m.Measurements = append(m.Measurements, ms)
		}
	}
	in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "cpu-4", Count: second, Memory: 5000})
	return in
}

// A gear plan over two kinds of devices: a valid document, the same at every
// solve, better than on the first kind alone; and the simulator shows what it
// promises, gear by gear.
func TestGearPlanOnTwoKinds(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	ctx := context.Background()
	res, err := Solve(ctx, onTwoKinds(1, 1), DefaultOptions(), highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := res.Plan
	first := planBytes(t, plan)
	if _, err := formats.DecodePlan(first, "plan.json"); err != nil {
		t.Fatalf("the plan does not read back: %v", err)
	}
	again, err := Solve(ctx, onTwoKinds(1, 1), DefaultOptions(), highs.Solver{}, nil)
	if err != nil || !bytes.Equal(first, planBytes(t, again.Plan)) {
		t.Errorf("another plan from the same inputs (%v)", err)
	}
	alone, err := Solve(ctx, threeSizes(1), DefaultOptions(), highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.4f of %.4f, on the first kind alone %.4f; limits %+v", plan.Objective.Value, *plan.Objective.Bound, alone.Plan.Objective.Value, plan.Limits)
	if plan.Objective.Value <= alone.Plan.Objective.Value || plan.Objective.Value > *plan.Objective.Bound || len(plan.Pools) != 2 || len(plan.Limits) != 2 {
		t.Errorf("objective %+v, alone %+v, %d pools, limits %+v", plan.Objective, alone.Plan.Objective, len(plan.Pools), plan.Limits)
	}
	kinds := map[string]bool{}
	for i := range plan.Models {
		for k := range plan.Models[i].Pipelines {
			kinds[plan.Models[i].Pipelines[k].Stages[0].Device] = true
		}
	}
	if len(kinds) != 2 {
		t.Errorf("models on %v, expected both kinds", kinds)
	}
	gearsHold(t, plan)
}
