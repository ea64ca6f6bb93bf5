package pool

import (
	"context"
	"fmt"

	"inferplan/solver/milp"
)

// planPolisher improves the best plan of a search by secondary criteria, at the objective that it has reached:
// few devices that move, a large weighted sum of rates, few devices, little latency.
type polish struct{ *search }

// polishThroughput polishes a plan of the most throughput.
func (x *polish) all(ctx context.Context) error {
	if err := x.fewestMoves(ctx); err != nil {
		return err
	}
	if err := x.largestSum(ctx); err != nil {
		return err
	}
	if err := x.leastLatency(ctx); err != nil {
		return err
	}
	x.shorten(ctx)
	return nil
}

// solveFromBest solves a program, with the best plan as its start. If it finds no plan, the plan is nil.
func (x *polish) solve(ctx context.Context, q *program, o milp.Options, what string) (*counts, milp.Stats, error) {
	o.Start = q.start(x.best)
	sol, err := x.s.Solve(ctx, q.m, o)
	if err != nil {
		return nil, milp.Stats{}, fmt.Errorf("solving for %s: %w", what, err)
	}
	if !sol.Feasible() {
		return nil, sol.Stats, nil
	}
	return q.read(sol), sol.Stats, nil
}

// valueTolerance is the relative difference up to which values count as equal: adding up rates in another order
// changes them by so much.
const sameValue = 1e-9

// sameValueProgram returns the program of the plans over a set of templates that reach the best objective.
func (x *polish) same(set []int) *program {
	return x.program(set, x.value(), x.value()*(1-sameValue))
}

// fewestMoves looks, among the plans that are good enough, for one that moves few devices.
func (x *polish) fewestMoves(ctx context.Context) error {
	if x.stay == nil || x.many() || ctx.Err() != nil {
		return nil
	}
	now := x.stay.moved(x.best.list)
	if now == 0 || x.stays(ctx) {
		return nil
	}

	// A program over the small set of templates that minimises the moves.
	enough := min(x.value(), x.proven()*(1-x.o.Gap)) * (1 - 1e-9)
	q := x.program(with(x.pick(x.ranked(), x.lp.used, x.perModel()), x.best.list, x.stay.list), max(x.inner, enough), enough)
	q.limitMoves(x.stay, now)
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
	q.m.SetObj(q.moved, 1)
	o := x.work(moveNodes)
	o.AbsGap = 0.5
	best, stats, err := x.solve(ctx, q, o, "the fewest devices that move")
	if err != nil {
		return err
	}
	if best != nil && best.value >= x.theta(enough)*(1-1e-9) && x.stay.moved(best.list) < now && x.stuck(best) < 0 {
		x.best = best
	}
	x.phase("fewest moves", len(q.set), stats)
	return nil
}

// preferRunning goes back to the running plan if a better plan is better by less than the gap, and sums of
// losses prove that the running one is good enough as well. It reports whether it did.
func (x *polish) stays(ctx context.Context) bool {
	run, found := x.recount(x.stay.list), x.best
	if x.stopped == milp.StoppedByWork || run == nil || run.value < found.value*(1-x.o.Gap) || !x.fits(run) {
		return false
	}
	x.best = run
	(&phases{x.search}).losses(lossWork)
	good := x.goal.gap(x.goal.score(x.catalogue, run), x.proven()) <= x.o.Gap
	if x.keep(found); good {
		x.best = run
	}
	x.done(ctx)
	return good
}

// largestSum looks, among the plans of the best objective, for the one with the largest weighted sum of rates,
// so that no model is left with needless slack.
func (x *polish) largestSum(ctx context.Context) error {
	if len(x.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	q := x.same(with(x.pick(x.ranked(), x.lp.used, x.perModel()), x.best.list))
	if x.partial || x.many() || x.stay != nil || x.o.Hurry {
		q.pin(x.best) // the plan stays as it is: only its idle devices are used
	}
	if x.stay != nil {
		q.limitMoves(x.stay, x.stay.moved(x.best.list))
	}
	return x.mostSum(ctx, q, 1e-3, sumNodes)
}

// largestSumOver looks, among the plans of the best objective over a set of templates, for the one with the
// largest weighted sum of rates.
func (x *polish) sumOver(ctx context.Context, set []int, gap float64, nodes int64) error {
	if len(x.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	return x.mostSum(ctx, x.same(set), gap, nodes)
}

// solveLargestSum solves a program for the largest weighted sum of rates. A plan with a larger sum than the best
// one replaces it.
func (x *polish) mostSum(ctx context.Context, q *program, gap float64, nodes int64) error {
	q.m.SetObj(q.theta, 0)
	parts, _ := q.sum()
	for _, t := range parts {
		q.m.SetObj(t.Var, t.Coef)
	}
	q.countPerModel()
	o := x.work(nodes)
	o.Gap = gap
	c, stats, err := x.solve(ctx, q, o, "the largest weighted sum")
	if err != nil {
		return err
	}
	if c != nil && c.value >= x.best.value*(1-1e-12) && c.sum > x.best.sum && x.fits(c) {
		x.best = c
	}
	x.phase("weighted sum", len(q.set), stats)
	return nil
}

// weightedSumTerms returns the weighted sum of rates as terms of a program, in parts of total: what one unit of
// every model's rate gives.
func (q *program) sum() (parts []milp.Term, total float64) {
	for d := range q.Models {
		total += q.Models[d].Weight * q.u.rps[d]
	}
	for i, ti := range q.set {
		d := q.templates[ti].Model
		parts = append(parts, milp.Term{Var: q.x[i], Coef: q.Models[d].Weight * q.u.rps[d] / total})
	}
	return parts, total
}

// fewestDevices looks, among the plans of the best objective, for one that takes the fewest devices. With
// keepSum the weighted sum of rates may not become smaller.
func (x *polish) fewest(ctx context.Context, sum bool) error {
	if ctx.Err() != nil {
		return nil
	}

	// The program of the plans of the best objective, and of no smaller sum.
	q := x.same(x.allowed)
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
	if sum {
		parts, total := q.sum()
		q.m.AddGE("weighted sum", x.best.sum/total*(1-sameValue), parts...)
	}

	// Each replica costs its part of a device.
	for i, ti := range x.allowed {
		for si, v := range q.g[i] {
			if v >= 0 {
				q.m.SetObj(v, 1/float64(x.templates[ti].Stages[si].Share))
			}
		}
	}
	o := x.work(survivorNodes)
	o.MaxIterations = 0
	c, stats, err := x.solve(ctx, q, o, "the fewest devices")
	if err != nil {
		return err
	}
	if c != nil && x.asGood(c, sum) && x.exclusive(c) <= x.exclusive(x.best) {
		x.best = c
	}
	x.phase("fewest devices", len(x.allowed), stats)
	return nil
}

// isAsGood reports whether a plan reaches the best plan's objective and, with keepSum, its weighted sum of
// rates.
func (x *polish) asGood(c *counts, sum bool) bool {
	return c.value >= x.best.value*(1-sameValue) && (!sum || c.sum >= x.best.sum*(1-sameValue))
}
