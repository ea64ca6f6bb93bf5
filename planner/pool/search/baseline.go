package search

import (
	"context"
	"slices"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
)

// NP plans without partitioning: every model whole, on whole devices (the baseline of PPipe). Of the plans with
// the best objective it takes one with the largest weighted sum of rates, as Solve does, and of those one with
// the fewest devices.
func NP(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	return solveAtFloors(p, func(p *problem.Problem) (*problem.Outcome, error) { return largestSumNP(ctx, p, s, o) })
}

// largestSumNP plans every model whole, on whole devices. Of the plans of the best objective it takes one of the
// largest weighted sum of rates, and of these one of the fewest devices. It refuses floors (the least rates asked for)
// that no plan carries exactly. NP, the baseline, calls it, and if floors are missed by a tolerance only, once more
// with lower ones.
func largestSumNP(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	search, err := solveUnpartitioned(ctx, p, s, o)
	if err != nil {
		return nil, err
	}

	// Raise the weighted sum of rates at the best objective to the optimum (a gap of 0), over all templates that the search
	// may use, so that replicas may change. Then use fewer devices at that sum (keepSum is true).
	if len(p.Models) > 1 && ctx.Err() == nil {
		program := sameValueProgram(search, search.choice.AllowedTemplates)
		if err := solveLargestSum(ctx, search, program, 0, survivorNodes); err != nil {
			return nil, err
		}
	}
	if err := reduceDevices(ctx, search, true); err != nil {
		return nil, err
	}
	return writeOutcome(ctx, search)
}

// FewestDevicesNP returns the plan without partitioning that takes the fewest devices at the best objective: no
// model gets more than it needs there. It serves as a baseline, and for the rates at which batches fill.
func FewestDevicesNP(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	search, err := solveUnpartitioned(ctx, p, s, o)
	if err != nil {
		return nil, err
	}
	if err := reduceDevices(ctx, search, false); err != nil {
		return nil, err
	}
	return writeOutcome(ctx, search)
}

// solveUnpartitioned searches for the best objective with every model whole (one stage), on whole devices. It
// looks for the optimum (gap 0), and returns the search with its plan, for polishing.
func solveUnpartitioned(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*planSearch, error) {
	wholeModels := *p
	wholeModels.MaxPartitions = 1
	wholeModels.Pools = slices.Clone(p.Pools)
	for k := range wholeModels.Pools {
		wholeModels.Pools[k].MaxShares = 1
	}
	o.Gap = 0
	search, err := newSearch(ctx, &wholeModels, s, o, incumbent.MaxThroughput{})
	if err != nil {
		return nil, err
	}
	if _, err := solveInteger(ctx, search, "no partitioning", search.choice.AllowedTemplates, survivorNodes); err != nil {
		return nil, err
	}
	search.shouldStop(ctx) // notes why the search ends
	return search, search.requirePlan(ctx)
}
