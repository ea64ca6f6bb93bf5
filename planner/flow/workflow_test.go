package flow

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
	dynamic "inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// problemOf is a problem over the applications of package workflows.
func problemOf(devices int, memory document.Bytes, slo time.Duration, rps [3]float64) *kind.Problem {
	return &kind.Problem{
		Documents: kind.Documents{
			Profile: workflows.Profile("card"), Workload: workflows.Workload(slo, rps),
			Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "card", Count: devices, PerNode: 8, NICGbps: 100, Memory: memory}}},
		},
		Values: document.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1,
	}
}

// planOf solves a problem.
func planOf(t *testing.T, p *kind.Problem) *formats.Plan {
	t.Helper()
	run := kind.NewRun(highs.Solver{})
	out, err := solvePlan(context.Background(), p, run)
	if err != nil {
		t.Fatal(err)
	}
	made := kind.Plan(p, run, out, formats.PlanFlow, "test")
	if err := made.Validate(); err != nil {
		t.Fatal(err)
	}
	return made
}

// A plan of workflows keeps its goodput however much more is asked for: at the planned
// rate and far above it nearly all of it is in time, and few of those admitted are late.
func TestGoodputBeyondThePlannedRate(t *testing.T) {
	made := planOf(t, problemOf(8, 24e9, 20*time.Second, [3]float64{0, 0, 1}))
	planned := formats.FlowOf(made).Applications[0].RPS
	for _, load := range []float64{1, 1.2, 2, 3} {
		sc, err := sim.NewScenario(made)
		if err != nil {
			t.Fatal(err)
		}
		sc.Load, sc.Duration, sc.Warmup, sc.Seed, sc.Verify = load, 200*time.Second, 20*time.Second, 5, true
		res, err := sim.Replicate(t.Context(), sc, 1)
		if err != nil {
			t.Fatal(err)
		}
		r := res.Report
		if r.GoodputRPS < .93*planned || r.Late*40 > r.Completed {
			t.Errorf("load %v: %.3g of %.3g requests/s in time, %d of %d late", load, r.GoodputRPS, planned, r.Late, r.Completed)
		}
	}
}

// drawnWays makes GILL's requests of a plan go the ways of package workflows.
type drawnWays struct {
	apps *workflows.Apps
	ways []workflows.Way
}

func (d *drawnWays) BeginRequest(req, _ int32) {
	for int(req) >= len(d.ways) {
		d.ways = append(d.ways, workflows.Way{})
	}
	d.ways[req].Reset()
	d.apps.Draw(workflows.GILL, &d.ways[req])
}

func (d *drawnWays) ItemCount(req, _, segment, _, _ int32) int32 {
	w := &d.ways[req]
	if segment == 0 {
		return w.Ends[0] - 1
	}
	return w.Ends[1] - w.Ends[0]
}

func (d *drawnWays) ChooseRoute(_, _, _, _, _, _ int32) int32 { return 0 }

func (d *drawnWays) ChooseNext(req, _, _, _ int32, _ []bool) int32 {
	if len(d.ways[req].Ends) > 1 {
		return 0
	}
	return 1
}

// poisson are arrivals of GILL.
func poisson(rps float64, length time.Duration) arrivals.Source {
	var list []arrivals.Request
	rng := seeded.New(1, "arrivals")
	for at := rng.ExpFloat64() / rps; at < length.Seconds(); at += rng.ExpFloat64() / rps {
		list = append(list, arrivals.Request{ArrivedAt: time.Duration(at * 1e9), SLO: time.Minute})
	}
	return arrivals.Slice(list)
}

// latencies runs tables under a policy and gives every latency.
func latencies(t *testing.T, cfg sim.Config) (out []time.Duration) {
	t.Helper()
	cfg.NoReport, cfg.Verify = true, true
	cfg.OnCompleted = func(arrived, answered time.Duration) { out = append(out, answered-arrived) }
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	return out
}

// A plan made from a document of GILL simulates, request by request, as the fleet
// that package workflows builds, under every policy.
func TestPlanSimulatesAsTheFleet(t *testing.T) {
	made := planOf(t, problemOf(16, 40e9, time.Minute, [3]float64{12, 0, 0}))
	section := formats.FlowOf(made)
	resident := make([][]int32, 16)
	for i, m := range section.Modules {
		service := slices.Index([]string{"vit-l-14", "opt-6.7b", "stable-diffusion-1.5"}, m.Model)
		if service != i {
			t.Fatalf("service %d is %s", i, m.Model)
		}
		for _, d := range m.Resident {
			resident[d] = append(resident[d], int32(service))
		}
	}
	for _, name := range dynamic.Names() {
		tab, err := policies.Compile(made)
		if err != nil {
			t.Fatal(err)
		}
		own := flow.WorkflowTablesOf(tab)
		own.Paths = nil // the fleet has learnt nothing
		pol, err := policies.New(formats.PolicySpec{Name: name}, tab)
		if err != nil {
			t.Fatal(err)
		}
		walk := flow.NewWorkflowControl(tab).(*flow.WorkflowControl)
		walk.SetChoices(&drawnWays{apps: workflows.NewApps(1)})
		got := latencies(t, sim.Config{Tables: tab, Policy: pol, Source: poisson(8, 2*time.Minute), Control: walk,
			MoveTime: func(service, from, to int32) time.Duration { return own.OutputTransferTime(tab, service, from, to) }})

		fleet := workflows.Fleet{Devices: 16, Gigabytes: 40, Resident: resident}.Tables()
		opt, _ := dynamic.OptionsByName(name)
		apps := workflows.NewApps(1)
		want := latencies(t, sim.Config{Tables: fleet, Policy: dynamic.New(fleet, opt), Source: poisson(8, 2*time.Minute),
			Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(fleet)})
		if len(got) < 800 || !slices.Equal(got, want) {
			t.Errorf("%s: %d latencies, and %d of the fleet: they differ", name, len(got), len(want))
		}
	}
}

