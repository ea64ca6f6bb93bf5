package gear

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
)

func TestExplainNamesModelsAndBounds(t *testing.T) {
	held := 0.81
	p := &formats.Plan{
		Objective: formats.Objective{Name: "latency"},
		Deployment: []formats.Deployed{
			{Model: "small", Pipelines: []formats.Pipeline{{Stages: []formats.Stage{{Blocks: [2]int{0, 2}, Device: "cpu-1", Replicas: 2}}}}},
			{Model: "large", Pipelines: []formats.Pipeline{
				{Stages: []formats.Stage{{Blocks: [2]int{0, 2}, Device: "cpu-4", Replicas: 1}}},
				{Stages: []formats.Stage{{Blocks: [2]int{0, 1}, Device: "cpu-1", Replicas: 2}, {Blocks: [2]int{1, 2}, Device: "cpu-4", Replicas: 1}}},
			}},
		},
		Section: &formats.GearPlan{Percentile: "p95", Accuracy: 0.8, AccuracyHeldOut: &held, HeldOutInterval: &[2]float64{0.8, 0.82}, Models: []formats.GearModel{{Model: "small", Thresholds: make([]float64, 9)}}, Gears: []formats.Gear{{
			ToQPS: 1500, Weight: 1, Accuracy: 0.82, Bound: 0.83, LatencyUS: 12_500_000, Utilisation: 0.5,
			AccuracyHeldOut: &held, HeldOutInterval: &[2]float64{0.8, 0.82}, LatencyHeldOutUS: 13_500_000,
			Stages: []formats.GearStage{{Model: "small", Level: 2, Threshold: 0.75}, {Model: "large"}},
		}}},
	}
	want := []string{
		"accuracy: planned 0.8200 over the ranges by weight, held out 0.8100 (0.8000 to 0.8200), 0.8000 asked for",
		"bounds: of plans over these thresholds, 10 quantiles per model; finer ones may exceed them",
		"large: whole on 1 cpu-4; blocks 0 to 0 on 2 cpu-1 > blocks 1 to 1 on 1 cpu-4",
		"up to 1500 rps: small(0.75) > large: accuracy 0.8200 of at most 0.8300, p95 12.5 ms, busiest device 50.0 %; held out 0.8100 (0.8000 to 0.8200), 13.5 ms",
	}
	if d := cmp.Diff(want, explain(p)); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		bound float64
		text  string
	}{{0.825, "; finer ones may exceed them. Those of ranges are of mixtures of cascades, too; that of the plan is of one cascade per range"}, {0.83, "; finer ones may exceed them"}} {
		p.Objective = formats.Objective{Name: "accuracy", Bound: &c.bound}
		if line := explain(p)[1]; !strings.HasSuffix(line, c.text) {
			t.Errorf("bound %v: %q, expected %q at its end", c.bound, line, c.text)
		}
	}
	for _, c := range []struct{ objective, text string }{{"accuracy", "trials: no plan above 0.821 passes them"}, {"gpus", "trials: no plan below 3 passes them"}} {
		p.Objective.Name = c.objective
		if formats.GearOf(p).TriedBound = .821; c.objective == "gpus" {
			formats.GearOf(p).TriedBound = 3
		}
		if !slices.ContainsFunc(explain(p), func(line string) bool { return strings.HasPrefix(line, c.text) }) {
			t.Errorf("%q, expected %q", explain(p), c.text)
		}
	}
	if lines := explain(&formats.Plan{}); lines != nil {
		t.Errorf("%q of a plan of another kind", lines)
	}
}
