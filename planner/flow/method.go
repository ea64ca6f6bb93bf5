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
	Kind: formats.PlanFlow, About: "applications and workflows of several modules",
	Solve: plan, Tune: tune, Certify: certify.Plan, Promise: promise, Loosened: loosened, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf, Explain: explain, Diff: diff.Flows,
}

// The values of the option algorithm.
const (
	AlgorithmPaths  = "paths"  // for graphs: the method of docs/methods.md
	AlgorithmShares = "shares" // for workflows: devices are divided by demand, and keep the models that they hold
)

// solvePlan solves the problem of the documents and returns the parts of a plan. Workflows go to
// planWorkflows.
func plan(ctx context.Context, in *kind.Problem, run *kind.Run) (*kind.Outcome, error) {
	if list := formats.ApplicationsOf(in.Workload); len(list) > 0 && len(list[0].Segments) > 0 {
		if in.Values.Time("cold-start") > 0 {
			return nil, in.Fail("workload", "applications", "segments", "modules: --cold-start is of graphs, workflows load what they need", "")
		}
		return planWorkflows(ctx, in, run)
	}

	// Refuse options that only workflows have.
	if in.Values.Word("algorithm") == AlgorithmShares {
		return nil, in.Fail("workload", "applications", "modules", "segments: --algorithm shares is of workflows", "")
	}
	if text := in.Values.Word("dedicated"); text != "" && text != simulated {
		return nil, in.Fail("workload", "applications", "modules", "segments: --dedicated is of workflows", "modules of a graph have devices of their own")
	}
	r, err := resolve(in, run)
	if err != nil {
		return nil, err
	}
	var used []*formats.ProfileModel
	for i := range r.measured {
		used = append(used, r.measured[i].profile)
	}
	run.StaleModels(&in.Documents, used)
	run.Progress(kind.Progress{Phase: "program", Value: math.NaN(), Bound: math.NaN()})

	// Search for the highest rate, or for the lowest price at fixed rates. If there is no plan, say why.
	s := &search{p: r.problem, solver: run.Solver, gap: in.Values.Number("gap"), seed: int32(in.Seed % math.MaxInt32), improved: run.Incumbent}
	rates := r.objective != "throughput"
	find := s.throughput
	if rates {
		find = s.cheapest
	}
	out, err := find(ctx)
	if errors.Is(err, errNone) {
		s.improved = nil
		err = s.explained(ctx, rates)
	}
	if err != nil {
		return nil, err
	}

	// Spend what is left of the deadlines, write the plan, and replace its bound by that of all plans if
	// that is asked for.
	if out.time == nil {
		r.problem.widen(out.picked)
	}
	o := r.outcome(out)
	if in.Attained > 0 {
		err = bounded(o, r.among(), in.Values.Number("gap"), func() (float64, error) { return r.bound(ctx, run.Solver, in.Attained) })
	}
	return o, err
}
