package pool

import (
	"context"
	"slices"

	"inferplan/solver/milp"
)

// NP plans without partitioning: every model whole, on whole devices (the baseline of PPipe). Of the plans with
// the best objective it takes one with the largest weighted sum of rates, as Solve does, and of those one with
// the fewest devices.
func NP(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return mostNP(ctx, p, s, o) })
}

// largestSumNP is NP with the floors as they are.
func mostNP(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	x, err := unpartitioned(ctx, p, s, o)
	if err != nil {
		return nil, err
	}
	if err := x.sumOver(ctx, x.allowed, 0, survivorNodes); err != nil {
		return nil, err
	}
	if err := x.fewest(ctx, true); err != nil {
		return nil, err
	}
	return x.finish(ctx)
}

// fewestDevicesNP returns the plan without partitioning that takes the fewest devices at the best objective: no
// model gets more than it needs there.
func leastNP(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	x, err := unpartitioned(ctx, p, s, o)
	if err != nil {
		return nil, err
	}
	if err := x.fewest(ctx, false); err != nil {
		return nil, err
	}
	return x.finish(ctx)
}

// solveUnpartitioned looks for the best objective with every model whole, on whole devices.
func unpartitioned(ctx context.Context, p *Problem, s milp.Solver, o Options) (*polish, error) {
	whole := *p
	whole.MaxPartitions = 1
	whole.Pools = slices.Clone(p.Pools)
	for k := range whole.Pools {
		whole.Pools[k].MaxShares = 1
	}
	o.Gap = 0
	x, err := newSearch(ctx, &whole, s, o, throughput{})
	if err != nil {
		return nil, err
	}
	if _, err := (&phases{x}).integer(ctx, "no partitioning", x.allowed, survivorNodes); err != nil {
		return nil, err
	}
	x.done(ctx)
	return &polish{x}, x.served(ctx)
}
