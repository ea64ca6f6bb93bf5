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
func dropHopelessChoices(ctx context.Context, search *planSearch, first int) error {
	if len(search.waitChoices)-first <= maxSingleChoices || search.incumbent.servesAll() || !search.problem.hasFloors() {
		return nil
	}
	var group []int
	for i := first; i < len(search.waitChoices); i++ {
		if search.waitChoices[i].waits != nil {
			group = append(group, i)
		}
	}
	slices.SortStableFunc(group, func(a, b int) int {
		return slices.Compare(search.waitChoices[a].waits.longestInfer, search.waitChoices[b].waits.longestInfer)
	})
	return dropGroup(ctx, search, group)
}

// dropGroup drops a group of wait choices, or parts of it, if no plan under them meets the floors.
func dropGroup(ctx context.Context, search *planSearch, group []int) error {
	if len(group) == 0 || ctx.Err() != nil {
		return nil
	}

	// All templates that some choice of the group allows.
	groupTemplates, bound := []int(nil), search.goal.noPlanScore()
	for _, i := range group {
		groupTemplates = append(groupTemplates, search.waitChoices[i].allowedTemplates...)
		bound = max(bound, search.waitChoices[i].bound)
	}
	slices.Sort(groupTemplates)
	if groupTemplates = slices.Compact(groupTemplates); len(groupTemplates) <= maxSurvivors*search.options.Effort {
		options := search.workLimits(basisNodes)
		options.Gap = 1 // any plan shows that there is one
		sol, err := search.solver.Solve(ctx, search.goal.newProgram(search.catalogue, groupTemplates, bound).m, options)
		if err != nil {
			return fmt.Errorf("solving the integer program of %d choices of waits: %w", len(group), err)
		}
		if sol.Status == milp.Infeasible {
			for _, i := range group {
				search.waitChoices[i].bound = search.goal.noPlanScore()
			}
			return nil
		}
	}

	// Else look at each half.
	if len(group) == 1 {
		return nil
	}
	middle := len(group) / 2
	if err := dropGroup(ctx, search, group[:middle]); err != nil {
		return err
	}
	return dropGroup(ctx, search, group[middle:])
}
