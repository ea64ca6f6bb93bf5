package flow

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// bound returns a bound of the objective of every plan that holds: at most so large a common
// factor of the rates, or at least such a price. It knows no waits: a request in time spends at
// most its SLO in batches, so the mean over all of them does, and batches of any sizes may mix.
// Modules of a share of 1 - attainment of the requests or less may be given up, and of the rates
// so much is in time. NaN: not known.
//
// It is a linear program over rates of levels: with f the rate of a module's choice at a level
// and F the factor, the times along a path sum to at most F times the SLO, and the devices of a
// level carry its rates. Prices count whole devices of each kind.
func (r *resolved) bound(ctx context.Context, solver milp.Solver, attainment float64) (float64, error) {
	p, rates := r.problem, r.objective != "throughput"
	m := milp.New("bound of applications")
	top := p.ceiling()
	if rates {
		top = 1
	}
	if !(top > 0) {
		return math.NaN(), nil
	}
	factor := m.AddVar("factor", 0, 1, 0)
	if rates {
		m.SetBounds(factor, attainment, attainment)
	} else {
		m.SetSense(milp.Maximize)
		m.SetObj(factor, 1)
	}
	carried := make([][]milp.Row, len(p.models)) // by model and level
	taken := make([]milp.Row, len(p.pools))
	for k := range p.pools {
		taken[k] = m.AddLE("devices "+p.pools[k].kind, float64(p.pools[k].count))
		if rates {
			m.SetRowBounds(taken[k], -milp.Inf, 0)
			m.AddTerm(taken[k], m.AddInt("whole devices", 0, float64(p.pools[k].count), p.pools[k].price), -1)
		}
	}
	for u := range p.models {
		for l := range p.models[u].levels {
			row := m.AddGE("capacity of "+p.models[u].name, 0)
			for k, t := range p.models[u].levels[l].best {
				if t.rate > 0 && p.pools[k].count > 0 {
					n := m.AddVar("devices", 0, float64(p.pools[k].count), 0)
					m.AddTerm(taken[k], n, 1)
					m.AddTerm(row, n, t.rate/top)
				}
			}
			carried[u] = append(carried[u], row)
		}
	}
	for a := range p.apps {
		app := &p.apps[a]
		times := make([][]milp.Term, len(app.nodes)) // in batches, by module
		var losses []milp.Term
		for i := range app.nodes {
			n := &app.nodes[i]
			all := m.AddEQ("rate of "+n.name, 0, milp.Term{Var: factor, Coef: -1})
			for c := range n.of {
				for l, level := range p.models[n.of[c].model].levels {
					f := m.AddVar("", 0, 1, 0)
					m.AddTerm(all, f, 1)
					m.AddTerm(carried[n.of[c].model][l], f, -n.chance*app.weight)
					times[i] = append(times[i], milp.Term{Var: f, Coef: level.most.Seconds()})
					losses = append(losses, milp.Term{Var: f, Coef: n.of[c].loss()})
				}
			}
		}
		for _, path := range app.paths {
			if app.rare(path, 1-attainment) {
				continue
			}
			row := m.AddLE("deadline of "+app.name, 0, milp.Term{Var: factor, Coef: -app.slo.Seconds()})
			for _, i := range path {
				for _, t := range times[i] {
					m.AddTerm(row, t.Var, t.Coef)
				}
			}
		}
		if app.floor > 0 {
			m.AddLE("accuracy of "+app.name, 1e-9, append(losses, milp.Term{Var: factor, Coef: math.Log(app.floor)})...)
		}
	}
	sol, err := solver.Solve(ctx, m, milp.Options{Gap: r.in.Values.Number("gap") / 4, Seed: int32(r.in.Seed % math.MaxInt32)})
	if err != nil {
		return math.NaN(), fmt.Errorf("bounding applications: %w", err)
	}
	switch {
	case sol.Status == milp.Infeasible || !sol.Feasible():
		return math.NaN(), nil
	case rates:
		return sol.Bound, nil
	}
	return sol.Bound * top * (1 + 1e-7) / attainment, nil
}

// bounded gives an outcome the bound of all plans, and says how near the outcome is to that one: a
// plan that is proven to be the best with its margin need not be the best of all.
func bounded(o *kind.Outcome, among string, asked float64, bound func() (float64, error)) error {
	b, err := bound()
	if err != nil {
		return err
	}
	o.Objective.Bound, o.Objective.Gap, o.Objective.BoundAmong = nil, nil, among
	distance := math.Inf(1)
	if !math.IsNaN(b) {
		distance = milp.RelativeGap(o.Sense, o.Objective.Value, b)
		o.Objective.Bound, o.Objective.Gap = &b, &distance
	}
	switch {
	case o.StoppedBy == milp.StoppedByInterrupt || distance <= proved:
	case distance <= asked:
		o.StoppedBy = milp.StoppedByGap
	default:
		o.StoppedBy = milp.StoppedByWork
	}
	return nil
}

// proved is the relative gap at which a value is its bound.
const proved = 1e-6

// rare returns whether a path may be of so small a share of the requests that all of them are
// given up.
func (a *app) rare(path []int, share float64) bool {
	for _, i := range path {
		if a.nodes[i].chance <= share+1e-12 {
			return true
		}
	}
	return false
}

// among names the plans that the bound is of; empty: it is of all.
func (r *resolved) among() string {
	for a := range r.problem.apps {
		for i := range r.problem.apps[a].nodes {
			if r.problem.apps[a].nodes[i].chance < 1 {
				return "whose batches do not depend on the way of a request"
			}
		}
	}
	return ""
}

// fluidBound is bound for workflows. Batches of any sizes may mix, and the requests that are
// given up are those that take longest. NaN: not known.
func (w *workflowProblem) fluidBound(ctx context.Context) (float64, error) {
	q := *w
	q.fluid = true
	q.apps = slices.Clone(w.apps)
	devices := 0.0
	counts := make([]int, len(w.pools))
	for k := range w.pools {
		counts[k] = w.pools[k].Count
		devices += float64(counts[k])
	}
	for i := range q.apps {
		a := &q.apps[i]
		a.margin = 0
		a.tasks, a.work = q.demand(a, a.visits)
	}
	b := &batching{&q}
	m, throughput := b.program(counts), w.objective == "throughput"
	switch {
	case len(counts) == 1:
	case throughput:
		time := m.AddVar("devices", 0, milp.Inf, 1)
		for k, n := range counts {
			b.busy(m, k, time, float64(n)/devices)
		}
	default:
		for k, n := range counts {
			b.busy(m, k, m.AddInt("devices of "+w.pools[k].Device, 0, float64(n), w.prices[k]), 1)
		}
	}
	sol, err := w.run.Solver.Solve(ctx, m.Model, milp.Options{Gap: w.gap / 4, Seed: w.seed})
	switch {
	case err != nil:
		return math.NaN(), fmt.Errorf("bounding workflows: %w", err)
	case !sol.Feasible() || sol.Bound <= 0:
		return math.NaN(), nil
	case throughput:
		return devices / sol.Bound * (1 + 1e-7), nil
	case len(counts) == 1:
		return math.Ceil(sol.Bound*(1-1e-7)) * w.prices[0], nil
	}
	return sol.Bound, nil
}

// among names the plans that the bound is of; empty: it is of all.
func (w *workflowProblem) among() string {
	switch {
	case len(w.llms) > 0:
		return "at the mean lengths of prompts and answers"
	case len(w.apps) > 1:
		return "with the same batches for all applications"
	}
	return ""
}
