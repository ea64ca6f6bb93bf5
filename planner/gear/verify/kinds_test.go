package verify_test

import (
	"context"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// onTwoKinds are documents of a family on two devices, of which one is slow at small
// models and fast at the largest.
func onTwoKinds() planner.Inputs {
	in := cascadeDocuments(1, 0, 3)
	for k := range in.Profile.Models {
		m := &in.Profile.Models[k]
		factor := []float64{2.5, 1.5, .5}[k]
		for _, one := range m.Measurements {
			one.Device = "cpu-4"
			one.Blocks = []formats.Latency{{WallUS: document.Micros(int64(factor*float64(one.Blocks[0].WallUS)) / 1000 * 1000)}}
			m.Measurements = append(m.Measurements, one)
		}
	}
	in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "cpu-4", Count: 1, Memory: 5000})
	formats.CascadeOf(in.Workload).QPS.Max = 4000
	return in
}

// A gear plan over two kinds of devices holds when it is fresh; what is changed
// on the second kind is found, too.
func TestGearPlanOnKinds(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	in := onTwoKinds()
	res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
		t.Errorf("%v", got)
	}
	gate, err := check.Gate(context.Background(), check.GateInput{Plan: res.Plan, Today: planner.Inputs{Profile: in.Profile}, Solver: highs.Solver{}})
	if err != nil || gate.Verdict != check.Pass {
		t.Errorf("from the plan alone: %v, %+v", err, gate)
	}
	onSecond := func(p *formats.Plan) *formats.Pipeline {
		for i := range p.Deployment {
			for k := range p.Deployment[i].Pipelines {
				if pl := &p.Deployment[i].Pipelines[k]; pl.Stages[0].Device == "cpu-4" {
					return pl
				}
			}
		}
		t.Fatal("nothing stands on the second kind")
		return nil
	}
	for name, c := range map[string]struct {
		change     func(*formats.Plan, *planner.Inputs)
		constraint string
		severity   check.Severity
	}{
		"memory":                 {func(_ *formats.Plan, in *planner.Inputs) { in.Cluster.Pools[1].Memory = 900 }, "memory", check.Error},
		"placement":              {func(p *formats.Plan, _ *planner.Inputs) { onSecond(p).Stages[0].Placement[0].FirstDevice = 7 }, "placement", check.Error},
		"bound high":             {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[2].Bound = 1 }, "bound", check.Error},
		"bound low":              {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[2].Bound = .5 }, "bound", check.Error},
		"objective's bound high": {func(p *formats.Plan, _ *planner.Inputs) { *p.Objective.Bound = mixtureBound(p) + .001 }, "objective", check.Error},
		"objective's bound low":  {func(p *formats.Plan, _ *planner.Inputs) { *p.Objective.Bound = p.Objective.Value - .001 }, "objective", check.Error},
		"objective's bound of one kind": {func(p *formats.Plan, _ *planner.Inputs) {
			*p.Objective.Bound, p.Objective.Value = .5, .5
		}, "bound", check.Error},
		"slower": {func(_ *formats.Plan, in *planner.Inputs) {
			for m := range in.Profile.Models {
				for i := range in.Profile.Models[m].Measurements {
					if one := &in.Profile.Models[m].Measurements[i]; one.Device == "cpu-4" {
						one.Blocks[0].WallUS *= 4
					}
				}
			}
		}, "utilisation", check.Error},
	} {
		p := duplicate(t, res.Plan)
		now := planner.Inputs{Profile: duplicate(t, in.Profile), Cluster: duplicate(t, in.Cluster), Workload: duplicate(t, in.Workload)}
		c.change(p, &now)
		got := check.Recompute(p, now.Profile, now.Cluster, now.Workload)
		if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == c.severity }) {
			t.Errorf("%s: no %s about %s in %v", name, c.severity, c.constraint, got)
		}
	}
}

// So does a plan for another goal; a value or a bound that was changed by hand does
// not.
func TestGoalsOnKinds(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	in := onTwoKinds()
	for k, price := range []float64{1, .4} {
		in.Cluster.Pools[k].Count, in.Cluster.Pools[k].USDPerHour = 2, price
	}
	latency := document.SLO{Duration: 100e6}
	for name, c := range map[string]struct {
		objective string
		slo       formats.CascadeSLO
	}{
		"over all requests": {"accuracy", formats.CascadeSLO{Latency: latency, Scope: formats.ScopeRequests}},
		"latency":           {"latency", formats.CascadeSLO{Accuracy: .8}},
		"cost":              {"cost", formats.CascadeSLO{Latency: latency, Accuracy: .82}},
	} {
		formats.CascadeOf(in.Workload).SLO = c.slo
		opt := planner.Options{}
		opt.Set("objective", c.objective)
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
		if got := check.Recompute(res.Plan, in.Profile, in.Cluster, nil); len(got) > 0 {
			t.Errorf("%s, without a workload: %v", name, got)
		}
		for what, change := range map[string]func(*formats.Plan){
			"value": func(p *formats.Plan) { p.Objective.Value *= .9 },
			"bound": func(p *formats.Plan) { *p.Objective.Bound, formats.GearOf(p).Gears[0].Bound = 1e3, 1 },
		} {
			p := duplicate(t, res.Plan)
			change(p)
			if got := check.Recompute(p, in.Profile, in.Cluster, in.Workload); !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Severity == check.Error }) {
				t.Errorf("%s: nothing is said of another %s: %v", name, what, got)
			}
		}
	}
}
