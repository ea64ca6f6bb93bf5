package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// planImprover runs the phases that improve the best plan of a search, and its bound, over the templates of the
// wait choice under work.
type phases struct{ *search }

// improvePlan runs one phase after another until the gap closes or the work is done.
func (x *phases) plan(ctx context.Context) error {
	// The plan that runs, if there is one, is the first incumbent.
	basis := slices.Clone(x.lp.used)
	if x.stay != nil {
		x.keep(x.recount(x.stay.list))
		x.phase("what runs", len(x.stay.list), milp.Stats{})
		if x.best != nil && x.value() > 0 && x.done(ctx) {
			return nil
		}
		basis = with(basis, x.stay.list)
	}

	// The rates of the relaxation, scaled down until their replicas fit, are the next.
	if x.shrink(); x.best != nil {
		x.phase("rounding", len(basis), milp.Stats{})
		if x.done(ctx) {
			return nil
		}
	}

	// If memory is tight, the relaxation may give no plan: start from one pipeline of every model.
	if x.value() == 0 && slices.Contains(x.tightMemory(x.allowed), true) {
		set, none, err := x.serving(ctx)
		if err != nil {
			return err
		}
		if none {
			x.inner = x.score()
			return nil
		}
		basis = with(append(basis, set...))
	}

	// If not even one replica of everything fits, there is no plan.
	if x.value() == 0 && !x.partial && slices.ContainsFunc((&diagnosis{x.search}).missing(ctx), func(n int) bool { return n > 0 }) {
		x.inner = x.score()
		return nil // not even one replica of everything fits
	}

	// With many models, bundles; else integer programs over few templates.
	if x.many() && x.best != nil {
		if err := x.bundles(ctx); err != nil {
			return err
		}
		if x.done(ctx) || x.partial {
			return nil // the programs that follow are too large for what is left
		}
	} else if done, err := x.few(ctx, basis); done || err != nil {
		return err
	}
	return x.wide(ctx, basis)
}

// nodeDivisor returns the divisor of the nodes: above 1 if a plan is wanted soon.
func (x *phases) hurry() int64 {
	switch {
	case x.stay != nil:
		return stayHurry
	case x.o.Hurry:
		return soonHurry
	}
	return 1
}

// solveSmallPrograms runs the phases that need few templates: the program over the basis, the bound of whole
// devices per model, and sums of losses. stop reports that the search may stop.
func (x *phases) few(ctx context.Context, basis []int) (done bool, err error) {
	if _, err := x.integer(ctx, "basis", basis, basisNodes/x.hurry()); err != nil || x.done(ctx) {
		return true, err
	}
	if err := x.rescue(ctx); err != nil || x.hopeless() || x.done(ctx) {
		return true, err
	}
	if err := x.wholePerModel(ctx); err != nil || x.done(ctx) {
		return true, err
	}
	x.losses(lossWork)
	return x.done(ctx), nil
}

// solveLargePrograms runs the program over some templates of every model, and the one over all templates that a
// better plan may use.
func (x *phases) wide(ctx context.Context, basis []int) error {
	ranked := x.ranked()
	small := x.pick(ranked, basis, x.perModel())
	solved, err := x.integer(ctx, "pool", small, poolNodes/x.hurry())
	if err != nil || x.done(ctx) || x.o.Hurry {
		return err
	}
	// The plan is better now, so the sums of losses have less to look at.
	if x.losses(lossMore * lossWork); x.done(ctx) {
		return nil
	}
	if x.stay != nil && x.o.Effort == 1 {
		return nil // a re-plan is wanted soon: its proof only with more effort
	}
	// The templates that a better plan may use: no other one can be in it.
	var survivors []int
	for _, i := range ranked {
		if x.loss[i] < x.lp.bound-x.score() {
			survivors = append(survivors, i)
		}
	}
	if solved && subset(survivors, small) {
		return nil
	}
	if len(survivors) > maxSurvivors*x.o.Effort {
		survivors = x.pick(ranked, basis, widePerModel*x.o.Effort)
	}
	_, err = x.integer(ctx, "survivors", survivors, survivorNodes)
	x.done(ctx)
	return err
}

// roundingSteps is the number of halvings by which roundRelaxation looks for its factor.
const shrinkSteps = 24

