package bundles

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
	"inferplan/testkit/poolrelaxed"
)

// The bound by whole devices of each model is never below the best plan, which was found and
// proven without it.
func TestAllotmentsBoundEveryPlan(t *testing.T) {
	compared, tighter := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 4, Shares: 4, Blocks: 3, Batches: 2, Partitions: 2, Memory: true, Floors: true})
		p.Rounding = problem.Slot
		ctx := context.Background()
		choice, best, err := poolrelaxed.Relax(p)
		if err != nil || best.Plan == nil {
			return
		}
		plan, err := poolrelaxed.PlanOver(choice)
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil {
			return
		}
		b := newBundleSearch(highs.Solver{}, &problem.Options{Effort: 1}, newModelCovers(ctx, choice, best, nil, 1))
		before := best.ChoiceBound
		if err := b.boundByAllotments(ctx); err != nil {
			t.Fatal(err)
		}
		compared++
		if bound := choice.Catalogue.UnitsToRate(best.ChoiceBound); bound < plan.Value*(1-1e-9) {
			t.Fatalf("bound %v, a plan has %v", bound, plan.Value)
		}
		if best.ChoiceBound < before*(1-1e-6) {
			tighter++
		}
	})
	if compared == 0 || tighter == 0 {
		t.Errorf("%d compared, the bound was lowered in %d", compared, tighter)
	}
	t.Logf("%d compared, the bound was lowered in %d", compared, tighter)
}
