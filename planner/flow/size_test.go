package flow

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/graph"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// twoModuleProblem is a problem of two modules in a row on two kinds of devices.
func twoModuleProblem(objective string) *kind.Problem {
	profile := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "new"}, {Device: "old"}}}
	for m, name := range []string{"detect", "classify"} {
		one := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all"}}}
		for slow, device := range []string{"new", "old"} {
			for _, b := range []int{1, 2, 4, 8} {
				took := formats.Latency{WallUS: document.Micros(float64(slow+1) * float64(m+1) * float64(4+2*b) * 1e6)}
				one.Measurements = append(one.Measurements, formats.Measurement{Device: device, Share: 1, Batch: b, Blocks: []formats.Latency{took}, WholeModel: &took})
			}
		}
		profile.Models = append(profile.Models, one)
	}
	p := &kind.Problem{Values: document.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1, Documents: kind.Documents{Profile: profile,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "new", Count: 20, USDPerHour: 2}, {Device: "old", Count: 20, USDPerHour: .5}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{{Name: "seen", SLO: document.SLO{Duration: 200 * time.Millisecond}, RPS: 400,
			Modules: []formats.Module{{Name: "detect"}, {Name: "classify"}}}}}}}
	if err := p.Values.Set("objective", objective); err != nil {
		panic(err)
	}
	return p
}

// minSpareFactor is the least that a model's devices carry over what is asked of it.
func minSpareFactor(plan *formats.Plan) float64 {
	least, need := math.Inf(1), map[string]float64{}
	for _, a := range formats.FlowOf(plan).Applications {
		for _, m := range a.Modules {
			need[m.Model] += a.RPS
		}
	}
	for i := range plan.Deployment {
		carried := 0.0
		for _, l := range plan.Deployment[i].Pipelines {
			carried += l.RPS
		}
		least = min(least, carried/need[plan.Deployment[i].Model])
	}
	return least
}

// sized returns the cheapest plan that attains a share, from one plan.
func sized(p *kind.Problem, start *formats.Plan, asked float64, attainment graph.AttainmentFunc) (*formats.Plan, error) {
	sizing, err := graph.NewSizing(p, []*formats.Plan{start}, true, attainment)
	if err != nil {
		return nil, err
	}
	return sizing.CheapestPlan(asked)
}

// What is found attains what is asked, no device can be spared, and a check finds it
// sound. With too few devices there is nothing.
func TestSizedPlanAttainsWithoutSpareDevices(t *testing.T) {
	for _, objective := range []string{"gpus", "cost"} {
		p := twoModuleProblem(objective)
		first := planOf(t, p)
		show := func(plan *formats.Plan, _ bool) (float64, error) { return minSpareFactor(plan), nil }
		for _, asked := range []float64{1, 1.1, 1.25} {
			got, err := sized(p, first, asked, show)
			if err != nil || got == nil {
				t.Fatal(asked, err)
			}
			if minSpareFactor(got) < asked {
				t.Errorf("%s: %.2f to spare, asked %.2f", objective, minSpareFactor(got), asked)
			}
			today := &kind.CheckInput{Plan: got, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}
			for _, f := range verify.Check(today) {
				t.Errorf("%s, %.2f: %+v", objective, asked, f)
			}
			if minSpareFactor(first) < asked && got.Objective.Value <= first.Objective.Value {
				t.Errorf("%s: %v after %v, with more to spare", objective, got.Objective.Value, first.Objective.Value)
			}
		}
		if got, err := sized(p, first, 100, show); got != nil || err != nil {
			t.Errorf("%s: %v and %v where the devices do not suffice", objective, got, err)
		}
	}
}

// A plan with a batch, a share or a model that the problem does not have is no start: the error says which model.
func TestStartOutsideProblemIsAnError(t *testing.T) {
	p := twoModuleProblem("gpus")
	for name, change := range map[string]func(d *formats.Deployed){
		"batch": func(d *formats.Deployed) { d.Pipelines[0].Batch += 1000 },
		"share": func(d *formats.Deployed) { d.Pipelines[0].Stages[0].Share = 7 },
		"kind":  func(d *formats.Deployed) { d.Pipelines[0].Stages[0].Device = "another" },
		"model": func(d *formats.Deployed) { d.Model = "another" },
	} {
		plan := planOf(t, p)
		change(&plan.Deployment[0])
		got, err := sized(p, plan, 1, func(*formats.Plan, bool) (float64, error) { return 1, nil })
		if err == nil || !strings.Contains(err.Error(), plan.Deployment[0].Model) {
			t.Errorf("another %s: %v, %v", name, got, err)
		}
	}
}

