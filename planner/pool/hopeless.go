package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// maxSingleChoices is the number of wait choices that are planned one by one.
const fewChoices = 4

// dropHopelessChoices drops the wait choices, from index first on, under which no plan meets the floors. One
// program over all templates that some choice of a group allows decides for the whole group. Choices of similar
// waits allow much the same templates, so groups are halves of the choices in the order of their waits.
func (x *search) dropHopeless(ctx context.Context, from int) error {
	if len(x.choices)-from <= fewChoices || x.best != nil && x.best.value > 0 || !x.floored() {
		return nil
	}
	var group []int
	for i := from; i < len(x.choices); i++ {
		if x.choices[i].rule != nil {
			group = append(group, i)
		}
	}
	slices.SortStableFunc(group, func(a, b int) int {
		return slices.Compare(x.choices[a].rule.longest, x.choices[b].rule.longest)
	})
	return x.dropGroup(ctx, group)
}

// dropGroup drops a group of wait choices, or parts of it, if no plan under them meets the floors.
func (x *search) dropGroup(ctx context.Context, group []int) error {
	if len(group) == 0 || ctx.Err() != nil {
		return nil
	}

	// All templates that some choice of the group allows.
	allowed, bound := []int(nil), x.goal.none()
	for _, i := range group {
		allowed = append(allowed, x.choices[i].allowed...)
		bound = max(bound, x.choices[i].bound)
	}
	slices.Sort(allowed)
	if allowed = slices.Compact(allowed); len(allowed) <= maxSurvivors*x.o.Effort {
		o := x.work(basisNodes)
		o.Gap = 1 // any plan shows that there is one
		sol, err := x.s.Solve(ctx, x.goal.program(x.catalogue, allowed, bound).m, o)
		if err != nil {
			return fmt.Errorf("solving the integer program of %d choices of waits: %w", len(group), err)
		}
		if sol.Status == milp.Infeasible {
			for _, i := range group {
				x.choices[i].bound = x.goal.none()
			}
			return nil
		}
	}

	// Else look at each half.
	if len(group) == 1 {
		return nil
	}
	half := len(group) / 2
	if err := x.dropGroup(ctx, group[:half]); err != nil {
		return err
	}
	return x.dropGroup(ctx, group[half:])
}
