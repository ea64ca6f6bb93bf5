package flow

import (
	"context"
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
)

// chained is a problem of two modules in a row on two kinds of devices.
func chained(objective string) *kind.Problem {
	profile := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "new"}, {Device: "old"}}}
	for m, name := range []string{"detect", "classify"} {
		one := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all"}}}
		for slow, device := range []string{"new", "old"} {
			for _, b := range []int{1, 2, 4, 8} {
				took := formats.Latency{WallUS: formats.Micros(float64(slow+1) * float64(m+1) * float64(4+2*b) * 1e6)}
				one.Measurements = append(one.Measurements, formats.Measurement{Device: device, Share: 1, Batch: b, Blocks: []formats.Latency{took}, Whole: &took})
			}
		}
		profile.Models = append(profile.Models, one)
	}
	p := &kind.Problem{Values: formats.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1, Documents: kind.Documents{Profile: profile,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "new", Count: 20, USDPerHour: 2}, {Device: "old", Count: 20, USDPerHour: .5}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{{Name: "seen", SLO: formats.SLO{Duration: 200 * time.Millisecond}, RPS: 400,
			Modules: []formats.Module{{Name: "detect"}, {Name: "classify"}}}}}}}
	if err := p.Values.Set("objective", objective); err != nil {
		panic(err)
	}
	return p
}

// spare is the least that a model's devices carry over what is asked of it.
func spare(plan *formats.Plan) float64 {
	least, need := math.Inf(1), needed(plan)
	for i := range plan.Deployment {
		carried := 0.0
		for _, l := range plan.Deployment[i].Pipelines {
			carried += l.RPS
		}
		least = min(least, carried/need[plan.Deployment[i].Model])
	}
	return least
}

// Devices join until what is asked is attained, none can be spared then, and the plan
// is one that a check finds sound.
func TestSized(t *testing.T) {
	for _, objective := range []string{"gpus", "cost"} {
		p := chained(objective)
		first := planOf(t, p)
		for _, asked := range []float64{1, 1.1, 1.25} {
			runs := 0
			show := func(plan *formats.Plan) (float64, error) {
				runs++
				return spare(plan), nil
			}
			got, err := Sized(first, asked, show)
			if err != nil || got == nil {
				t.Fatal(asked, err)
			}
			if spare(got) < asked || runs == 0 {
				t.Errorf("%s: %.2f to spare, asked %.2f", objective, spare(got), asked)
			}
			for _, less := range resized(got, -1) {
				if spare(less) >= asked {
					t.Errorf("%s, %.2f: a device can be spared", objective, asked)
				}
			}
			today := &kind.Today{Plan: got, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}
			for _, f := range verify.Check(today) {
				t.Errorf("%s, %.2f: %+v", objective, asked, f)
			}
			if spare(first) < asked && got.Objective.Value <= first.Objective.Value {
				t.Errorf("%s: %v after %v, with more to spare", objective, got.Objective.Value, first.Objective.Value)
			}
		}
		if got, err := Sized(first, 100, func(plan *formats.Plan) (float64, error) { return spare(plan), nil }); got != nil || err != nil {
			t.Errorf("%s: %v and %v where the devices do not suffice", objective, got, err)
		}
	}
}

// With the margin by simulation a plan is certified for its rates.
func TestMarginBySimulation(t *testing.T) {
	p := chained("gpus")
	solve := func(_ context.Context, values formats.Values, _ func(kind.Progress)) (*kind.Result, error) {
		q := *p
		q.Values = values
		return &kind.Result{Plan: planOf(t, &q)}, nil
	}
	asked := kind.Asked{Runs: 2, Duration: 5 * time.Second}
	res, err := tune(t.Context(), p, asked, solve)
	if err != nil {
		t.Fatal(err)
	}
	if c := res.Plan.Certified; c == nil || c.LoadFactor < 1 {
		t.Errorf("certified %+v", c)
	}
	for _, m := range autoMargins {
		v := p.Values
		if err := v.Set("margin", m); err != nil {
			t.Fatal(err)
		}
		one, err := solve(t.Context(), v, nil)
		if err != nil {
			t.Fatal(err)
		}
		full, _ := asked.Of(one.Plan, certified, 0, time.Hour)
		if has, err := attained(t.Context(), one.Plan, full); err != nil || has >= .99 && one.Plan.Objective.Value < res.Plan.Objective.Value {
			t.Errorf("margin %v attains %v with %v devices, %v were taken (%v)", m, has, one.Plan.Objective.Value, res.Plan.Objective.Value, err)
		}
	}
}
