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

// Weights and times that lie far apart are valid, and a plan is found and proved.
func TestMagnitudesFarApartAreProven(t *testing.T) {
	ms := time.Millisecond
	// A first block of a microsecond, alone on the kind that the rest is not measured on.
	tiny := stages.Model{Name: "tiny", SLO: 10 * time.Second, Weight: 1, Weights: []int64{1, 1}, CutBytes: []int64{0}}
	for range 2 {
		tiny.ShareCosts = append(tiny.ShareCosts, []stages.ShareCosts{{Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{time.Microsecond, 10 * ms}}}}})
	}
	large := tiny
	large.Name, large.Weight, large.SLO = "large", 100, 60*time.Second
	large.ShareCosts = [][]stages.ShareCosts{
		{{Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{5 * time.Second, 5 * time.Second}}}}},
		{{Batches: []stages.BatchCost{{Batch: 1, Blocks: []time.Duration{6 * time.Second, 6 * time.Second}}}}},
	}
	for _, c := range []struct {
		name   string
		models []stages.Model
		parts  int
	}{
		{"a short block beside a long model", []stages.Model{tiny, large}, 2},
		{"a long model beside a short block", []stages.Model{large, tiny}, 3},
		{"weights a million apart", []stages.Model{pooldraw.OneBlock("light", 10*time.Second, 0.001, 1, 1), pooldraw.OneBlock("heavy", 10*time.Second, 1000, 1000, 1000)}, 1},
		{"the other way round", []stages.Model{pooldraw.OneBlock("light", 10*time.Second, 0.001, 1000, 1000), pooldraw.OneBlock("heavy", 10*time.Second, 1000, 1, 1)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &problem.Problem{Problem: stages.Problem{MaxPartitions: c.parts, Pools: []stages.Pool{{Kind: "L4", Count: 20, MaxShares: 1}, {Kind: "T4", Count: 30, MaxShares: 1}}, Models: c.models}}
			outcome, err := Solve(context.Background(), p, highs.Solver{}, problem.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("value %v, bound %v, %s, rates %v", outcome.Value, outcome.Bound, outcome.StoppedBy, outcome.RPS)
			if !(outcome.Value > 0) || outcome.Bound < outcome.Value || math.IsInf(outcome.Bound, 0) || math.IsNaN(outcome.Bound) {
				t.Errorf("value %v, bound %v", outcome.Value, outcome.Bound)
			}
			if _, err := NP(context.Background(), p, highs.Solver{}, problem.Options{}); err != nil {
				t.Errorf("without partitioning: %v", err)
			}
			if _, err := DARTr(context.Background(), p, highs.Solver{}, problem.Options{}); err != nil {
				t.Errorf("DART-r: %v", err)
			}
			for d := range p.Models {
				p.Models[d].MinRPS = outcome.RPS[d] / 2
			}
			cheap, err := Cheapest(context.Background(), p, []float64{2, 1}, highs.Solver{}, problem.Options{})
			if err != nil {
				t.Fatalf("least price: %v", err)
			}
			t.Logf("least price %v, bound %v, %s", cheap.Value, cheap.Bound, cheap.StoppedBy)
			for d := range p.Models {
				p.Models[d].MinRPS *= 1e3
			}
			if _, err = Solve(context.Background(), p, highs.Solver{}, problem.Options{}); err == nil {
				t.Error("floors of five hundred times the plan are met")
			} else {
				t.Log(err)
			}
		})
	}
}
