package search

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/pooldraw"
)

// A choice of the blocking rule that is left out has no plan that meets the floors, and
// where all floors are near what the relaxation carries some choices are left out.
func TestOnlyHopelessChoicesAreDropped(t *testing.T) {
	dropped, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 4, Pools: 2, Count: 4, Shares: 1, Blocks: 3, Batches: 5, Partitions: 2, Memory: true})
		for k := range p.Pools {
			p.Pools[k].TimeShared = true
			p.Pools[k].Memory = int64(rapid.IntRange(60, 200).Draw(t, "little memory"))
		}
		ctx := context.Background()
		x, err := newSearch(ctx, p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{})
		if err != nil || len(x.waitChoices) <= maxSingleChoices {
			return
		}
		asked := rapid.Float64Range(0.9, 1).Draw(t, "asked")
		for d := range p.Models {
			p.Models[d].MinRPS = asked * x.choice.Relaxation.Bound * x.catalogue.Units.ModelRPS[d]
		}
		if x, err = newSearch(ctx, p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{}); err != nil {
			return
		}
		if err := dropHopelessChoices(ctx, x, 0); err != nil {
			t.Fatal(err)
		}
		for i := range x.waitChoices {
			c := &x.waitChoices[i]
			if c.Bound > x.goal.NoPlanScore() {
				kept++
				continue
			}
			dropped++
			sol, err := x.solver.Solve(ctx, x.goal.NewProgram(x.catalogue, c.AllowedTemplates, c.Relaxation.Bound).Model, milp.Options{MaxNodes: 2000})
			if err != nil {
				t.Fatal(err)
			}
			if sol.Feasible() {
				t.Fatalf("choice %d of %d was left out, its own program has a plan of %g", i, len(x.waitChoices), sol.Value)
			}
		}
	})
	if dropped == 0 || kept == 0 {
		t.Errorf("%d choices were left out, %d were not", dropped, kept)
	}
	t.Logf("%d choices were left out, %d were not", dropped, kept)
}
