package flow

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/verify"
	"inferplan/planner/flow/workflow"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// ragOf is the problem of an application with language models.
func ragOf(t *testing.T, a *workflows.RAG, dedicated string) *kind.Problem {
	t.Helper()
	p := &kind.Problem{
		Documents: kind.Documents{Profile: a.Profile(), Workload: a.Workload(), Cluster: a.Cluster()},
		Values:    document.NewValues(formats.PlanOptions(formats.PlanFlow)), Seed: 1,
	}
	if err := p.Values.Set("dedicated", dedicated); err != nil {
		t.Fatal(err)
	}
	return p
}

// Devices that cannot be given to models are refused, with the reason.
func TestGroupsAreRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"chat":            "has no =",
		"chat=x":          "no number of devices",
		"chat=-1":         "no number of devices",
		"chat=0":          "has no devices",
		"chat=2*H100":     "no device of the cluster",
		"chat=9":          "the cluster has 8",
		"chat=4,chat=2":   "is there twice",
		"talk=2":          "no workflow asks for",
		"chat=8":          "no devices that run it",
		"chat=6,rewrite=": "no number of devices",
	} {
		_, err := solvePlan(t.Context(), ragOf(t, workflows.ExampleRAG(), text), kind.NewRun(highs.Solver{}))
		e, ok := err.(*document.Error)
		if !ok || e.Path != "--dedicated" || !strings.Contains(e.Found, reason) {
			t.Errorf("%q: %v, expected %q", text, err, reason)
		}
	}
}

// Models run on the devices of their group alone, in simulation too. What they carry is checked group by
// group, and memory by the models that run on a device.
func TestGroupsHaveDevices(t *testing.T) {
	in := ragOf(t, workflows.ExampleRAG(), "chat=5,rewrite=1")
	made := planOf(t, in)
	for i, d := range made.Deployment {
		place := d.Pipelines[0].Stages[0].Placement[0]
		expected := map[string][2]int{"chat": {0, 5}, "rewrite": {5, 1}}[d.Model]
		if expected[1] == 0 {
			expected = [2]int{6, 2}
		}
		if place.FirstDevice != expected[0] || place.Replicas != expected[1] {
			t.Errorf("%s is on %+v, expected %v", d.Model, place, expected)
		}
		for _, dev := range formats.FlowOf(made).Modules[i].Resident {
			if dev < expected[0] || dev >= expected[0]+expected[1] {
				t.Errorf("%s is held by device %d", d.Model, dev)
			}
		}
	}
	if o := made.Objective; o.Bound == nil || o.BoundAmong == "" || made.StoppedBy != "proved" {
		t.Errorf("%+v, stopped by %s: expected a bound among such plans, as nothing drains", o, made.StoppedBy)
	}
	today := func(p *formats.Plan) *kind.CheckInput {
		return &kind.CheckInput{Plan: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
	}
	if found := verify.Check(today(made)); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	for constraint, spoil := range map[string]func(p *formats.Plan){
		"placement": func(p *formats.Plan) {
			m := &formats.FlowOf(p).Modules[slices.IndexFunc(p.Deployment, func(d formats.Deployed) bool { return d.Model == "chat" })]
			m.Resident = append(m.Resident, 7)
		},
		"rps": func(p *formats.Plan) { // as much as all devices together would carry
			p.Objective.Value, p.Objective.Bound, p.Objective.Gap = 1.5*p.Objective.Value, nil, nil
			formats.FlowOf(p).Applications[0].RPS *= 1.5
		},
	} {
		other := planOf(t, in)
		spoil(other)
		if found := verify.Check(today(other)); !slices.ContainsFunc(found, func(f kind.Finding) bool { return f.Constraint == constraint }) {
			t.Errorf("%s is not found: %+v", constraint, found)
		}
	}
	for _, policy := range []string{"dyorc-admit", "greedy", "static"} {
		sc, err := sim.NewScenario(made)
		if err != nil {
			t.Fatal(err)
		}
		sc.Policy.Name, sc.Load, sc.Duration, sc.Verify = policy, .5, time.Minute, true
		if _, err := sim.Replicate(t.Context(), sc, 1); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

// A rate that leaves out that a language model drains is not proven, and has no gap.
func TestDrainingLeavesRatesUnproven(t *testing.T) {
	for _, dedicated := range []string{"", "chat=6", "chat+rewrite=6"} {
		made := planOf(t, ragOf(t, workflows.ExampleRAG(), dedicated))
		if o := made.Objective; o.Bound != nil || o.Gap != nil || made.StoppedBy != "work" {
			t.Errorf("%q: %+v, stopped by %s", dedicated, o, made.StoppedBy)
		}
	}
}

// Simulation chooses devices for language models alone. The plan states what passed the test, which is as
// much as the best split by hand states by the same search, but for a part, and more than all models together
// sustain.
func TestDevicesForLanguageModels(t *testing.T) {
	a := workflows.ExampleRAG()
	a.Devices = 4
	asked := kind.TestSettings{Runs: 2, Duration: time.Minute}
	rate := func(dedicated string) float64 {
		p := ragOf(t, a, dedicated)
		solve := func(_ context.Context, q *kind.Problem, _ func(kind.Progress)) (*kind.Result, error) {
			return &kind.Result{Plan: planOf(t, q)}, nil
		}
		res, err := tune(t.Context(), p, asked, solve)
		if err != nil {
			t.Fatal(err)
		}
		if c := res.Plan.Certificate; c == nil || c.LoadFactor != 1 || res.Plan.Objective.Basis != formats.BasisSimulation {
			t.Fatalf("%q: certified %+v", dedicated, c)
		}
		if text := res.Plan.Options.Word("dedicated"); dedicated == workflow.DedicatedAuto && text == "" {
			t.Error("all models are together")
		}
		return res.Plan.Objective.Value
	}
	ours, together, best := rate(workflow.DedicatedAuto), rate(""), 0.0
	for _, split := range []string{"chat=2", "chat=3"} {
		best = max(best, rate(split))
	}
	if ours < .95*best || ours < 1.3*together {
		t.Errorf("%v rps, the best split by hand %v, together %v", ours, best, together)
	}
}
