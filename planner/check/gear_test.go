package check

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/planner"
)

// cascadeDocuments are a family of three with made-up records; memory 0 means
// no limit.
func cascadeDocuments(devices int, memory formats.Bytes, seed uint64) planner.Inputs {
	const n = 1200
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &formats.Profile{Format: "inferplan.profile/v1", Devices: []formats.ProfileDevice{{Device: "cpu-1"}}}
	rec := formats.Records{Samples: n, Planning: 1000}
	names := []string{"small", "middle", "large"}
	for k, name := range names {
		m := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: int64(1000 * (k + 1))}}}
		for _, b := range []int{1, 4, 16} {
			m.Measurements = append(m.Measurements, formats.Measurement{Device: "cpu-1", Share: 1, Batch: b, Blocks: []formats.Latency{{WallUS: ms(.125 + .075*float64(b*(int(1)<<(2*k))))}}})
		}
		p.Models = append(p.Models, m)
		r := formats.ModelRecords{Model: name}
		right := []byte{}
		for range n {
			ok, c := rng.Float64() < .7+.1*float64(k), rng.Float64()
			if ok {
				c = max(c, rng.Float64())
			}
			r.Certainty = append(r.Certainty, math.Round(1e4*c)/1e4)
			right = append(right, "01"[map[bool]int{true: 1}[ok]])
		}
		r.Correct = string(right)
		rec.Models = append(rec.Models, r)
	}
	p.Records = []formats.Records{rec}
	return planner.Inputs{Profile: p,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{{Device: "cpu-1", Count: devices, Memory: memory}}},
		Workload: &formats.Workload{Format: "inferplan.workload/v1", Cascade: &formats.Cascade{
			Family: names, SLO: formats.CascadeSLO{Latency: formats.SLO{Duration: 100e6}}, Grid: 5,
			QPS: formats.CascadeQPS{Max: 1500, Ranges: 3, Distribution: "zipf"},
		}}}
}

