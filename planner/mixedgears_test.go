package planner

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
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
			ms.Blocks = []formats.Latency{{WallUS: document.Micros(math.Round(factor * float64(ms.Blocks[0].WallUS)))}}
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
	res, err := Solve(ctx, onTwoKinds(1, 1), Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := res.Plan
	first := planBytes(t, plan)
	if _, err := formats.DecodePlan(first, "plan.json"); err != nil {
		t.Fatalf("the plan does not read back: %v", err)
	}
	again, err := Solve(ctx, onTwoKinds(1, 1), Options{}, highs.Solver{}, nil)
	if err != nil || !bytes.Equal(first, planBytes(t, again.Plan)) {
		t.Errorf("another plan from the same inputs (%v)", err)
	}
	alone, err := Solve(ctx, threeSizes(1), Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.4f of %.4f, on the first kind alone %.4f; limits %+v", plan.Objective.Value, *plan.Objective.Bound, alone.Plan.Objective.Value, plan.Limits)
	if plan.Objective.Value <= alone.Plan.Objective.Value || plan.Objective.Value > *plan.Objective.Bound || len(plan.Pools) != 2 || len(plan.Limits) != 2 {
		t.Errorf("objective %+v, alone %+v, %d pools, limits %+v", plan.Objective, alone.Plan.Objective, len(plan.Pools), plan.Limits)
	}
	kinds := map[string]bool{}
	for i := range plan.Deployment {
		for k := range plan.Deployment[i].Pipelines {
			kinds[plan.Deployment[i].Pipelines[k].Stages[0].Device] = true
		}
	}
	if len(kinds) != 2 {
		t.Errorf("models on %v, expected both kinds", kinds)
	}
	gearsHold(t, plan)
}

// Whatever is optimised on one kind is on two: a valid document, the same at every
// solve, within its bound, and never worse than on either kind alone.
func TestGoalsOnTwoKinds(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	ctx := context.Background()
	for _, c := range []struct {
		name, objective string
		slo             formats.CascadeSLO
	}{
		{"accuracy of all requests", "accuracy", formats.CascadeSLO{Latency: document.SLO{Duration: 100e6}, Scope: formats.ScopeRequests}},
		{"latency", "latency", formats.CascadeSLO{Accuracy: .8}},
		{"gpus", "gpus", formats.CascadeSLO{Latency: document.SLO{Duration: 100e6}, Accuracy: .84}},
		{"cost", "cost", formats.CascadeSLO{Latency: document.SLO{Duration: 100e6}, Accuracy: .84}},
		{"power", "power", formats.CascadeSLO{Latency: document.SLO{Duration: 100e6}, Accuracy: .84, Scope: formats.ScopeRequests}},
	} {
		documents := func(first, second int) Inputs {
			in := onTwoKinds(2, 2)
			cascade := formats.CascadeOf(in.Workload)
			cascade.SLO, cascade.Grid, cascade.QPS.Ranges = c.slo, 4, 3
			for k, price := range []float64{1, .4} {
				in.Cluster.Pools[k].USDPerHour, in.Cluster.Pools[k].Watts = price, 100*price
			}
			in.Cluster.Pools[0].Count, in.Cluster.Pools[1].Count = first, second
			return in
		}
		var opt Options
		opt.Set("objective", c.objective)
		res, err := Solve(ctx, documents(2, 2), opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		plan, o := res.Plan, res.Plan.Objective
		first := planBytes(t, plan)
		if _, err := formats.DecodePlan(first, "plan.json"); err != nil {
			t.Errorf("%s: the plan does not read back: %v", c.name, err)
		}
		if c.objective == "gpus" {
			if again, err := Solve(ctx, documents(2, 2), opt, highs.Solver{}, nil); err != nil || !bytes.Equal(first, planBytes(t, again.Plan)) {
				t.Errorf("%s: another plan from the same inputs (%v)", c.name, err)
			}
		}
		accuracy := 0.0
		for _, g := range formats.GearOf(plan).Gears {
			accuracy += g.Weight * g.Accuracy
		}
		ahead := func(a, b float64) bool {
			return c.objective == "accuracy" && a > b || c.objective != "accuracy" && a < b
		}
		if o.Name != c.objective || ahead(o.Value, *o.Bound) || accuracy < c.slo.Accuracy {
			t.Errorf("%s: %+v, accuracy %v", c.name, o, accuracy)
		}
		text := ""
		for _, n := range [][2]int{{2, 0}, {0, 2}} {
			alone, err := Solve(ctx, documents(n[0], n[1]), opt, highs.Solver{}, nil)
			if err != nil {
				text += fmt.Sprintf(", %v alone: %v", n, err)
				continue
			}
			value := alone.Plan.Objective.Value
			text += fmt.Sprintf(", %v alone: %.5g", n, value)
			slack := 1.0
			if c.objective == "latency" {
				slack = 1.05 // as close as the search comes
			}
			if ahead(value, o.Value*slack) {
				t.Errorf("%s: %v, on %v alone %v", c.name, o.Value, n, value)
			}
		}
		t.Logf("%s: %.5g of %.5g%s", c.name, o.Value, *o.Bound, text)
		if c.slo.Scope == "" {
			gearsHold(t, plan)
		}
	}
}
