package search

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/kind"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
	"inferplan/testkit/pooldraw"
)

// The bound by whole devices per model holds against the integer program over every template.
func TestWholeDevicesAgainstProgram(t *testing.T) {
	compared, tighter := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 3, Pools: 3, Count: 5, Shares: 3, Blocks: 3, Batches: 2, Partitions: 2, Memory: true})
		ctx := context.Background()
		x, err := newSearch(ctx, p, highs.Solver{}, problem.Options{}, incumbent.MaxThroughput{})
		if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		x.incumbent.RoundRelaxation(x.choice)
		if len(x.catalogue.Templates) > 150 || x.incumbent.Plan == nil {
			return
		}
		sol, err := x.solver.Solve(ctx, programs.New(x.catalogue, x.choice.AllowedTemplates, x.choice.Relaxation.Bound, 0).Model, milp.Options{Gap: 1e-7, MaxNodes: 3000})
		if err != nil || sol.Status != milp.Optimal && sol.Status != milp.Gap {
			return
		}
		compared++
		if err := boundByWholeDevices(ctx, x); err != nil {
			t.Fatal(err)
		}
		if x.incumbent.ChoiceBound < sol.Value*(1-1e-6) {
			t.Errorf("bound %v, the program has a plan of %v", x.incumbent.ChoiceBound, sol.Value)
		}
		if x.incumbent.ChoiceBound < x.choice.Relaxation.Bound*(1-1e-6) {
			tighter++
		}
	})
	t.Logf("%d compared, the bound was lowered in %d", compared, tighter)
	if compared == 0 || tighter == 0 {
		t.Error("no case showed what was to be shown")
	}
}

// One model whose stages come in twos and threes on devices that only whole numbers of both fill is solved to its gap
// by sums of losses.
func TestSolveEndsByLosses(t *testing.T) {
	for _, z := range []pooldraw.Synthetic{{Seed: 3, Shares: 4}, {Seed: 9, Shares: 3}} {
		z.Models, z.Classes, z.Kinds, z.GPUs, z.Layers, z.Partitions, z.Batches = 1, 1, 2, 100, 8, 3, 3
		t.Run(fmt.Sprintf("seed %d", z.Seed), func(t *testing.T) {
			outcome, err := Solve(context.Background(), z.Problem(), highs.Solver{}, problem.Options{Gap: 1e-3})
			if err != nil || outcome.Value < outcome.Bound*(1-1e-3) {
				t.Errorf("%v, %+v", err, outcome)
			}
		})
	}
}
