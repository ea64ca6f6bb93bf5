package search

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/policy/gear"
	"inferplan/solver/highs"
	"inferplan/testkit/methodspage"
)

// exampleFamily is the family of the worked example of docs/methods/gear.md: of every 20 samples, five have each level of
// certainty of the small model.
func exampleFamily() *cascades.Problem {
	samples := &cascades.Samples{N: 2000, Levels: make([][]uint8, 2), Correct: make([][]bool, 2)}
	smallCorrect, largeCorrect := [4]int{2, 4, 5, 5}, [4]int{4, 5, 5, 5} // of five samples, by level
	for i := range samples.N {
		level, sample := i%4, i/4%5
		samples.Levels[0], samples.Levels[1] = append(samples.Levels[0], uint8(level)), append(samples.Levels[1], uint8(level))
		samples.Correct[0] = append(samples.Correct[0], sample < smallCorrect[level])
		samples.Correct[1] = append(samples.Correct[1], sample < largeCorrect[level])
	}
	return &cascades.Problem{
		Models: []cascades.Model{
			cascades.NewModel("small", cascades.Variant{MedianTimes: []time.Duration{2 * time.Millisecond}}),
			cascades.NewModel("large", cascades.Variant{MedianTimes: []time.Duration{8 * time.Millisecond}}),
		},
		Grid: 4, Thresholds: [][]float64{{.1, .2, .3}, {.1, .2, .3}}, PlanningSamples: samples,
		Kinds: []cascades.Kind{{Name: "device", Devices: 1, Price: 1}}, SLO: 300 * time.Millisecond, Percentile: .95,
		RangeEdges: []float64{140, 300}, RangeWeights: []float64{.5, .5},
	}
}

// TestGearExample computes the worked example of docs/methods/gear.md: the cascades of the family, the bounds and the plan.
func TestGearExample(t *testing.T) {
	p := exampleFamily()
	plan, err := Solve(context.Background(), p, highs.Solver{}, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}

	// The cascades: forwarding fractions, work per request and accuracy.
	for _, c := range cascades.Enumerate(p.PlanningSamples, p.Grid, []bool{true, true}) {
		work := 0.0
		for k, m := range c.Models {
			work += float64(c.ReachCounts[k]) / float64(p.PlanningSamples.N) * p.Models[m].FastestTimes[0].Seconds() * 1e3
		}
		methodspage.Require(t, "gear.md", "## Example", fmt.Sprintf("| %g ms | %.2f |", work, cascades.PlannedAccuracy(p, &c)))
	}

	// The gears, and the bounds of ranges and of the plan.
	t.Log(plan.Value, plan.ValueBound, plan.Bound, plan.SingleCascadeBound, plan.TrialBound, plan.IsProved)
	for i := range plan.Gears {
		g := &plan.Gears[i]
		t.Log(g.Accuracy, g.Bound, g.BusiestLoad, g.Trial.Latency)
		methodspage.Require(t, "gear.md", "## Example", fmt.Sprintf("| %g | %.2f | %.2f | %.4f |", p.RangeEdges[i], g.BusiestLoad, g.Accuracy, g.Bound))
	}
	methodspage.Require(t, "gear.md", "## Example", fmt.Sprintf("mixtures is %.4f", plan.Bound), fmt.Sprintf("one cascade per range is %.3f", plan.SingleCascadeBound), fmt.Sprintf("value %.3f", plan.Value))
	if !plan.IsProved {
		t.Error("the plan of the example is not proven")
	}

	// The switch rule, for the window and hysteresis of ranges as wide as these: a faster gear at once, a slower one later.
	window, hysteresis := gear.WindowFor(p.RangeEdges[1] / 2)
	rule := gear.NewSwitchRule(p.RangeEdges, gear.Options{Alpha: 8, Hysteresis: hysteresis})
	var gears []int32
	at := int32(0)
	for _, window := range []struct {
		qps    float64
		queued int32
	}{{250, 0}, {130, 2}, {130, 2}, {130, 20}, {130, 2}} {
		at = rule.GearAfter(at, window.qps, window.queued)
		gears = append(gears, at+1)
	}
	methodspage.Require(t, "gear.md", "## Example", fmt.Sprintf("a window of %v and a hysteresis of %d", window, hysteresis), fmt.Sprintf("gears %v", gears))
}
