package pool

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/verify"
	"inferplan/solver/milp"
)

// Method plans pooled pipelines for a driver.
var Method = kind.Method{
	Kind: formats.PlanPool, Summary: "pooled pipelines over mixed devices", Workload: equalWorkload, Solve: planDocuments, RelaxWorkload: loosenModels, CheckRunning: checkRunningPlan, Tune: tuneBySimulation, Certify: certify.CertifyPlan, ScalePromise: promiseShare,
	Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf, WithReserves: verify.WithHeadroom, UseLengthBuckets: verify.ReplaceByBuckets,
}

// checkObjective refuses objectives other than throughput for the baseline algorithms, which know none.
func checkObjective(c optionValues) error {
	if c.Objective != ObjectiveThroughput && c.Algorithm != AlgorithmTemplate {
		return &document.Error{Path: "--objective", Found: c.Objective, Expected: "throughput with --algorithm " + c.Algorithm}
	}
	return nil
}

// searchPhases lists the names of the phases in order, for the fraction that is done.
var searchPhases = []string{"pipelines", "relaxation", "what runs", "rounding", "bundles", "basis", "whole devices", "losses", "pool", "survivors", "fewest moves", "weighted sum"}

// fractionDone returns the fraction of a search that is done when a phase ends, for the progress bar: its place
// in the list of phases. For a phase that is not in the list it returns 0.
func fractionDone(phase string) float64 {
	for i, p := range searchPhases {
		if p == phase {
			return float64(i+1) / float64(len(searchPhases))
		}
	}
	return 0
}

// planDocuments is the method's solve: it translates the documents to a problem, runs the algorithm that the
// options ask for, and returns the parts of the plan. Progress and better plans are reported to run.
func planDocuments(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if err := checkObjective(optionValuesOf(in.Values)); err != nil {
		return nil, err
	}
	r, err := resolveDocuments(in, run)
	if err != nil {
		return nil, err
	}
	var models []*formats.ProfileModel
	for i := range r.models {
		models = append(models, r.models[i].profile)
	}
	run.WarnStaleModels(&in.Documents, models)

	// The options of the search, its progress, and the plan that runs.
	o := r.searchOptions()
	o.Progress = func(p problem.Progress) {
		if !math.IsNaN(p.Value) && p.Value > 0 {
			run.Incumbent(p.Value, p.Bound)
		}
		run.Progress(kind.Progress{Phase: p.Phase, Fraction: fractionDone(p.Phase), Value: p.Value, Bound: p.Bound, Detail: p.Detail})
	}
	if o.RunningPlan, err = r.readRunningPlan(); err != nil {
		return nil, err
	}

	// Batches may need time to fill.
	if err := r.setBatchBuilding(ctx, run.Solver, o); err != nil {
		return nil, r.explainError(err)
	}
	outcome, err := r.runAlgorithm(ctx, run.Solver, o)
	if err != nil {
		return nil, r.explainError(err)
	}
	return r.planOutcome(outcome), nil
}

// runAlgorithm runs the algorithm that the options ask for: a baseline (NP, DARTr), the search for the least
// price, or that for the most throughput, with even shares of network cards or without.
func (r *resolvedProblem) runAlgorithm(ctx context.Context, solver milp.Solver, o problem.Options) (*problem.Outcome, error) {
	switch {
	case r.options.Algorithm == AlgorithmNP:
		return NP(ctx, r.problem, solver, o)
	case r.options.Algorithm == AlgorithmDARTr:
		outcome, err := DARTr(ctx, r.problem, solver, o)
		if errors.Is(err, ErrKinds) {
			err = r.input.FieldError("cluster", "pools", fmt.Sprintf("%d pools", len(r.pools)), "at most two kinds, none shared in time, for --algorithm dart-r", err.Error())
		}
		return outcome, err
	case r.options.Objective != ObjectiveThroughput:
		prices, err := r.devicePrices()
		if err != nil {
			return nil, err
		}
		return Cheapest(ctx, r.problem, prices, solver, o)
	case r.options.UnevenNIC:
		return SolveUneven(ctx, r.problem, solver, o)
	}
	return Solve(ctx, r.problem, solver, o)
}

