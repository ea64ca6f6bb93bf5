package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// NP plans without partitioning: every model whole, on whole devices. Of the
// plans with the best objective it takes one with the fewest devices (PPipe's
// baseline; there is no second stage that spends idle devices).
func NP(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
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
	if err := x.served(ctx); err != nil {
		return nil, err
	}
	if err := x.fewest(ctx); err != nil {
		return nil, err
	}
	return x.finish(ctx)
}

// fewest looks, among the plans of the best objective, for one that takes the
// fewest devices.
func (x *search) fewest(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	q := x.p.mip(x.u, x.templates, x.allowed, x.value(), x.value()*(1-1e-9))
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
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
		if c != nil && c.value >= x.best.value*(1-1e-9) && x.p.devices(x.templates, c) <= x.p.devices(x.templates, x.best) {
			x.best = c
		}
	}
	x.phase("fewest devices", len(x.allowed), sol.Stats)
	return nil
}