func gearPlan(t testing.TB, in planner.Inputs) *formats.Plan {
	res, err := planner.Solve(context.Background(), in, planner.DefaultOptions(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

func duplicate[T any](t testing.TB, v *T) *T {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A fresh plan holds, whatever the memory; nothing is found.
func TestGearPlanHolds(t *testing.T) {
	planned := 0
	for _, memory := range []formats.Bytes{0, 3000, 4500, 9000} {
		for devices := 1; devices <= 3; devices++ {
			in := cascadeDocuments(devices, memory, uint64(devices)+uint64(memory))
			res, err := planner.Solve(context.Background(), in, planner.DefaultOptions(), nil, nil)
			if err != nil {
				continue // few devices with little memory
			}
			planned++
			for _, f := range Recompute(res.Plan, in.Profile, in.Cluster, in.Workload) {
				t.Errorf("memory %d, %d devices: %s", memory, devices, f)
			}
			for _, f := range Recompute(res.Plan, in.Profile, in.Cluster, nil) {
				t.Errorf("memory %d, %d devices, without a workload: %s", memory, devices, f)
			}
		}
	}
	if planned < 8 {
		t.Errorf("only %d of 12 cases have a plan", planned)
	}
}

// Every figure of a gear plan is recomputed: a changed one is found, by name.
func TestGearPlanTampered(t *testing.T) {
	in := cascadeDocuments(2, 0, 1)
	plan := gearPlan(t, in)
	for name, c := range map[string]struct {
		change     func(*formats.Plan, *planner.Inputs)
		constraint string
		severity   Severity
	}{
		"accuracy":    {func(p *formats.Plan, _ *planner.Inputs) { p.Gear.Gears[1].Accuracy += .001 }, "accuracy", Error},
		"fraction":    {func(p *formats.Plan, _ *planner.Inputs) { last(p.Gear.Gears[2].Stages).Fraction *= .9 }, "fraction", Error},
		"utilisation": {func(p *formats.Plan, _ *planner.Inputs) { p.Gear.Gears[0].Utilisation *= .5 }, "utilisation", Error},
		"bound low":   {func(p *formats.Plan, _ *planner.Inputs) { p.Gear.Gears[2].Bound -= .001 }, "bound", Error},
		"bound high":  {func(p *formats.Plan, _ *planner.Inputs) { p.Gear.Gears[2].Bound += .001 }, "bound", Error},
		"objective":   {func(p *formats.Plan, _ *planner.Inputs) { p.Objective.Value += .001 }, "objective", Error},
		"latency":     {func(p *formats.Plan, _ *planner.Inputs) { p.Gear.Gears[0].LatencyUS = p.Gear.SLOUS + 1 }, "slo", Error},
		"split": {func(p *formats.Plan, _ *planner.Inputs) {
			p.Gear.Gears[2].Stages[0].Split = []float64{1, 0}
		}, "utilisation", Error},
		"memory": {func(_ *formats.Plan, in *planner.Inputs) { in.Cluster.Pools[0].Memory = 2500 }, "memory", Error},
		"device gone": {func(_ *formats.Plan, in *planner.Inputs) {
			in.Cluster.Pools[0].Count = 1
		}, "placement", Error},
		"model gone":   {func(_ *formats.Plan, in *planner.Inputs) { in.Workload.Cascade.Family = []string{"small", "middle"} }, "model", Error},
		"records gone": {func(_ *formats.Plan, in *planner.Inputs) { in.Profile.Records = nil }, "records", Error},
		"records moved": {func(_ *formats.Plan, in *planner.Inputs) {
			m := &in.Profile.Records[0].Models[2]
			m.Correct = strings.Repeat("0", 100) + m.Correct[100:]
		}, "accuracy", Warning},
		"slower": {func(_ *formats.Plan, in *planner.Inputs) {
			for i := range in.Profile.Models[2].Measurements {
				in.Profile.Models[2].Measurements[i].Blocks[0].WallUS *= 3
			}
		}, "utilisation", Error},
		"a little slower": {func(_ *formats.Plan, in *planner.Inputs) {
			in.Profile.Models[2].Measurements[0].Blocks[0].WallUS += 2000
		}, "latency", Warning},
		"slo":     {func(_ *formats.Plan, in *planner.Inputs) { in.Workload.Cascade.SLO.Latency.Duration = 1e6 }, "slo", Error},
		"weights": {func(_ *formats.Plan, in *planner.Inputs) { in.Workload.Cascade.QPS.Distribution = "uniform" }, "qps", Warning},
	} {
		p := duplicate(t, plan)
		now := planner.Inputs{Profile: duplicate(t, in.Profile), Cluster: duplicate(t, in.Cluster), Workload: duplicate(t, in.Workload)}
		c.change(p, &now)
		got := Recompute(p, now.Profile, now.Cluster, now.Workload)
		if !slices.ContainsFunc(got, func(f Finding) bool { return f.Constraint == c.constraint && f.Severity == c.severity }) {
			t.Errorf("%s: no %s about %s in %v", name, c.severity, c.constraint, got)
		}
	}
}

// goals are cascade documents that leave something else than accuracy to be
// optimised.
func goals(t testing.TB) map[string]planner.Inputs {
	out := map[string]planner.Inputs{}
	for _, name := range []string{"latency", "gpus", "cost", "power"} {
		in := cascadeDocuments(4, 4500, 1)
		in.Cluster.Pools[0].USDPerHour, in.Cluster.Pools[0].Watts = .5, 70
		in.Workload.Cascade.SLO.Accuracy = .86
		if name == "latency" {
			in.Workload.Cascade.SLO.Latency = formats.SLO{}
		}
		out[name] = in
	}
	return out
}

// Objective and bound are recomputed for every goal; a changed one is found.
func TestGearPlanGoals(t *testing.T) {
	for name, in := range goals(t) {
		opt := planner.DefaultOptions()
		if name != "latency" {
			opt.Objective = name
		}
		res, err := planner.Solve(context.Background(), in, opt, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := res.Plan
		if plan.Objective.Name != name {
			t.Fatalf("%s: objective %s", name, plan.Objective.Name)
		}
		if got := Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
		gate, err := Gate(context.Background(), GateInput{Plan: plan, Today: planner.Inputs{Profile: in.Profile}})
		if err != nil || gate.Verdict != Pass {
			t.Errorf("%s, from the plan alone: %v, %+v", name, err, gate)
		}
		step := 1.0
		switch name {
		case "cost":
			step = .5
		case "power":
			step = 70
		}
		changes := map[string]struct {
			change     func(*formats.Plan)
			constraint string
		}{
			"value up":     {func(p *formats.Plan) { p.Objective.Value += step / 2 }, "objective"},
			"value down":   {func(p *formats.Plan) { p.Objective.Value -= step }, "objective"},
			"target":       {func(p *formats.Plan) { p.Gear.Accuracy = .95 }, "accuracy"},
			"gear's bound": {func(p *formats.Plan) { p.Gear.Gears[1].Bound += .001 }, "bound"},
			"bound high":   {func(p *formats.Plan) { *p.Objective.Bound = p.Objective.Value + step }, "bound"},
			"bound a bit high": {func(p *formats.Plan) {
				if name == "latency" {
					*p.Objective.Bound *= 1.05
				} else {
					*p.Objective.Bound += step
				}
			}, "bound"},
		}
		for what, c := range changes {
			p := duplicate(t, plan)
			c.change(p)
			got := Recompute(p, in.Profile, in.Cluster, in.Workload)
			if !slices.ContainsFunc(got, func(f Finding) bool { return f.Constraint == c.constraint && f.Severity == Error }) {
				t.Errorf("%s, %s: no error about %s in %v (value %v, bound %v)", name, what, c.constraint, got, p.Objective.Value, *p.Objective.Bound)
			}
		}
	}
}

// An SLO over all requests allows ranges that are late, but not all together.
func TestGearPlanOverRequests(t *testing.T) {
	in := cascadeDocuments(1, 0, 1)
	in.Workload.Cascade.SLO.Over = formats.OverRequests
	in.Workload.Cascade.SLO.Latency.Duration = 8e6
	in.Workload.Cascade.QPS = formats.CascadeQPS{Max: 1500, Histogram: []float64{.7, .1, .2}}
	plan := gearPlan(t, in)
	if plan.Gear.Over != formats.OverRequests {
		t.Fatalf("the plan does not say that its SLO is over requests: %+v", plan.Gear.Over)
	}
	if got := Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
		t.Errorf("%v", got)
	}
	plan.Gear.Gears[2].Late = .3
	if got := Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) != 1 || got[0].Constraint != "slo" {
		t.Errorf("30 %% late in a range with a fifth of the requests: %v", got)
	}
}

func last(s []formats.GearStage) *formats.GearStage { return &s[len(s)-1] }

// The gate compares accuracy, rate and simulated tails.
func TestGearGate(t *testing.T) {
	in := cascadeDocuments(2, 0, 1)
	plan := gearPlan(t, in)
	same, err := Gate(context.Background(), GateInput{Plan: plan, Today: planner.Inputs{Profile: in.Profile}})
	if err != nil || same.Verdict != Pass {
		t.Fatalf("unchanged: %v, %+v", err, same)
	}
	slow := duplicate(t, in.Profile)
	for m := range slow.Models {
		for i := range slow.Models[m].Measurements {
			slow.Models[m].Measurements[i].Blocks[0].WallUS += slow.Models[m].Measurements[i].Blocks[0].WallUS / 20
		}
	}
	res, err := Gate(context.Background(), GateInput{Plan: plan, Today: planner.Inputs{Profile: slow}, OldProfile: in.Profile})
	if err != nil || res.Verdict != Fail {
		t.Fatalf("5 %% slower: %v, %+v", err, res)
	}
	for _, m := range []string{"rps", "p99", "block"} {
		if !slices.ContainsFunc(res.Metrics, func(c Comparison) bool { return c.Metric == m && c.Failed }) {
			t.Errorf("5 %% slower: %s did not fail: %+v", m, res.Metrics)
		}
	}
	wrong := duplicate(t, in.Profile)
	for i := range wrong.Records[0].Models {
		m := &wrong.Records[0].Models[i]
		m.Correct = strings.Repeat("0", 60) + m.Correct[60:]
	}
	res, err = Gate(context.Background(), GateInput{Plan: plan, Today: planner.Inputs{Profile: wrong}})
	if err != nil || !slices.ContainsFunc(res.Metrics, func(c Comparison) bool { return c.Metric == "accuracy" && c.Failed }) {
		t.Errorf("60 wrong answers: %v, %+v", err, res.Metrics)
	}
}

// Models of a cascade take turns on GPUs, too, where pools of pipelines are each
// model's own: a fresh plan for a GPU holds.
func TestGearPlanOfAGPU(t *testing.T) {
	in := cascadeDocuments(2, 0, 5)
	in.Cluster.Pools[0].Device = "L4"
	for m := range in.Profile.Models {
		for i := range in.Profile.Models[m].Measurements {
			in.Profile.Models[m].Measurements[i].Device = "L4"
		}
	}
	if got := Recompute(gearPlan(t, in), in.Profile, in.Cluster, in.Workload); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
