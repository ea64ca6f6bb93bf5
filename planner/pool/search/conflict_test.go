package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/solver/highs"
	"inferplan/testkit/pooldraw"
)

// The floors and pools that are named as excluding each other do so without the others, and none are named
// where all floors are met.
func TestNamedLimitsExcludeEachOther(t *testing.T) {
	ctx := context.Background()
	conflicts, without := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := pooldraw.DrawProblem(t, pooldraw.Size{Models: 4, Pools: 3, Count: 4, Shares: 2, Blocks: 3, Batches: 3, Partitions: 2})
		catalogue, err := templates.ListAll(p)
		if err != nil {
			return
		}
		solved, err := relaxation.Solve(ctx, catalogue, highs.Solver{}, nil, catalogue.AllTemplates())
		if err != nil {
			return
		}
		for d := range p.Models {
			asked := rapid.SampledFrom([]float64{0, 0.5, 0.9, 2, 4}).Draw(t, "asked")
			p.Models[d].MinRPS = asked * solved.Bound * catalogue.Units.ModelRPS[d]
		}
		conflict := relaxation.ConflictingFloors(ctx, highs.Solver{}, catalogue)
		_, err = relaxation.Solve(ctx, catalogue, highs.Solver{}, nil, catalogue.AllTemplates())
		if isInfeasible := errors.Is(err, relaxation.ErrInfeasible); isInfeasible != (len(conflict) > 0) {
			t.Fatalf("%q are named, and the relaxation says %v", conflict, err)
		}
		if err == nil {
			without++
			return
		}

		// The problem with the named limits alone.
		conflicts++
		alone := *p
		alone.Models, alone.Pools = slices.Clone(p.Models), slices.Clone(p.Pools)
		for d := range alone.Models {
			if m := &alone.Models[d]; !slices.Contains(conflict, fmt.Sprintf("at least %g requests/s of %s", m.MinRPS, m.Name)) {
				m.MinRPS = 0
			}
		}
		for k := range alone.Pools {
			if pool := &alone.Pools[k]; !slices.Contains(conflict, fmt.Sprintf("%d devices of kind %s", pool.Count, pool.Kind)) {
				pool.Count *= 1000
			}
		}
		c := &templates.Catalogue{Problem: &alone, Templates: catalogue.Templates, Units: catalogue.Units}
		if _, err := relaxation.Solve(ctx, c, highs.Solver{}, nil, catalogue.AllTemplates()); !errors.Is(err, relaxation.ErrInfeasible) {
			t.Fatalf("%q alone are met: %v", conflict, err)
		}
	})
	if conflicts == 0 || without == 0 {
		t.Errorf("%d conflicts, %d without", conflicts, without)
	}
}
