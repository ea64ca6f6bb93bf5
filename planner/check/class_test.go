package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/planner"
	"inferplan/planner/explain"
	"inferplan/solver/highs"
)

// A plan with two SLO classes of one model is checked class by class.
func TestClassesAreCheckedEach(t *testing.T) {
	in := documents()
	in.Workload.Models = []formats.WorkloadModel{
		{Model: "resnet", Class: "interactive", SLO: formats.SLO{Times: 5}, Weight: 0.3, Percentile: "p99"},
		{Model: "resnet", Class: "batch", SLO: formats.SLO{Duration: 300 * time.Millisecond}, Weight: 0.3, Percentile: "p99"},
		{Model: "ocr", SLO: formats.SLO{Duration: 60 * time.Millisecond}, Weight: 0.4, Percentile: "p99"},
	}
	opt := planner.DefaultOptions()
	opt.Gap, opt.MaxPartitions = 0.3, 1 // quick: how good the plan is does not matter here
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
		t.Fatalf("%v", r.Text())
	}
	seen := map[string]bool{}
	for _, m := range r.Metrics {
		if m.Metric == "rps" {
			seen[m.What] = true
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
		edit func(w *formats.Workload)
		want []string
	}{
		{"a shorter SLO", func(w *formats.Workload) { w.Models[1].SLO.Duration = 8 * time.Millisecond }, []string{"the SLO of resnet/batch has changed", "a pipeline of resnet/batch takes"}},
		{"another weight", func(w *formats.Workload) { w.Models[0].Weight = 0.5 }, []string{"the weight of resnet/interactive has changed"}},
		{"a class gone", func(w *formats.Workload) { w.Models = w.Models[1:] }, []string{"the workload no longer asks for resnet/interactive"}},
		{"a class more", func(w *formats.Workload) {
			w.Models = append(w.Models, formats.WorkloadModel{Model: "ocr", Class: "bulk", SLO: formats.SLO{Times: 50}})
		}, []string{"the workload asks for ocr/bulk, the plan does not serve it"}},
		{"a floor", func(w *formats.Workload) { w.Models[1].MinRPS = 1e6 }, []string{"the plan gives resnet/batch less than the workload asks"}},
	} {
		w := *in.Workload
		w.Models = append([]formats.WorkloadModel(nil), w.Models...)
		c.edit(&w)
		var text strings.Builder
		for _, f := range Recompute(plan, in.Profile, in.Cluster, &w) {
			text.WriteString(f.String() + "\n")
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, text.String())
			}
		}
	}

	// What moved and what limits it is told by class.
	other := *plan
	other.Models = slices.Clone(plan.Models)
	other.Models[1].RPS++
	if lines := diff.Plans(plan, &other).Lines(); len(lines) != 2 || !strings.HasPrefix(lines[1], "  ~ resnet/batch rps: ") {
		t.Errorf("%q", lines)
	}
	other.Objective.Value = other.Models[0].RPS / other.Models[0].Weight
	other.Models[1].RPS, other.Models[2].RPS = 1e9, 1e9
	if lines := strings.Join(explain.Lines(&other), "\n"); !strings.Contains(lines, "resnet/interactive sets the objective") {
		t.Errorf("no class in\n%s", lines)
	}
}

// Two classes of a model have its weights once in a CPU's memory, and on another
// device that takes turns each has its own: planner and check agree to the byte.
func TestClassesShareWeights(t *testing.T) {
	const mb = 1 << 20
	in := documents()
	for i := range in.Profile.Models[1].Blocks {
		in.Profile.Models[1].Blocks[i].WeightBytes = 8 * mb // of 20
	}
	in.Workload.Models = []formats.WorkloadModel{
		{Model: "ocr", Class: "interactive", SLO: formats.SLO{Duration: 90 * time.Millisecond}, Weight: 0.5, Percentile: "p99"},
		{Model: "ocr", Class: "batch", SLO: formats.SLO{Duration: 900 * time.Millisecond}, Weight: 0.5, Percentile: "p99"},
	}
	opt := planner.DefaultOptions()
	opt.MaxPartitions = 1
	for _, c := range []struct {
		device string
		need   formats.Bytes
	}{{"cpu-1", 24 * mb}, {"L", 40 * mb}} {
		in.Cluster.Pools = []formats.Pool{{Device: c.device, Count: 2, Sharing: formats.SharingTime, Memory: c.need}}
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.device, err)
			continue
		}
		if f := Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(f) > 0 {
			t.Errorf("%s: %v", c.device, f)
		}
		in.Cluster.Pools[0].Memory--
		f := Recompute(res.Plan, in.Profile, in.Cluster, in.Workload)
		if len(f) == 0 || f[0].Constraint != "memory" {
			t.Errorf("%s: %v with a byte less", c.device, f)
		}
		_, err = planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if inf, ok := errors.AsType[*planner.InfeasibleError](err); !ok || inf.Constraint != "memory" || inf.Nearest.MemoryBytes != int64(c.need) {
			t.Errorf("%s: %v with a byte less", c.device, err)
		}
	}
}
