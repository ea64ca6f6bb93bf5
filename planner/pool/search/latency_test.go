package search

import (
	"context"
	"testing"
	"time"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
)

// On a device that models share, a large batch that carries less than a per
// cent more is not taken, unless the gap asks for that per cent; one that
// carries more is.
func TestReduceLatencyStaysWithinTheGap(t *testing.T) {
	model := func(name string, one, two time.Duration) stages.Model {
		return stages.Model{Name: name, SLO: time.Second, Margin: 400 * time.Millisecond, Weight: 1, Weights: []int64{1}, ShareCosts: [][]stages.ShareCosts{{{Batches: []stages.BatchCost{
			{Batch: 1, Blocks: []time.Duration{one}}, {Batch: 2, Blocks: []time.Duration{two}},
		}}}}}
	}
	const ms = time.Millisecond
	p := &problem.Problem{MarginShare: 0.4, Problem: stages.Problem{
		MaxPartitions: 1, Pools: []stages.Pool{{Kind: "cpu-1", Count: 1, MaxShares: 1, PerNode: 1, TimeShared: true}},
		Models: []stages.Model{model("flat", 100*ms, 199*ms), model("batches", 20*ms, 30*ms)},
	}}
	for _, c := range []struct {
		gap           float64
		flat, batches int
	}{{1e-2, 1, 2}, {1e-6, 2, 2}} {
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{Gap: c.gap})
		if err != nil {
			t.Fatal(err)
		}
		got := map[int]int{}
		for i := range outcome.Pipelines {
			got[outcome.Pipelines[i].Model] = outcome.Pipelines[i].Batch
		}
		if len(outcome.Pipelines) != 2 || got[0] != c.flat || got[1] != c.batches {
			t.Errorf("gap %g: batches %v, expected %d and %d", c.gap, got, c.flat, c.batches)
		}
		if outcome.Value > outcome.Bound || outcome.Value < outcome.Bound*(1-c.gap) {
			t.Errorf("gap %g: value %v is not within it of the bound %v", c.gap, outcome.Value, outcome.Bound)
		}
	}
}
