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
	"inferplan/planner/pool/documents"
	"inferplan/planner/pool/headroom"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/running"
	"inferplan/planner/pool/search"
	"inferplan/planner/pool/verify"
	"inferplan/solver/milp"
)

// Method plans pooled pipelines for a driver.
var Method = kind.Method{
	Kind: formats.PlanPool, Summary: "pooled pipelines over mixed devices", Workload: equalWorkload, Solve: planDocuments, Adopt: running.Adopt, RelaxWorkload: loosenModels, CheckRunning: documents.CheckRunningPlan, Tune: headroom.Tune, Certify: certify.CertifyPlan, ScalePromise: headroom.PromiseShare,
	Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf, WithReserves: verify.WithHeadroom, WithoutReserves: withoutReserves, WithTraffic: withTraffic, Tuned: []string{"margin", "max-batch", "max-partitions", "batch-build", "gap"}, UseLengthBuckets: verify.ReplaceByBuckets,
}

// checkObjective refuses objectives other than throughput for the baseline algorithms, which know none.
func checkObjective(options document.Values) error {
	objective, algorithm := options.Word("objective"), options.Word("algorithm")
	if objective != documents.ObjectiveThroughput && algorithm != documents.AlgorithmTemplate {
		return &document.Error{Path: "--objective", Found: objective, Expected: "throughput with --algorithm " + algorithm}
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

// planDocuments makes a pool plan: it translates the documents to a problem in numbers, runs the algorithm that the
// options ask for, and returns the parts of the plan. The driver calls it as the method's Solve. Progress, better plans,
// assumptions and warnings are reported to run. If there is no plan, it returns a *kind.InfeasibleError.
func planDocuments(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if err := checkObjective(in.Values); err != nil {
		return nil, err
	}
	r, err := documents.Resolve(in, run)
	if err != nil {
		return nil, err
	}
	run.WarnStaleModels(&in.Documents, r.Profiles())

	// The options of the search, its progress, and the plan that runs.
	o := r.SearchOptions()
	o.Progress = func(p kind.Progress) {
		if !math.IsNaN(p.Value) && p.Value > 0 {
			run.Incumbent(p.Value, p.Bound)
		}
		p.Fraction = fractionDone(p.Phase)
		run.Progress(p)
	}
	if o.RunningPlan, err = r.ReadRunningPlan(); err != nil {
		return nil, err
	}

	// If the options ask for it, each model's SLO leaves time for a batch to fill at the rate at which its requests
	// arrive. That rate is taken from a plan without partitioning.
	if err := r.SetBatchBuilding(func() ([]float64, error) { return unpartitionedRates(ctx, r.Problem, run.Solver, o) }); err != nil {
		return nil, r.ExplainError(err)
	}
	outcome, err := runAlgorithm(ctx, r, run.Solver, o)
	if err != nil {
		return nil, r.ExplainError(err)
	}
	return r.PlanOutcome(outcome), nil
}

// runAlgorithm returns the outcome of the algorithm that the options ask for: a baseline of PPipe (NP, without
// partitioning, or DART-r, pairs of devices), the search for the least price, or that for the most throughput. The
// latter gives all devices behind a network card even parts of it, unless the option uneven-nic is set.
func runAlgorithm(ctx context.Context, r *documents.Resolved, solver milp.Solver, o problem.Options) (*problem.Outcome, error) {
	switch {
	case r.Input.Values.Word("algorithm") == documents.AlgorithmNP:
		return search.NP(ctx, r.Problem, solver, o)
	case r.Input.Values.Word("algorithm") == documents.AlgorithmDARTr:
		outcome, err := search.DARTr(ctx, r.Problem, solver, o)
		if errors.Is(err, search.ErrKinds) {
			err = r.Input.FieldError("cluster", "pools", fmt.Sprintf("%d pools", len(r.Pools)), "at most two kinds, none shared in time, for --algorithm dart-r", err.Error())
		}
		return outcome, err
	case r.Input.Values.Word("objective") != documents.ObjectiveThroughput:
		prices, err := r.DevicePrices()
		if err != nil {
			return nil, err
		}
		return search.Cheapest(ctx, r.Problem, prices, solver, o)
	case r.Input.Values.Flag("uneven-nic"):
		return search.SolveUneven(ctx, r.Problem, solver, o)
	}
	return search.Solve(ctx, r.Problem, solver, o)
}

// unpartitionedRates returns the rate in requests/s, by model, of a plan without partitioning, for the time that
// batches take to fill. That plan knows no floors (least rates of models). Of the plans of the best objective it
// takes one of the fewest devices: a plan that gives idle devices to a model gives it a higher rate than anybody asks
// for, and a time to fill batches that is computed from that rate would be too short.
func unpartitionedRates(ctx context.Context, p *problem.Problem, solver milp.Solver, o problem.Options) ([]float64, error) {
	o.Progress, o.RunningPlan = nil, nil
	np, err := search.FewestDevicesNP(ctx, p.WithoutFloors(), solver, o)
	if err != nil {
		return nil, fmt.Errorf("planning without partitioning for the rate at which batches fill: %w", err)
	}
	return np.RPS, nil
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
