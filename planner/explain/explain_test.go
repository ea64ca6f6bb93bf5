package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/document"
)

func TestPlanLinesExplainAPlan(t *testing.T) {
	bound, gap := 2512.6, 0.012
	p := &formats.Plan{
		Kind:      formats.PlanPool,
		Objective: formats.Objective{Name: "throughput", Value: 2482.3, Bound: &bound, Gap: &gap}, StoppedBy: "work",
		Pools: []formats.Pool{{Device: "L4", Count: 25}, {Device: "cpu-1", Count: 2, Sharing: formats.SharingTime}},
		Deployment: []formats.Deployed{{Model: "a", Pipelines: []formats.Pipeline{{Stages: []formats.Stage{
			{Device: "L4", GPUs: 2.5, Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 2, Replicas: 5}}},
			{Device: "cpu-1", GPUs: 1.25, Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 2}}},
		}}},
		}, {Model: "b"}},
		Section: &formats.PoolPlan{Models: []formats.Served{{Model: "a", Weight: 0.5, RPS: 0.5 * 2482.3}, {Model: "b", Weight: 0.5, RPS: 0.6 * 2482.3}}},
		Limits: []formats.Limit{
			{Constraint: "slo a", Change: "+10ms", Value: 2500, Gain: 0.0004},
			{Constraint: "device L4", Change: "+1 device", Value: 2550.2, Gain: 0.015},
		},
		Certificate: &formats.Certificate{LoadFactor: 0.9, Attainment: 0.99, Runs: 5, DurationUS: document.Micros(30e9)},
	}
	want := []string{
		"throughput: 2482 rps per unit of weight (worst-served model); no plan is above 2513: within 1.2 % of the optimum (stopped at the work limit; a higher --effort may close the gap)",
		"a sets the objective; the other models have a little more than they need",
		"devices used: 3 of 25 L4, 1.25 of 2 cpu-1 in time",
		"bottleneck: L4. One more L4 would raise the upper bound by 1.5 % (to 2550).",
		"            the SLO of a. 10ms more would raise the upper bound by 0.04 % (to 2500).",
		"certified by simulation: load 0.9 of the planned rates at attainment 0.99, 5 runs of 30s",
	}
	if d := cmp.Diff(want, PlanLines(p)); d != "" {
		t.Error(d)
	}
}

// A plan that is proven best of whole devices has a bound below the relaxation's,
// which is what one more device is computed from.
func TestLimitsOfRelaxation(t *testing.T) {
	bound := 1429.0
	p := &formats.Plan{
		Objective: formats.Objective{Name: "throughput", Value: 1429, Bound: &bound},
		Limits:    []formats.Limit{{Constraint: "device L4", Change: "+1 device", Value: 3056, Gain: 0.375}},
	}
	want := "bottleneck: L4. One more L4 would raise the upper bound by 37.5 % (from 2223 to 3056, counting fractions of devices)."
	if lines := PlanLines(p); !slices.Contains(lines, want) {
		t.Errorf("found %q, expected %q among them", lines, want)
	}
}

// So has a plan of cascades whose ranges have one each.
func TestLimitsOfMixtures(t *testing.T) {
	for bound, want := range map[float64]string{
		.9:  "bottleneck: cpu-4. One more cpu-4 would raise the upper bound by 2.2 % (from 0.92 to 0.94, counting mixtures of cascades).",
		.92: "bottleneck: cpu-4. One more cpu-4 would raise the upper bound by 2.2 % (to 0.94).",
	} {
		p := &formats.Plan{
			Objective: formats.Objective{Name: "accuracy", Value: .89, Bound: &bound},
			Limits:    []formats.Limit{{Constraint: "device cpu-4", Change: "+1 device", Value: .94, Gain: .94/.92 - 1}},
		}
		if lines := PlanLines(p); !slices.Contains(lines, want) {
			t.Errorf("found %q, expected %q among them", lines, want)
		}
	}
}

// A plan with nothing but its name must not panic.
func TestLinesOfLittle(t *testing.T) {
	for _, p := range []*formats.Plan{{}, {Deployment: []formats.Deployed{{}, {}}, Section: &formats.PoolPlan{Models: []formats.Served{{}, {}}}, Pools: []formats.Pool{{}}}} {
		if len(PlanLines(p)) == 0 {
			t.Error("no line")
		}
	}
}

// Only a method that has an effort is said to gain from more of it.
func TestEffortIsPromisedWhereItIsRead(t *testing.T) {
	bound := 1.0
	for kind, want := range map[string]bool{formats.PlanPool: true, formats.PlanGear: false} {
		p := &formats.Plan{Kind: kind, Objective: formats.Objective{Name: "accuracy", Value: .9, Bound: &bound}, StoppedBy: "work"}
		if got := strings.Contains(objectiveLine(p), "--effort"); got != want || !strings.Contains(objectiveLine(p), "stopped at the work limit") {
			t.Errorf("%s: %s", kind, objectiveLine(p))
		}
	}
}
