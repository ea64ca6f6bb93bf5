package search

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/solver/queueing"
	"inferplan/testkit/methodspage"
)

// TestPoolExample computes the worked example of docs/methods/pool.md: two blocks, one fast device and two slow ones.
func TestPoolExample(t *testing.T) {
	millis := func(times ...int) stages.ShareCosts {
		cost := stages.BatchCost{Batch: 1}
		for _, ms := range times {
			cost.Blocks = append(cost.Blocks, time.Duration(ms)*time.Millisecond)
		}
		return stages.ShareCosts{Batches: []stages.BatchCost{cost}}
	}
	p := &problem.Problem{Problem: stages.Problem{
		MaxPartitions: 2,
		Pools:         []stages.Pool{{Kind: "fast", Count: 1, MaxShares: 1}, {Kind: "slow", Count: 2, MaxShares: 1}},
		Models: []stages.Model{{
			Name: "m", SLO: 20 * time.Millisecond, Margin: 8 * time.Millisecond, Weight: 1, CutBytes: []int64{1000}, Weights: []int64{0, 0},
			ShareCosts: [][]stages.ShareCosts{{millis(1, 1)}, {millis(3, 5)}},
		}},
	}}

	// The relaxation: its value, the price of a device of each pool, and the loss of each template.
	search, err := newSearch(context.Background(), p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{})
	if err != nil {
		t.Fatal(err)
	}
	relaxed, unit := search.choice.Relaxation, search.catalogue.UnitsToRate(1)
	methodspage.Require(t, "pool.md", "## Example",
		fmt.Sprintf("θ_LP = %.2f", relaxed.Bound*unit),
		fmt.Sprintf("π_fast = %.0f", relaxed.PoolPrice[0]*unit), fmt.Sprintf("π_slow = %.2f", relaxed.PoolPrice[1]*unit/2))
	losses := map[string]string{}
	for i := range search.catalogue.Templates {
		path := ""
		for _, s := range search.catalogue.Templates[i].Stages {
			path += p.Pools[s.Pool].Kind + " "
		}
		losses[path] = fmt.Sprintf("%.2f", search.choice.Losses[i]*unit)
	}
	for path, row := range map[string]string{
		"fast ": "whole on `fast` | 2 ms | 500", "slow ": "whole on `slow` | 8 ms | 125",
		"slow fast ": "0 on `slow`, 1 on `fast` | 4 ms | 333.33 and 1000", "fast slow ": "0 on `fast`, 1 on `slow` | 6 ms | 1000 and 200",
		"slow slow ": "0 on `slow`, 1 on `slow` | 8 ms | 333.33 and 200",
	} {
		methodspage.Require(t, "pool.md", "## Example", fmt.Sprintf("| %s | %s |", row, losses[path]))
	}

	// The plan, and the bound of the search.
	outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	methodspage.Require(t, "pool.md", "## Example", fmt.Sprintf("θ = %.0f", outcome.Value), fmt.Sprintf("bound %.0f", outcome.Bound))

	// Random arrivals: no plan of this program carries more than θ_LP, and .99 of the requests have to be in time.
	carried, attainment := relaxed.Bound*unit, .99
	places := carried*p.Models[0].SLO.Seconds() - 1
	methodspage.Require(t, "pool.md", "## Example", fmt.Sprintf("K = %.2f", places), fmt.Sprintf("%.2f requests/s", carried/attainment),
		fmt.Sprintf("%.1f requests/s", carried*queueing.MaxLoad(places, 1-attainment)))
}
