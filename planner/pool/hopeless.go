package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// maxSingleChoices is the number of wait choices that are planned one by one.
const maxSingleChoices = 4

// dropHopelessChoices drops the wait choices, from index first on, under which no plan meets the floors. One
// program over all templates that some choice of a group allows decides for the whole group. Choices of similar
// waits allow much the same templates, so groups are halves of the choices in the order of their waits.
func (x *planSearch) dropHopelessChoices(ctx context.Context, first int) error {
	if len(x.waitChoices)-first <= maxSingleChoices || x.incumbent.servesAll() || !x.problem.hasFloors() {
		return nil
	}
	var group []int
	for i := first; i < len(x.waitChoices); i++ {
		if x.waitChoices[i].waits != nil {
			group = append(group, i)
		}
	}
	slices.SortStableFunc(group, func(a, b int) int {
		return slices.Compare(x.waitChoices[a].waits.longestInfer, x.waitChoices[b].waits.longestInfer)
	})
	return x.dropGroup(ctx, group)
}

// dropGroup drops a group of wait choices, or parts of it, if no plan under them meets the floors.
func (x *planSearch) dropGroup(ctx context.Context, group []int) error {
	if len(group) == 0 || ctx.Err() != nil {
		return nil
	}

	// All templates that some choice of the group allows.
	groupTemplates, bound := []int(nil), x.goal.noPlanScore()
	for _, i := range group {
		groupTemplates = append(groupTemplates, x.waitChoices[i].allowedTemplates...)
		bound = max(bound, x.waitChoices[i].bound)
	}
	slices.Sort(groupTemplates)
	if groupTemplates = slices.Compact(groupTemplates); len(groupTemplates) <= maxSurvivors*x.options.Effort {
		options := x.workLimits(basisNodes)
		options.Gap = 1 // any plan shows that there is one
		sol, err := x.solver.Solve(ctx, x.goal.newProgram(x.catalogue, groupTemplates, bound).m, options)
		if err != nil {
			return fmt.Errorf("solving the integer program of %d choices of waits: %w", len(group), err)
		}
		if sol.Status == milp.Infeasible {
			for _, i := range group {
				x.waitChoices[i].bound = x.goal.noPlanScore()
			}
			return nil
		}
	}

	// Else look at each half.
	if len(group) == 1 {
		return nil
	}
	middle := len(group) / 2
	if err := x.dropGroup(ctx, group[:middle]); err != nil {
		return err
	}
	return x.dropGroup(ctx, group[middle:])
}
