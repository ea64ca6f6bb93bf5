package sim

import (
	"reflect"
	"slices"
	"testing"
	"time"

	dropping "inferplan/policy/drop"
)

// pooledFigures returns the sum of the figures of runs.
func pooledFigures(results ...*Result) *Result {
	pooled := &Result{}
	for run, result := range results {
		addFigures(reflect.ValueOf(pooled).Elem(), reflect.ValueOf(result).Elem(), run == 0)
	}
	return pooled
}

// A step keeps the name of its model if no sequence of it ended in the latest run.
func TestPooledStepsKeepTheirModel(t *testing.T) {
	pooled := pooledFigures(
		&Result{Generation: &GenerationResult{Segments: []GeneratedSegment{{Model: "chat", TTFT: []time.Duration{1}}}}},
		&Result{Generation: &GenerationResult{Segments: []GeneratedSegment{{}}}},
	)
	if step := pooled.Generation.Segments[0]; step.Model != "chat" || len(step.TTFT) != 1 {
		t.Errorf("found %+v, expected the model chat and one TTFT", step)
	}
}

// A bound that one run does not know is unknown for all, whichever run that is.
func TestPooledBoundIsKnownFromAllRunsOnly(t *testing.T) {
	for _, c := range []struct{ first, second, want int64 }{{3, 4, 7}, {-1, 4, -1}, {3, -1, -1}, {-1, -1, -1}} {
		pooled := pooledFigures(&Result{Flow: &FlowResult{Bound: c.first}}, &Result{Flow: &FlowResult{Bound: c.second}})
		if pooled.Flow.Bound != c.want {
			t.Errorf("bounds %d and %d: found %d, expected %d", c.first, c.second, pooled.Flow.Bound, c.want)
		}
	}
}

// Counts are added up by their place, also where a later run has more of them; times are joined, and peaks are the largest.
// The runs themselves stay as they are.
func TestPooledFiguresAreSumsListsAndPeaks(t *testing.T) {
	changes := []dropping.OrderChange{{Module: 1}}
	first := &Result{
		Events: 3,
		Flow:   &FlowResult{Modules: []FlowModule{{Name: "see", BatchesBySize: []int64{0, 2}, Workers: []int32{1}, ConsumedSLO: .25}}, DropStats: &dropping.RunStatistics{QueueTimes: [][]int64{{1, 0}}, OrderChanges: changes}},
		Tokens: &TokenResult{PeakKV: 7, Classes: []latencySamples{{E2E: []time.Duration{5}}}},
	}
	second := &Result{
		Events: 4,
		Flow:   &FlowResult{Modules: []FlowModule{{Name: "see", BatchesBySize: []int64{0, 1, 6}, Workers: []int32{2}, ConsumedSLO: .5}}, DropStats: &dropping.RunStatistics{QueueTimes: [][]int64{{2, 3}}}},
		Tokens: &TokenResult{PeakKV: 6, Classes: []latencySamples{{E2E: []time.Duration{4}}}},
	}
	pooled := pooledFigures(first, second)
	module := pooled.Flow.Modules[0]
	if pooled.Events != 7 || module.Name != "see" || !slices.Equal(module.BatchesBySize, []int64{0, 3, 6}) || !slices.Equal(module.Workers, []int32{2}) || module.ConsumedSLO != .75 {
		t.Errorf("found %d events and %+v, expected 7, the sums of the batches and the latest workers", pooled.Events, module)
	}
	if stats := pooled.Flow.DropStats; !slices.Equal(stats.QueueTimes[0], []int64{3, 3}) || !slices.Equal(stats.OrderChanges, changes) {
		t.Errorf("found %+v, expected the sum of the queue times and the first run's changes", stats)
	}
	if tokens := pooled.Tokens; tokens.PeakKV != 7 || !slices.Equal(tokens.Classes[0].E2E, []time.Duration{5, 4}) {
		t.Errorf("found %+v, expected a peak of 7 and the times of both runs", tokens)
	}
	if !slices.Equal(first.Flow.Modules[0].BatchesBySize, []int64{0, 2}) || !slices.Equal(first.Tokens.Classes[0].E2E, []time.Duration{5}) {
		t.Error("pooling has changed the figures of the first run")
	}
}
