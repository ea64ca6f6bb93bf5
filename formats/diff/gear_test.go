package diff

import (
	"strings"
	"testing"

	"inferplan/formats"
)

// Gears are matched by the rate at which they end, and told by what they do.
func TestGearsAreMatchedByEndingRate(t *testing.T) {
	plan := func() *formats.Plan {
		return &formats.Plan{Kind: formats.PlanGear, Section: &formats.GearPlan{
			SLOUS: 1e8, Percentile: "p95", MaxQPS: 200, Weights: "zipf", Samples: 2,
			Models: []formats.GearModel{{Model: "a", Thresholds: []float64{.5}, Levels: "01", Correct: "01"}, {Model: "b", Levels: "00", Correct: "11"}},
			Gears: []formats.Gear{
				{ToQPS: 100, Accuracy: .9, Stages: []formats.GearStage{{Model: "a", Level: 1, Threshold: .5, Split: []float64{1, 0}}, {Model: "b", Split: []float64{1}}}},
				{FromQPS: 100, ToQPS: 200, Accuracy: .8, Stages: []formats.GearStage{{Model: "a", Split: []float64{1, 0}}}},
			}}}
	}
	a, b := plan(), plan()
	if d := Plans(a, b, Gears); !d.Empty() {
		t.Fatalf("no change, but %q", d.Lines())
	}
	g := formats.GearOf(b)
	g.SLOUS, g.Models[0].Correct = 2e8, "11"
	g.Gears[0].Stages[0].Split = []float64{.5, .5}
	g.Gears[1] = formats.Gear{FromQPS: 100, ToQPS: 250, Accuracy: .7, Stages: []formats.GearStage{{Model: "b", MinQueue: 4, Split: []float64{1}}}}
	text := strings.Join(Plans(a, b, Gears).Lines(), "\n")
	for _, want := range []string{"slo", "a records", "up to 100 rps a split", "up to 200 rps", "up to 250 rps", "b from 4 queued"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "up to 100 rps cascade") {
		t.Errorf("a cascade that did not move:\n%s", text)
	}
	if d := Plans(a, &formats.Plan{Kind: formats.PlanPool}, Gears); !strings.Contains(strings.Join(d.Lines(), "\n"), "up to 100 rps") {
		t.Errorf("gears against none: %q", d.Lines())
	}
}
