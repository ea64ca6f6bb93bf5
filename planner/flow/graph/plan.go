package graph

import (
	"context"
	"errors"
	"math"

	"inferplan/formats"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
)

// Plan reads the problem of graphs of modules from the documents, searches for the highest rate or the lowest price, and
// returns the parts of a plan.
func Plan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	r, err := resolveProblem(in, run)
	if err != nil {
		return nil, err
	}
	var usedModels []*formats.ProfileModel
	for i := range r.measuredModels {
		usedModels = append(usedModels, r.measuredModels[i].profile)
	}
	run.WarnStaleModels(&in.Documents, usedModels)
	run.Progress(kind.Progress{Phase: "program", Value: math.NaN(), Bound: math.NaN()})

	// Search for the highest rate, or for the lowest price at fixed rates. If there is no plan, say why.
	s := &planSearch{problem: r.problem, solver: run.Solver, gap: in.Values.Number("gap"), seed: int32(in.Seed % math.MaxInt32), onImproved: run.Incumbent}
	fixedRates := r.objective != "throughput"
	findPlan := s.throughput
	if fixedRates {
		findPlan = s.cheapest
	}
	result, err := findPlan(ctx)
	if errors.Is(err, terms.ErrNoPlan) {
		s.onImproved = nil
		err = s.explainInfeasible(ctx, fixedRates)
	}
	if err != nil {
		return nil, err
	}

	// Spend what is left of the deadlines on larger batches. A plan in which modules take turns (it has time shares) keeps its batches: a
	// larger one would be a longer wait for all modules on its devices.
	takesTurns := result.solution.timeShares != nil
	if !takesTurns {
		r.problem.enlargeBatches(result.solution)
	}
	o := r.outcome(result)

	// If the caller names an attainment, it asks for the bound of all plans. If that cannot be computed, bound is NaN, and the plan gets none.
	if in.BoundAttainment == 0 {
		return o, nil
	}
	bound, err := r.objectiveBound(ctx, run.Solver, in.BoundAttainment)
	terms.SetObjectiveBound(o, bound, r.boundScope(), in.Values.Number("gap"))
	return o, err
}
