package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// NP plans without partitioning: every model whole, on whole devices (PPipe's
// baseline). Of the plans with the best objective it takes one with the largest
// weighted sum of rates, as Solve does, and of those one with the fewest devices.
func NP(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return mostNP(ctx, p, s, o) })
}

// mostNP is NP for floors as they are.
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

// leastNP is the plan without partitioning that takes the fewest devices at the
// best objective: no model gets more than it needs there.
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

// unpartitioned looks for the best objective with every model whole, on whole
// devices.
func unpartitioned(ctx context.Context, p *Problem, s milp.Solver, o Options) (*search, error) {
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
	if _, err := x.integer(ctx, "no partitioning", x.allowed, survivorNodes); err != nil {
		return nil, err
	}
	x.done(ctx)
	return x, x.served(ctx)
}

// fewest looks, among the plans of the best objective, for one that takes the
// fewest devices; with sum among those of no smaller weighted sum of rates.
func (x *search) fewest(ctx context.Context, sum bool) error {
	if ctx.Err() != nil {
		return nil
	}
	q := x.p.mip(x.u, x.templates, x.allowed, x.value(), x.value()*(1-sameValue))
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
	if sum {
		parts, total := x.sumTerms(q)
		q.m.AddGE("weighted sum", x.best.sum/total*(1-sameValue), parts...)
	}
	for i, ti := range x.allowed {
		for si, v := range q.g[i] {
			if v >= 0 {
				q.m.SetObj(v, 1/float64(x.templates[ti].Stages[si].Share))
			}
		}
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{
		MaxNodes: survivorNodes * int64(x.o.Effort), Seed: x.o.Seed, Start: x.start(q, x.best),
	})
	if err != nil {
		return fmt.Errorf("solving for the fewest devices: %w", err)
	}
	if sol.Feasible() {
		c := q.read(x.p, x.u, x.templates, sol)
		if c != nil && x.asGood(c, sum) && x.p.devices(x.templates, c) <= x.p.devices(x.templates, x.best) {
			x.best = c
		}
	}
	x.phase("fewest devices", len(x.allowed), sol.Stats)
	return nil
}

// sameValue is the part by which values differ that count as the same: what
// adding up rates in another order changes.
const sameValue = 1e-9

// asGood tells whether a plan reaches the best one's objective, and with sum
// its weighted sum of rates.
func (x *search) asGood(c *counts, sum bool) bool {
	return c.value >= x.best.value*(1-sameValue) && (!sum || c.sum >= x.best.sum*(1-sameValue))
}
