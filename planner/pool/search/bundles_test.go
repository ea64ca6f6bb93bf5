package search

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/bundles"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// Bundles from template tables make plans that fit the devices, below the bound.
func TestBundlesFitTheDevices(t *testing.T) {
	planned := 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawMany(t)
		ctx := context.Background()
		x := &planSearch{problem: p, goal: incumbent.MaxThroughput{}, solver: highs.Solver{}, options: problem.Options{Gap: 0.01, Effort: 1, NoDiagnosis: true}, outcome: &problem.Outcome{}}
		if x.generateTemplates(ctx) != nil {
			return
		}
		if err := bundles.Plan(ctx, x.solver, x.choice, x.incumbent, x.tables, &x.options, x.recordPhase); err != nil {
			t.Fatal(err)
		}
		if x.incumbent.Plan == nil {
			return
		}
		planned++
		if placement.Recompute(x.catalogue, x.incumbent.Plan.Pipelines) == nil {
			t.Fatal("the plan exceeds the devices")
		}
		if value := x.incumbent.Value(); value > x.incumbent.ChoiceBound*(1+1e-9) || x.incumbent.ChoiceBound > x.choice.Relaxation.Bound*(1+1e-9) {
			t.Fatalf("value %v, bound %v, of the relaxation %v", value, x.incumbent.ChoiceBound, x.choice.Relaxation.Bound)
		}
	})
	if planned == 0 {
		t.Error("nothing was planned")
	}
}

// Bundles come as near to the bound as is asked, where whole replicas make other devices
// scarce than the relaxation shows.
func TestBundlesReachTheGap(t *testing.T) {
	z := pooldraw.Synthetic{Seed: 15, Models: 12, Classes: 3, Kinds: 4, GPUs: 400, Layers: 8, Partitions: 2, Shares: 3, Batches: 4, Rounding: problem.Slot}
	ctx := context.Background()
	x, err := newSearch(ctx, z.Problem(), highs.Solver{}, problem.Options{Gap: 0.01}, incumbent.MaxThroughput{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bundles.Plan(ctx, x.solver, x.choice, x.incumbent, x.tables, &x.options, x.recordPhase); err != nil {
		t.Fatal(err)
	}
	if gap := x.incumbent.Gap(); gap > 0.01 {
		t.Errorf("gap %.3f %%, asked 1 %%", 100*gap)
	}
}
