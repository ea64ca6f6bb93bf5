package check

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/explain"
	"inferplan/solver/highs"
	"inferplan/testkit/pooltest"
)

// A plan with two SLO classes of one model is checked class by class.
func TestClassesAreCheckedEach(t *testing.T) {
	in := pooltest.Documents()
	in.Workload.Section = formats.WorkloadModels{
		{Model: "resnet", Class: "interactive", SLO: document.SLO{Factor: 5}, Weight: 0.3, Percentile: "p99"},
		{Model: "resnet", Class: "batch", SLO: document.SLO{Duration: 300 * time.Millisecond}, Weight: 0.3, Percentile: "p99"},
		{Model: "ocr", SLO: document.SLO{Duration: 60 * time.Millisecond}, Weight: 0.4, Percentile: "p99"},
	}
	opt := planner.Options{Values: map[string]any{"gap": 0.3, "max-partitions": 1}} // quick: how good the plan is does not matter here
	res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := res.Plan
	r, err := Gate(context.Background(), GateInput{Plan: plan, Today: in, Solver: highs.Solver{}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Pass || len(r.Findings) > 0 {
		t.Fatal(text(r))
	}
	seen := map[string]bool{}
	for _, m := range r.Metrics {
		if m.Metric == "rps" {
			seen[m.Subject] = true
		}
	}
	if !seen["resnet/interactive"] || !seen["resnet/batch"] || !seen["ocr"] {
		t.Errorf("rates of %v", seen)
	}
	// What the plan alone says is enough, too.
	today := in
	today.Workload = nil
	if r, err = Gate(context.Background(), GateInput{Plan: plan, Today: today}); err != nil || r.Verdict != Pass {
		t.Errorf("%v, %v", r, err)
	}
	for _, c := range []struct {
		name string
		edit func(w formats.WorkloadModels) formats.WorkloadModels
		want []string
	}{
		{"a shorter SLO", func(w formats.WorkloadModels) formats.WorkloadModels {
			w[1].SLO.Duration = 8 * time.Millisecond
			return w
		}, []string{"the SLO of resnet/batch has changed", "a pipeline of resnet/batch takes"}},
		{"another weight", func(w formats.WorkloadModels) formats.WorkloadModels {
			w[0].Weight = 0.5
			return w
		}, []string{"the weight of resnet/interactive has changed"}},
		{"a class gone", func(w formats.WorkloadModels) formats.WorkloadModels { return w[1:] }, []string{"the workload no longer asks for resnet/interactive"}},
		{"a class more", func(w formats.WorkloadModels) formats.WorkloadModels {
			return append(w, formats.WorkloadModel{Model: "ocr", Class: "bulk", SLO: document.SLO{Factor: 50}})
		}, []string{"the workload asks for ocr/bulk, the plan does not serve it"}},
		{"a floor", func(w formats.WorkloadModels) formats.WorkloadModels {
			w[1].MinRPS = 1e6
			return w
		}, []string{"the plan gives resnet/batch less than the workload asks"}},
	} {
		w := *in.Workload
		w.Section = c.edit(slices.Clone(formats.ModelsOf(in.Workload)))
		var found strings.Builder
		for _, f := range Recompute(plan, in.Profile, in.Cluster, &w) {
			found.WriteString(f.String() + "\n")
		}
		for _, want := range c.want {
			if !strings.Contains(found.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, found.String())
			}
		}
	}

	// What moved and what limits it is told by class.
	other := *plan
	models := slices.Clone(formats.PoolOf(plan).Models)
	other.Section = &formats.PoolPlan{Models: models}
	models[1].RPS++
	if lines := planner.Diff(plan, &other).Lines(); len(lines) != 3 || lines[0] != "0 of 6 devices load other blocks" || !strings.HasPrefix(lines[2], "  ~ resnet/batch planned rps: ") {
		t.Errorf("%q", lines)
	}
	other.Objective.Value = models[0].RPS / models[0].Weight
	models[1].RPS, models[2].RPS = 1e9, 1e9
	if lines := strings.Join(explain.PlanLines(&other), "\n"); !strings.Contains(lines, "resnet/interactive sets the objective") {
		t.Errorf("no class in\n%s", lines)
	}
}
