package pool

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// latencySlack bounds the part of the objective that reduceLatency may give up, whatever gap was asked for.
const latencySlack = 1e-2

// reduceLatency looks, if all pools are time-shared, for the plan of least latency among those within the gap
// that the user accepts. If models take turns, a long batch costs every model waiting time that the program does
// not see: a last per cent of capacity is not worth twice the latency. On exclusive pools whole devices decide,
// and the plan stays as it is.
func (x *polish) leastLatency(ctx context.Context) error {
	slack := min(x.o.Gap, latencySlack)
	if slack <= 0 || ctx.Err() != nil || slices.ContainsFunc(x.Pools, func(p stages.Pool) bool { return !p.Time }) {
		return nil
	}
	// The first program minimises the time in service per unit of θ.
	floor := x.proven() * (1 - 0.999*slack)
	if floor > x.value() {
		return nil
	}
	l := x.master(nil, x.allowed, -1, true)
	l.m.SetSense(milp.Minimize)
	l.m.SetObj(l.theta, 0)
	l.m.SetBounds(l.theta, floor, milp.Inf)
	for i, ti := range x.allowed {
		t := &x.templates[ti]
		// A batch delays the others on its devices for as long as it lasts.
		l.m.SetObj(l.x[i], t.Latency.Seconds())
	}
	sol, err := x.s.Solve(ctx, l.m, milp.Options{})
	if err != nil {
		return fmt.Errorf("solving for the least latency: %w", err)
	}
	if sol.Status != milp.Optimal {
		return nil // the plan stands as it is
	}

	// Its templates.
	var used []int
	for i, ti := range x.allowed {
		if sol.At(l.x[i]) > 1e-9 {
			used = append(used, ti)
		}
	}
	// The second program maximises what those templates carry.
	r, err := x.relax(ctx, x.s, nil, used, -1)
	if err != nil {
		return fmt.Errorf("solving for the rates of the least latency: %w", err)
	}
	list := make([]count, len(r.used))
	for i, ti := range r.used {
		t := &x.templates[ti]
		list[i] = count{template: ti, model: t.Model, rps: r.rate[i] * x.u.rps[t.Model], replicas: make([]int, len(t.Stages))}
	}
	if c := x.recount(list); c != nil && c.value >= x.theta(floor)*(1-1e-9) && x.inService(c) < x.inService(x.best) {
		x.best = c
		if x.gap() > proof {
			x.stopped = milp.StoppedByGap
		}
	}
	x.phase("least latency", len(x.allowed), sol.Stats)
	return nil
}

// meanLatency returns the mean latency of a plan's requests, weighted by rate.
func (x *polish) inService(c *counts) float64 {
	sum, rps := 0.0, 0.0
	for _, t := range c.list {
		sum += t.rps * x.templates[t.template].Latency.Seconds()
		rps += t.rps
	}
	if rps == 0 {
		return math.Inf(1)
	}
	return sum / rps
}

// shortenPipelines replaces, on exclusive pools, pipelines of the plan by others of less latency on the same
// kinds that carry the same rate, if idle devices allow it: mostly whole devices in place of shares. These serve
// no more requests, but leave each batch more of its SLO to wait in. The pipelines of the highest rates choose
// first. No rate falls, so the objective and its proof stay. A plan that continues a running one keeps its
// pipelines.
func (x *polish) shorten(ctx context.Context) {
	if x.stay != nil {
		return
	}

	// The templates of each model by rising latency.
	byModel := make([][]int, len(x.Models))
	for _, ti := range x.allowed {
		byModel[x.templates[ti].Model] = append(byModel[x.templates[ti].Model], ti)
	}
	for _, byLatency := range byModel {
		slices.SortStableFunc(byLatency, func(a, b int) int { return cmp.Compare(x.templates[a].Latency, x.templates[b].Latency) })
	}

	// The pipelines by falling rate.
	order := make([]int, len(x.best.list))
	for ci := range order {
		order[ci] = ci
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x.best.list[b].rps, x.best.list[a].rps) })

	// Replace each by the fastest template that fits.
	for _, ci := range order {
		now := &x.templates[x.best.list[ci].template]
		if ctx.Err() != nil || slices.ContainsFunc(now.Stages, func(s stages.Stage) bool { return x.Pools[s.Pool].Time }) {
			continue
		}
		for _, ti := range byModel[now.Model] {
			t := &x.templates[ti]
			if t.Latency >= now.Latency {
				break
			}
			if t.Batch != now.Batch || !slices.EqualFunc(t.Stages, now.Stages, func(a, b stages.Stage) bool { return a.Pool == b.Pool }) {
				continue
			}
			list := slices.Clone(x.best.list)
			list[ci] = carry(t, ti, list[ci].rps)
			plan := x.recount(list)
			if plan == nil || len(plan.list) < len(list) || plan.value < x.best.value || x.slower(plan) {
				continue
			}
			if x.stuck(plan) < 0 {
				x.best = plan
				break
			}
		}
	}
}

// lowersAnyRate reports whether a plan gives some model less than the best plan does.
func (x *polish) slower(plan *counts) bool {
	for d := range plan.rps {
		if plan.rps[d] < x.best.rps[d]*(1-1e-12) {
			return true
		}
	}
	return false
}
