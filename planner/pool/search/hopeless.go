package search

import (
	"context"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// maxSingleChoices is the number of wait choices that are planned one by one.
const maxSingleChoices = 4

// dropHopelessChoices drops the wait choices, from index first on, under which no plan meets the floors (the
// least rates asked for). A wait choice is one set of bounds on how long batches wait for others on time-shared
// pools, with the templates that keep their SLO then. One program over all templates that some choice of a
// group allows decides for the whole group. Choices of similar waits allow much the same templates, so groups
// are halves of the choices in the order of their waits. It does nothing for a few choices, without floors, or
// once a plan serves all.
func dropHopelessChoices(ctx context.Context, search *planSearch, first int) error {
	if len(search.waitChoices)-first <= maxSingleChoices || search.incumbent.ServesAll() || !search.problem.HasFloors() {
		return nil
	}
	var group []int
	for i := first; i < len(search.waitChoices); i++ {
		if search.waitChoices[i].Waits != nil {
			group = append(group, i)
		}
	}
	slices.SortStableFunc(group, func(a, b int) int {
		return slices.Compare(search.waitChoices[a].Waits.LongestInfer, search.waitChoices[b].Waits.LongestInfer)
	})
	return dropGroup(ctx, search, group)
}

// dropGroup drops the wait choices of a group (indexes of search.waitChoices) if no plan under any of them meets the
// floors, the least rates asked for: it sets their bounds to the score of no plan, so that they are skipped. If the
// integer program of the whole group is feasible or too large, it tries each half.
func dropGroup(ctx context.Context, search *planSearch, group []int) error {
	if len(group) == 0 || ctx.Err() != nil {
		return nil
	}

	// All templates that some choice of the group allows.
	groupTemplates, bound := []int(nil), search.goal.NoPlanScore()
	for _, i := range group {
		groupTemplates = append(groupTemplates, search.waitChoices[i].AllowedTemplates...)
		bound = max(bound, search.waitChoices[i].Bound)
	}
	slices.Sort(groupTemplates)
	groupTemplates = slices.Compact(groupTemplates)

	// Solve one program for the group, if it is small enough.
	if len(groupTemplates) <= maxSurvivors*search.options.Effort {
		options := search.options.WorkLimits(basisNodes)
		options.Gap = 1 // any plan shows that there is one
		sol, err := search.solver.Solve(ctx, search.goal.NewProgram(search.catalogue, groupTemplates, bound).Model, options)
		if err != nil {
			return fmt.Errorf("solving the integer program of %d choices of waits: %w", len(group), err)
		}
		if sol.Status == milp.Infeasible {
			for _, i := range group {
				search.waitChoices[i].Bound = search.goal.NoPlanScore()
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