// setBatchBuilding sets, for each model, how long a batch waits for each further request that fills it: the
// option batch-build divided by a rate. The rate is that of the workload or, if that names none, the one that
// the model gets in a plan without partitioning.
func (r *resolvedProblem) setBatchBuilding(ctx context.Context, solver milp.Solver, o problem.Options) error {
	if r.options.BatchBuild == 0 {
		return nil
	}

	// The rates at which the batches of each model fill.
	rates := make([]float64, len(r.models))
	someMissing := false
	for d := range r.models {
		rates[d] = r.models[d].workload.BatchBuildRPS
		someMissing = someMissing || rates[d] <= 0
	}
	if someMissing {
		npRates, err := r.unpartitionedRates(ctx, solver, o)
		if err != nil {
			return err
		}
		for d := range rates {
			if rates[d] <= 0 {
				rates[d] = npRates[d]
				r.run.Assume("batch_build_rps %.6g for %s: its rate in the plan without partitioning that takes the fewest devices", rates[d], r.problem.Models[d].Name)
			}
		}
	}
	for d := range rates {
		m := &r.problem.Models[d]
		m.BatchWaitMicros = r.options.BatchBuild * 1e6 / rates[d]
		m.EveryBatch = true
	}
	return nil
}

// unpartitionedRates returns the rates that the models get in a plan without partitioning, floors or delay of
// filling batches. Of the plans of the best objective it takes the one of the fewest devices. A plan that gives
// idle devices to some model gives it a higher rate than anybody asks for, and a delay computed from that rate
// would be too short.
func (r *resolvedProblem) unpartitionedRates(ctx context.Context, solver milp.Solver, o problem.Options) ([]float64, error) {
	o.Progress, o.RunningPlan = nil, nil
	np, err := fewestDevicesNP(ctx, r.problem.WithoutFloors(), solver, o)
	if err != nil {
		return nil, fmt.Errorf("planning without partitioning for the rate at which batches fill: %w", err)
	}
	return np.RPS, nil
}

// BatchRates returns the rates, in the order of the workload's models, at which a solve with --batch-build takes
// batches to fill if the workload names none.
func BatchRates(ctx context.Context, in *kind.Problem, run *kind.SolveRun) ([]float64, error) {
	r, err := resolveDocuments(in, run)
	if err != nil {
		return nil, err
	}
	rates, err := r.unpartitionedRates(ctx, run.Solver, r.searchOptions())
	return rates, r.explainError(err)
}

// searchOptions returns the options of a search that reports no progress and starts from no running plan.
func (r *resolvedProblem) searchOptions() problem.Options {
	return problem.Options{Gap: r.options.Gap, Effort: 1 << (r.options.Effort - 1), Seed: int32(r.input.Seed % math.MaxInt32), NoPolish: r.input.FeasibilityOnly, NoDiagnosis: r.input.FeasibilityOnly, Hurry: r.input.Quick, LeastRPS: r.input.MinObjective}
}

// equalWorkload returns a workload of every model of the profile, with the same weight and SLO and Poisson
// arrivals, and the assumptions that it rests on.
func equalWorkload(profile *formats.Profile, slo document.SLO) (*formats.Workload, []string) {
	var models formats.WorkloadModels
	for _, name := range profile.RequestedModels() {
		models = append(models, formats.WorkloadModel{Model: name, SLO: slo, Percentile: "p99", Weight: 1})
	}
	return &formats.Workload{Format: formats.FormatWorkload, Section: models, Arrivals: &formats.Arrivals{Process: "poisson"}},
		[]string{fmt.Sprintf("workload: all %d models of the profile with equal weight, p99, Poisson arrivals", len(models))}
}

// AdoptDocuments turns pipelines that another program chose into an outcome that can be written as a plan, for
// the models and devices of the documents. It also returns the rate, in requests/s, that the replicas of each
// pipeline carry. A batch is taken to fill at the workload's batch_build_rps, if it names one.
func AdoptDocuments(in *kind.Problem, run *kind.SolveRun, pipelines []problem.Pipeline) (*kind.Outcome, []float64, error) {
	r, err := resolveDocuments(in, run)
	if err != nil {
		return nil, nil, err
	}
	for d := range r.models {
		if rps := r.models[d].workload.BatchBuildRPS; rps > 0 {
			r.problem.Models[d].BatchWaitMicros = r.options.BatchBuild * 1e6 / rps
		}
	}
	outcome, carriedRPS, err := placement.Adopt(r.problem, pipelines)
	if err != nil {
		return nil, nil, err
	}
	return r.planOutcome(outcome), carriedRPS, nil
}
