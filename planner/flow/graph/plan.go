package graph

import (
	"context"
	"errors"
	"math"

	"inferplan/formats"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// Plan reads the problem of graphs of modules from the documents, searches for the highest rate or the lowest price, and
// returns the parts of a plan.
func Plan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	r, err := resolveProblem(in, run)
	if err != nil {
		return nil, err
	}
	usedModels := lists.Map(len(r.measuredModels), func(i int) *formats.ProfileModel { return r.measuredModels[i].profile })
	run.WarnStaleModels(&in.Documents, usedModels)
	run.Progress(kind.Progress{Phase: "program", Value: math.NaN(), Bound: math.NaN()})

	if in.KeepRunning {
		return r.runningOutcome()
	}

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
	if err != nil && ctx.Err() != nil && in.RunningPlan != nil {
		if o, _ := r.runningOutcome(); o != nil { // what runs stands
			o.StoppedBy = milp.StoppedByInterrupt
			return o, nil
		}
	}
	if err != nil {
		return nil, err
	}

	// Write the plan. If one runs, start from that.
	var o *kind.Outcome
	if in.RunningPlan != nil && !in.FeasibilityOnly {
		o, err = r.outcomeNear(ctx, s, result)
	} else {
		o = r.outcome(r.enlarged(result))
	}
	if err != nil {
		return nil, err
	}

	// If the caller names an attainment, it asks for the bound of all plans. If that cannot be computed, bound is NaN, and the plan gets none.
	if in.BoundAttainment == 0 {
		return o, nil
	}
	bound, err := r.objectiveBound(ctx, run.Solver, in.BoundAttainment)
	terms.SetObjectiveBound(o, bound, r.boundScope(), in.Values.Number("gap"))
	return o, err
}