// roundRelaxation makes a plan of the relaxation: all its rates times the largest factor for which the replicas,
// rounded up, fit the devices. For the least price, which asks for fixed rates, the factor is 1. On large
// clusters the plan is close to the bound at once. Elsewhere it is a start.
func (x *phases) shrink() {
	if x.timed() {
		return
	}

	// planAt returns the plan of the rates times a factor, or nil if it does not fit.
	at := func(f float64) *counts {
		list := make([]count, len(x.lp.used))
		for i, ti := range x.lp.used {
			t := &x.templates[ti]
			list[i] = carry(t, ti, f*x.lp.rate[i]*x.u.rps[t.Model])
		}
		return x.recount(list)
	}
	if x.goal.cost() != nil {
		x.keep(at(1))
		return
	}

	// Bisect the factor.
	lo, hi := 0.0, 1.0
	var most *counts
	for range shrinkSteps {
		mid := (lo + hi) / 2
		if c := at(mid); c != nil {
			lo = mid
			if c.value > 0 && (most == nil || c.value > most.value) {
				most = c
			}
		} else {
			hi = mid
		}
	}
	x.keep(most)
}

// solveInteger solves the integer program over a set of templates and those of the best plan. It keeps a better
// plan, and lowers the bound by what the program proves: a plan that uses a template outside the set loses at
// least that template's loss. solved reports whether the program was solved to its gap.
func (x *phases) integer(ctx context.Context, name string, set []int, nodes int64) (solved bool, err error) {
	// The best plan is no start if it breaks the wait choice under work.
	started := x.best != nil && !slices.ContainsFunc(x.best.list, func(c count) bool { return math.IsInf(x.loss[c.template], 1) })
	if started {
		set = with(set, x.best.list)
	} else {
		set = with(set)
	}

	// Build the program, with the limit on moves if a plan runs.
	bound := x.lp.bound
	if x.o.Hurry {
		bound = min(bound, x.inner) // the program then proves less and finds plans sooner
	}
	q := x.goal.program(x.catalogue, set, bound)
	if x.stay != nil {
		q.limitMoves(x.stay, x.stay.most)
	}

	// Limits of the solve, and the start.
	o := x.work(nodes)
	o.Gap, o.HeuristicEffort = max(x.o.Gap/2, proof), heuristicEffort
	if x.o.Hurry {
		o.MaxStall = stallNodes
	}
	o.MaxIterations = min(o.MaxIterations, columnsWork/int64(q.m.NumVars())*int64(x.o.Effort))
	if started {
		o.Start = q.start(x.best)
	}
	if x.o.Enough > 0 {
		o.Enough = x.o.Enough / x.u.theta * (1 + tolerance)
	}
	if x.o.Progress != nil {
		o.Incumbent = func(in milp.Incumbent) {
			// The solver's own figures, for the progress line. The plan's are recomputed later.
			if x.best == nil || in.Value > x.score() {
				x.o.Progress(Progress{Phase: name, Value: x.shown(in.Value), Bound: x.shown(x.proven()), Incumbent: true})
			}
		}
	}

	// Solve.
	sol, err := x.s.Solve(ctx, q.m, o)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(set), err)
	}
	if sol.Feasible() {
		x.keep(q.read(sol))
	}

	// The bound of plans within the set.
	var upper float64
	switch sol.Status {
	case milp.Optimal, milp.Gap:
		upper, solved = sol.Bound, true
	case milp.Infeasible:
		upper, solved = x.goal.none(), true
	default:
		upper = sol.Bound
	}
	if math.IsNaN(upper) {
		upper = math.Inf(1) // the solver has no bound: the program proves nothing
	}

	// The bound of plans that use a template outside the set.
	outside := math.Inf(1)
	if x.partial {
		outside = 0 // templates that were not generated may lose nothing
	}
	for _, i := range x.allowed {
		if _, ok := slices.BinarySearch(set, i); !ok {
			outside = min(outside, x.loss[i])
		}
	}
	if x.stay != nil && x.stay.tries > 0 {
		upper = x.inner // the program was over plans that move less than asked
	}
	x.inner = max(min(x.inner, max(upper, x.lp.bound-outside)), x.score())
	x.phase(name, len(set), sol.Stats)
	return solved, nil
}
