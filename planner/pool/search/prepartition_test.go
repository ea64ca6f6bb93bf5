package search

import (
	"context"
	"os"
	"slices"
	"testing"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// What fewer blocks cost against cuts between any two layers.
func TestPrePartitionAgainstLayers(t *testing.T) {
	layers, sizes := 120, []int{10}
	if os.Getenv("INFERPLAN_LONG") != "" {
		layers, sizes = 600, []int{5, 10, 20}
	}
	for seed := range uint64(2) {
		z := pooldraw.Synthetic{Seed: seed, Models: 3, Classes: 1, Kinds: 2, GPUs: 100, Layers: layers, Partitions: 2, Shares: 4, Batches: 8}
		bound := func(p *problem.Problem) float64 {
			c, r, err := relaxation.GenerateColumns(context.Background(), p, highs.Solver{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r.Bound * c.Catalogue.Units.Throughput
		}
		all := bound(z.Problem())
		for _, n := range sizes {
			p := z.Problem()
			p.PrePartition(n)
			for d := range p.Models {
				if cuts := len(slices.DeleteFunc(slices.Clone(p.Models[d].CutBytes), func(b int64) bool { return b < 0 })); cuts > n-1 || cuts < n/2 {
					t.Errorf("%d cuts for %d blocks", cuts, n)
				}
			}
			got := bound(p)
			t.Logf("seed %d, %d blocks: bound %.2f, %+.2f %% against %d layers", seed, n, got, 100*(got/all-1), layers)
			if got > all*(1+1e-6) || got < 0.85*all {
				t.Errorf("bound %v with %d blocks, %v with all layers", got, n, all)
			}
		}
	}
}
