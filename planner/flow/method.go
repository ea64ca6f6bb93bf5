package flow

import (
	"context"
	"errors"
	"math"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/planner/certify"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
)

// Method is the entry of package planner to this package. It cannot start from a plan that runs.
var Method = kind.Method{
	Kind: formats.PlanFlow, Summary: "applications and workflows of several modules",
	Solve: solvePlan, Tune: tune, Certify: certify.CertifyPlan, ScalePromise: scalePromise, RelaxWorkload: loosenApplications, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf, Explain: explainPlan, Diff: diff.Flows,
}

// The values of the option algorithm.
const (
	AlgorithmPaths  = "paths"  // for graphs: the method of docs/methods.md
	AlgorithmShares = "shares" // for workflows: devices are divided by demand, and keep the models that they hold
)

// solvePlan is the method's solve: it reads the problem from the documents, searches for the highest rate or
// the lowest price, and returns the parts of a plan. Workflows (applications with segments) go to
// planWorkflows.
func solvePlan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if list := formats.ApplicationsOf(in.Workload); len(list) > 0 && len(list[0].Segments) > 0 {
		if in.Values.Time("cold-start") > 0 {
			return nil, in.FieldError("workload", "applications", "segments", "modules: --cold-start is of graphs, workflows load what they need", "")
		}
		return planWorkflows(ctx, in, run)
	}

	// Refuse options that only workflows have.
	if in.Values.Word("algorithm") == AlgorithmShares {
		return nil, in.FieldError("workload", "applications", "modules", "segments: --algorithm shares is of workflows", "")
	}
	if text := in.Values.Word("dedicated"); text != "" && text != dedicatedAuto {
		return nil, in.FieldError("workload", "applications", "modules", "segments: --dedicated is of workflows", "modules of a graph have devices of their own")
	}
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
	if errors.Is(err, errNoPlan) {
		s.onImproved = nil
		err = s.explainInfeasible(ctx, fixedRates)
	}
	if err != nil {
		return nil, err
	}

	// Spend what is left of the deadlines, write the plan, and replace its bound by that of all plans if
	// that is asked for.
	if result.solution.timeShares == nil {
		r.problem.enlargeBatches(result.solution)
	}
	o := r.outcome(result)
	if in.BoundAttainment == 0 {
		return o, nil
	}
	bound, err := r.objectiveBound(ctx, run.Solver, in.BoundAttainment)
	setObjectiveBound(o, bound, r.boundScope(), in.Values.Number("gap"))
	return o, err
}
