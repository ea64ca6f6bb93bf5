package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// A floor at the edge of what the devices carry is met within one tolerance: on
// one kind as on two, exclusive or shared in time, whatever is looked for. Every
// plan has a bound.
func TestFloorAtTheEdge(t *testing.T) {
	const carried = 237.34928
	took := 1000 / carried // milliseconds
	exact := 1e9 / math.Round(took*1e6)
	h, l := stages.Pool{Kind: "H", Count: 1, MaxShares: 1}, stages.Pool{Kind: "L", Count: 1, MaxShares: 1}
	cpu := stages.Pool{Kind: "cpu", Count: 1, MaxShares: 1, TimeShared: true}
	edge := pooldraw.OneBlock("edge", time.Second, 1, took)
	for name, p := range map[string]*problem.Problem{
		"one kind":    {Problem: stages.Problem{Pools: []stages.Pool{h}, Models: []stages.Model{edge}}},
		"time-shared": {Problem: stages.Problem{Pools: []stages.Pool{cpu}, Models: []stages.Model{edge}}},
		"two kinds": {Problem: stages.Problem{Pools: []stages.Pool{h, l},
			Models: []stages.Model{pooldraw.OneBlock("edge", time.Second, 1, took, 0), pooldraw.OneBlock("other", time.Second, 1, 0, 2)}}},
		"two kinds for one model": {Problem: stages.Problem{Pools: []stages.Pool{h, l},
			Models: []stages.Model{pooldraw.OneBlock("edge", time.Second, 1, 2*took, 2*took)}}},
	} {
		p.MaxPartitions = 1
		for _, over := range []float64{-0.5, -1e-9, 0, 1e-9, 2e-8, 8e-8, 1.5e-7, 5e-7, 0.99e-6, 1.2e-6, 2e-6, 1e-5, 1e-3} {
			p.Models[0].MinRPS = exact * (1 + over)
			for i := range p.Models[1:] {
				p.Models[1+i].MinRPS = 1
			}
			for what, solve := range map[string]func() (*problem.Outcome, error){
				"throughput": func() (*problem.Outcome, error) {
					return Solve(context.Background(), p, highs.Solver{}, problem.Options{})
				},
				"price": func() (*problem.Outcome, error) {
					return Cheapest(context.Background(), p, slices.Repeat([]float64{1}, len(p.Pools)), highs.Solver{}, problem.Options{})
				},
				"no partitioning": func() (*problem.Outcome, error) {
					return NP(context.Background(), p, highs.Solver{}, problem.Options{})
				},
			} {
				outcome, err := solve()
				var refused *kind.InfeasibleError
				if err != nil && !errors.As(err, &refused) {
					t.Fatal(err)
				}
				if met := over <= problem.FloorTolerance; met != (err == nil) {
					t.Errorf("%s, %s, a floor %g above what is carried: %v", name, what, over, err)
				}
				if refused != nil && refused.Nearest.LoadFactor >= 1 {
					t.Errorf("%s, %s, a floor %g above what is carried is refused, nearest feasible is %v times it", name, what, over, refused.Nearest.LoadFactor)
				}
				if outcome != nil {
					bounded(t, outcome, what == "price")
				}
			}
		}
	}
}

// bounded checks that an outcome has a bound, and has it on the right side.
func bounded(t interface{ Errorf(string, ...any) }, outcome *problem.Outcome, least bool) {
	above := outcome.Bound >= outcome.Value*(1-1e-9)
	if least {
		above = outcome.Bound <= outcome.Value*(1+1e-9)
	}
	if math.IsNaN(outcome.Bound) || math.IsInf(outcome.Bound, 0) || !above {
		t.Errorf("%s with value %v and bound %v", outcome.StoppedBy, outcome.Value, outcome.Bound)
	}
}

// Where floors are at what a plan without them carries, a plan has a bound.
func TestPlansHaveBounds(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 2, Pools: 2, Count: 3, Shares: 2, Blocks: 2, Batches: 2, Partitions: 2, TimePools: true})
		free, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		for d := range p.Models {
			p.Models[d].MinRPS = free.RPS[d] * (1 + rapid.SampledFrom([]float64{-0.5, 0, 1e-8, 8e-8, 2e-7, 6e-7}).Draw(t, "over"))
		}
		outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
		if err != nil {
			return
		}
		solved++
		bounded(t, outcome, false)
	})
	t.Logf("%d plans", solved)
	if solved == 0 {
		t.Error("no floors were met")
	}
}

// A bound that is not known proves nothing.
func TestNoBoundIsNoProof(t *testing.T) {
	if g := (incumbent.MaxThroughput{}).RelativeGap(5, math.NaN()); !math.IsInf(g, 1) {
		t.Errorf("the gap to an unknown bound is %v", g)
	}
}