// With the margin by simulation a plan is certified for its rates.
func TestMarginBySimulation(t *testing.T) {
	p := twoModuleProblem("gpus")
	solve := func(_ context.Context, q *kind.Problem, _ func(kind.Progress)) (*kind.Result, error) {
		return &kind.Result{Plan: planOf(t, q)}, nil
	}
	asked := kind.TestSettings{Runs: 2, Duration: 5 * time.Second}
	res, err := tune(t.Context(), p, asked, solveTestPlan)
	if err != nil {
		t.Fatal(err)
	}
	if c := res.Plan.Certificate; c == nil || c.LoadFactor < 1 {
		t.Errorf("certified %+v", c)
	}
	for _, m := range []float64{.1, .2, .3} {
		q := *p
		if err := q.Values.Set("margin", m); err != nil {
			t.Fatal(err)
		}
		one, err := solve(t.Context(), &q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if has, err := (&tuner{}).attainmentSurplus(t.Context(), one.Plan, asked); err != nil || has >= 0 && one.Plan.Objective.Value < res.Plan.Objective.Value {
			t.Errorf("margin %v attains %v with %v devices, %v were taken (%v)", m, has, one.Plan.Objective.Value, res.Plan.Objective.Value, err)
		}
	}
}

// solveTestPlan plans a problem once, without a search over its options.
func solveTestPlan(ctx context.Context, p *kind.Problem, _ func(kind.Progress)) (*kind.Result, error) {
	run := kind.NewRun(highs.Solver{})
	outcome, err := solvePlan(ctx, p, run)
	if err != nil {
		return nil, err
	}
	return &kind.Result{Plan: kind.Plan(p, run, outcome, formats.PlanFlow, "test")}, nil
}

// An SLO that leaves hardly more than the batches of one has a plan, too: devices enough that nobody waits.
func TestShortSLOHasCheapestPlan(t *testing.T) {
	p := twoModuleProblem("gpus")
	app := &formats.ApplicationsOf(p.Workload)[0]
	app.SLO.Duration, app.RPS = 21*time.Millisecond, 100 // batches of one take 18 ms on the new devices
	res, err := tune(t.Context(), p, kind.TestSettings{Runs: 2, Duration: 5 * time.Second}, solveTestPlan)
	if err != nil {
		t.Fatal(err)
	}
	if c := res.Plan.Certificate; c == nil || c.LoadFactor < 1 || res.Plan.Options.Number("batch-wait") != 0 {
		t.Errorf("certified %+v with %v", c, res.Plan.Options)
	}
}

// Where ten replicas and more serve a module, requests do not wait for a whole batch in each: a search that may plan with
// shorter waits states a higher rate that a test confirms, and checks and explanations count the waits that the plan has.
func TestShorterWaitsCarryMore(t *testing.T) {
	asked := kind.TestSettings{Runs: 2, Duration: 5 * time.Second}
	stated := func(batchWait float64) *formats.Plan {
		p := twoModuleProblem("throughput")
		formats.ApplicationsOf(p.Workload)[0].SLO.Duration = 80 * time.Millisecond
		if batchWait >= 0 {
			if err := p.Values.Set("batch-wait", batchWait); err != nil {
				t.Fatal(err)
			}
		}
		res, err := tune(t.Context(), p, asked, solveTestPlan)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range verify.Check(&kind.CheckInput{Plan: res.Plan, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}) {
			t.Errorf("batch-wait %v: %+v", batchWait, f)
		}
		if c := res.Plan.Certificate; c == nil || c.LoadFactor < 1 {
			t.Errorf("batch-wait %v: certified %+v", batchWait, c)
		}
		return res.Plan
	}
	whole, searched := stated(1), stated(-1)
	if searched.Objective.Value < 1.1*whole.Objective.Value || searched.Options.Number("batch-wait") >= 1 {
		t.Errorf("%.1f requests/s with waits of %v batches, %.1f with whole ones", searched.Objective.Value, searched.Options.Number("batch-wait"), whole.Objective.Value)
	}
	lines := strings.Join(graph.Explain(searched, formats.FlowOf(searched)), "\n")
	if !strings.Contains(lines, "of a batch to wait for and one's own") && !strings.Contains(lines, "no wait for a device and one's own") {
		t.Error(lines)
	}
}
