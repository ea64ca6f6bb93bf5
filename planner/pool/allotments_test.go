package pool

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// The bound by whole devices of each model is never below the best plan, which was found and
// proven without it.
func TestAllotmentsBoundEveryPlan(t *testing.T) {
	compared, tighter := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 4, Shares: 4, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, Floors: true})
		p.Rounding = problem.Slot
		ctx := context.Background()
		outcome, err := Solve(ctx, p, highs.Solver{}, problem.Options{NoPolish: true})
		if err != nil {
			return
		}
		x, err := newSearch(ctx, p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{})
		if err != nil {
			t.Fatal(err)
		}
		if x.incumbent.RoundRelaxation(x.choice); x.incumbent.Plan == nil {
			return
		}
		b := newBundleSearch(x.solver, &x.options, newModelCovers(ctx, x.choice, x.incumbent, x.tables, 1))
		before := x.incumbent.ChoiceBound
		if err := b.boundByAllotments(ctx); err != nil {
			t.Fatal(err)
		}
		compared++
		if bound := x.catalogue.UnitsToRate(x.incumbent.ChoiceBound); bound < outcome.Value*(1-1e-9) {
			t.Fatalf("bound %v, a plan has %v", bound, outcome.Value)
		}
		if x.incumbent.ChoiceBound < before*(1-1e-6) {
			tighter++
		}
	})
	if compared == 0 || tighter == 0 {
		t.Errorf("%d compared, the bound was lowered in %d", compared, tighter)
	}
	t.Logf("%d compared, the bound was lowered in %d", compared, tighter)
}
