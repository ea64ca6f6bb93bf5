package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
)

// solverTolerance is the part by which a solver may miss the rates that it is asked for.
const solverTolerance = 1e-7

// nearEdge is the part of the floors that has to fit for solveAtFloors to solve again with floors lower by the
// tolerance. The largest part that whole devices carry is known to about a thousandth.
const nearEdge = 1 - 2e-3

// solveAtFloors solves a problem with floors, the least rates that models must have. If the solve refuses them
// although the devices nearly carry them, it solves again with floors lower by the tolerance. So the tolerance
// of the solver never decides at the edge: what counts is whether the rates of the plan meet the floors.
func solveAtFloors(p *problem.Problem, solve func(*problem.Problem) (*problem.Outcome, error)) (*problem.Outcome, error) {
	outcome, err := solve(p)
	infeasible, ok := errors.AsType[*kind.InfeasibleError](err)
	if !ok || infeasible.Constraint != "min_rps" || infeasible.Nearest.LoadFactor < nearEdge {
		return outcome, err
	}

	// Solve again for lower floors.
	lowered := *p
	lowered.Models = slices.Clone(p.Models)
	for d := range lowered.Models {
		lowered.Models[d].MinRPS *= 1 - problem.FloorTolerance
	}
	retried, retryErr := solve(&lowered)
	if retryErr != nil {
		return nil, err
	}

	// The rates of that plan decide.
	rateTolerance := problem.ValueTolerance
	if p.HasTimeShared() {
		rateTolerance = solverTolerance // there rates are the solver's; elsewhere they follow from whole replicas
	}
	for d := range p.Models {
		if !problem.MeetsFloor(retried.RPS[d], p.Models[d].MinRPS*(1-rateTolerance)) {
			return nil, err
		}
	}
	return retried, nil
}

// floorSearch looks, once, for the plan that carries the largest common part of the floors of a search.
type floorSearch struct {
	search  *planSearch
	outcome *problem.Outcome // nil if it was not looked for
	err     error            // why there is no such plan
}

// floorPlanGap is the gap to which the part of the floors is known that whole devices carry.
const floorPlanGap = 2e-3

// floorlessWeight is the weight of a model without a floor, in parts of the smallest floor.
const floorlessWeight = 1e-3

// largestPlan returns a plan that carries the floors in whole devices or, if there is none, the largest common
// part of them. The floors are the least rates of the models. It is the plan of the most throughput with the
// floors as weights. It is solved once, and the outcome is kept.
func (f *floorSearch) largestPlan(ctx context.Context) (*problem.Outcome, error) {
	if f.outcome != nil || f.err != nil {
		return f.outcome, f.err
	}

	// Solve for the most throughput with the floors as weights, so that a throughput of 1 carries all floors. A model
	// without a floor gets a small weight.
	models := f.search.problem.Models
	minFloor := math.Inf(1)
	for _, m := range models {
		if m.MinRPS > 0 {
			minFloor = min(minFloor, m.MinRPS)
		}
	}
	relaxed := f.search.problem.WithoutFloors()
	for d := range relaxed.Models {
		relaxed.Models[d].Weight = models[d].MinRPS
		if models[d].MinRPS <= 0 {
			relaxed.Models[d].Weight = minFloor * floorlessWeight
		}
	}
	o := &f.search.options
	options := problem.Options{Gap: floorPlanGap, Effort: o.Effort, Seed: o.Seed, NoPolish: true, NoDiagnosis: o.NoDiagnosis, EnoughRPS: 1}
	f.outcome, f.err = solveThroughput(ctx, relaxed, f.search.solver, options)
	return f.outcome, f.err
}

// areUnreachable reports whether it is known that no plan carries the floors (the least rates asked for). It knows so if
// the search for the plan of the largest part of them (largestPlan) was made and failed, or proved a bound below 1. If
// only the existence of a plan is asked (NoDiagnosis), a part below 1 is enough if its bound is hardly higher. Once the
// search has a plan that serves every model, or a plan runs already, it returns false.
func (f *floorSearch) areUnreachable() bool {
	switch {
	case f.search.incumbent.ServesAll() || f.search.replan != nil:
		return false
	case f.err != nil:
		return true
	case f.outcome == nil:
		return false
	case f.outcome.Bound < 1-problem.FloorTolerance:
		return true
	}
	return f.search.options.NoDiagnosis && f.outcome.Value < 1 && f.outcome.Bound <= f.outcome.Value*(1+2*floorPlanGap)
}

// adoptPlan makes the plan that carries the largest part of the floors (least rates of the models) the best plan of the
// search, if it carries them all and the search itself has no plan that serves every model. If that plan was not looked
// for yet, it solves a problem of its own for it (largestPlan). Without floors, and if there is no such plan, it changes
// nothing and returns nil.
func (f *floorSearch) adoptPlan(ctx context.Context) error {
	search := f.search
	if search.incumbent.ServesAll() || ctx.Err() != nil || !search.problem.HasFloors() {
		return nil
	}

	// The value of the outcome is the part of the floors that the plan carries: it must be all of them, 1. If there is no
	// plan for any part, the search ends without one, and the reason is found then (explainError).
	outcome, err := f.largestPlan(ctx)
	if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
		return nil
	}
	if err != nil || outcome.Value < 1 {
		return err
	}

	// Find the templates of that plan in the catalogue. If that was generated and is not complete, a missing one joins it. No
	// loss was computed for it, so it gets the least that a loss can be, 0, with which no program leaves it out. A complete
	// catalogue should have all: if one is missing there, the plan is not adopted.
	catalogue := search.catalogue
	indexByKey := catalogue.IndexByKey()
	var pipelines []placement.PlanPipeline
	for i := range outcome.Pipelines {
		pipeline := &outcome.Pipelines[i]
		index, ok := indexByKey[pipeline.Key()]
		if !ok {
			if !catalogue.Incomplete {
				return nil
			}
			index = len(catalogue.Templates)
			catalogue.Templates = append(catalogue.Templates, pipeline.Template)
			search.choice.AllowedTemplates, search.choice.Losses = append(search.choice.AllowedTemplates, index), append(search.choice.Losses, 0)
		}
		pipelines = append(pipelines, placement.PlanPipeline{Template: index, Model: pipeline.Model, RPS: pipeline.RPS, Replicas: slices.Clone(pipeline.Replicas)})
	}

	// Keep the plan.
	search.incumbent.KeepIfBetter(placement.Recompute(catalogue, pipelines))
	search.recordPhase("floors", len(pipelines), milp.Stats{})
	search.shouldStop(ctx) // called only for its effect: it notes why the search ends
	return nil
}

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