// A plan without recorded ways has those that the chances of its graph draw. Recorded
// ones stand as they are.
func TestWaysOfTheGraph(t *testing.T) {
	made := planOf(t, problemOf(8, 40e9, time.Minute, [3]float64{1, 0, 0}))
	section := formats.FlowOf(made)
	for _, recorded := range []int{0, 7} {
		section.Transitions = nil
		if recorded > 0 {
			section.Transitions = []formats.WaysOf{{Application: "gill", Paths: []formats.Way{{Count: recorded, KnownTasks: 1, Tasks: []formats.WayTask{{Model: "opt-6.7b"}}}}}}
		}
		tab, err := policies.Compile(made)
		if err != nil {
			t.Fatal(err)
		}
		all, drawn := int32(0), 0.0
		for _, w := range flow.WorkflowTablesOf(tab).Paths[0] {
			if all += w.Count; w.Tasks[len(w.Tasks)-1].Service == 2 { // an image is drawn at the end
				drawn += float64(w.Count)
			}
		}
		switch share := drawn / float64(all); {
		case recorded > 0 && (all != int32(recorded) || drawn > 0):
			t.Errorf("%d recorded requests, and %d are known, %v of them draw", recorded, all, drawn)
		case recorded == 0 && (all != flow.DrawnRequests || math.Abs(share-.9) > .03):
			t.Errorf("%d requests are known, %v of them draw, expected %d and .9", all, share, flow.DrawnRequests)
		}
	}
}

// What a plan promises is what the capacity bound leaves, and the figures of its
// batches, loads and memory follow from the documents.
func TestWorkflowPlan(t *testing.T) {
	made := planOf(t, problemOf(32, 40e9, time.Minute, [3]float64{12, 0, 0}))
	// One request takes .8*.105/32 + 2.04... of a device: full batches, by hand.
	need := .8*.105/32 + .75/16 + .95*9.0/8
	if want := 32 / need / 12; math.Abs(made.Objective.Value/want-1) > 1e-9 || math.Abs(*made.Objective.Bound/want-1) > 1e-9 {
		t.Errorf("factor %v, bound %v, expected %v", made.Objective.Value, *made.Objective.Bound, want)
	}
	for i, want := range []struct {
		batch int
		load  time.Duration
	}{{32, 150 * time.Millisecond}, {16, 100*time.Millisecond + 13300*time.Millisecond/12}, {8, 100*time.Millisecond + 2600*time.Millisecond/12}} {
		m, l := &formats.FlowOf(made).Modules[i], &made.Deployment[i].Pipelines[0]
		if l.Batch != want.batch || (m.ColdStartUS.D()-want.load).Abs() > time.Microsecond || len(m.Resident) != 32 {
			t.Errorf("%s: batch %d, load %v, %d copies", m.Model, l.Batch, m.ColdStartUS.D(), len(m.Resident))
		}
	}
	// A short SLO makes batches smaller, so that fewer are carried.
	tight := planOf(t, problemOf(32, 40e9, 14*time.Second, [3]float64{12, 0, 0}))
	if tight.Deployment[2].Pipelines[0].Batch >= 8 || tight.Objective.Value >= made.Objective.Value {
		t.Errorf("batch %d and factor %v at 14 s", tight.Deployment[2].Pipelines[0].Batch, tight.Objective.Value)
	}
	_, err := solvePlan(context.Background(), problemOf(32, 40e9, 3*time.Second, [3]float64{12, 0, 0}), kind.NewRun(highs.Solver{}))
	if e, ok := err.(*kind.InfeasibleError); !ok || e.Constraint != "slo" || !(e.Nearest.SLOUS > 5.8e6 && e.Nearest.SLOUS < 5.9e6) {
		t.Errorf("an SLO of 3 s: %v", err)
	}
}

// Where memory is scarce, devices hold what runs most of the time that they can.
func TestScarceMemory(t *testing.T) {
	p := problemOf(4, 24e9, 2*time.Minute, [3]float64{1, 1, 1})
	made := planOf(t, p)
	if len(made.Warnings) == 0 || !strings.Contains(made.Warnings[0], "memory:") {
		t.Errorf("warnings: %v", made.Warnings)
	}
	for _, name := range []string{"dyorc", "greedy", "static"} {
		sc, err := sim.NewScenario(made)
		if err != nil {
			t.Fatal(err)
		}
		sc.Policy.Name, sc.Load, sc.Duration, sc.Verify = name, .3, time.Minute, true
		res, err := sim.Replicate(context.Background(), sc, 2)
		if err != nil {
			t.Fatal(err)
		}
		r := res.Report
		if d := r.DeviceTime; r.Workflow == nil || r.Workflow.Batch < 1 || d == nil || math.Abs(d.Running+d.Loading+d.RunningAndLoading+d.Idle-1) > 1e-9 || r.Dropped > 0 {
			t.Errorf("%s: %+v, device time %+v, %d dropped", name, r.Workflow, d, r.Dropped)
		}
		if name != "static" && *r.Loads == 0 {
			t.Errorf("%s loads nothing in 24 GB", name)
		}
	}
}
