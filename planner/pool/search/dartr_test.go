package search

import (
	"context"
	"math"
	"testing"
	"time"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// What DART-r deals to a model whose rate does not bind is not left to which plan without
// partitioning the solver found: of those of the best objective the best split counts.
// Here the fewest devices leave three of the idle L to the model that uses two of them in
// chains, and the largest weighted sum leaves it none.
func TestDARTrDealsIdleDevices(t *testing.T) {
	p := &problem.Problem{Problem: stages.Problem{MaxPartitions: 2, Pools: []stages.Pool{{Kind: "H", Count: 2, MaxShares: 1}, {Kind: "L", Count: 10, MaxShares: 1}}}}
	blocks := func(ms ...int) []stages.ShareCosts {
		c := stages.BatchCost{Batch: 1}
		for _, v := range ms {
			c.Blocks = append(c.Blocks, time.Duration(v)*time.Millisecond)
		}
		return []stages.ShareCosts{{Batches: []stages.BatchCost{c}}}
	}
	slow := stages.Model{Name: "slow", SLO: 50 * time.Millisecond, Weight: 0.5, Weights: []int64{1, 1}, CutBytes: []int64{1}, ShareCosts: [][]stages.ShareCosts{blocks(6, 4), blocks(53, 7)}}
	p.Models = []stages.Model{slow, pooldraw.OneBlock("quick", 50*time.Millisecond, 0.5, 5, 20)}
	outcome, err := DARTr(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if slow, quick := outcome.RPS[0], outcome.RPS[1]; math.Abs(slow-2*1000/7.) > 1e-6 || math.Abs(quick-400) > 1e-6 {
		t.Errorf("rates %v and %v, expected two chains of 142.857 and eight L of 50", slow, quick)
	}
}
