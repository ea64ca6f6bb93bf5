package sim

import (
	"testing"
	"time"
)

// A step keeps the name of its model if no sequence of it ended in the latest run.
func TestPooledStepsKeepTheirModel(t *testing.T) {
	results := []*Result{
		{Generation: &GenerationResult{Segments: []GeneratedSegment{{Model: "chat", TTFT: []time.Duration{1}}}}},
		{Generation: &GenerationResult{Segments: []GeneratedSegment{{}}}},
	}
	pooled := &Result{}
	poolGenerated(pooled, results)
	if step := pooled.Generation.Segments[0]; step.Model != "chat" || len(step.TTFT) != 1 {
		t.Errorf("found %+v, expected the model chat and one TTFT", step)
	}
}

// A bound that one run does not know is unknown for all, whichever run that is.
func TestPooledBoundIsKnownFromAllRunsOnly(t *testing.T) {
	for _, c := range []struct{ first, second, want int64 }{{3, 4, 7}, {-1, 4, -1}, {3, -1, -1}, {-1, -1, -1}} {
		first := FlowResult{Bound: c.first}
		first.addRun(&FlowResult{Bound: c.second})
		if first.Bound != c.want {
			t.Errorf("bounds %d and %d: found %d, expected %d", c.first, c.second, first.Bound, c.want)
		}
	}
}
