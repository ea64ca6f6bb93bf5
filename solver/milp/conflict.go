package milp

import (
	"context"
	"fmt"
	"slices"
)

// FindConflict explains an infeasible model: limits of its rows that exclude each other, in the model's order. An
// equation appears with the side, or both, that takes part. They are minimal if without any one of them the others
// have a solution; the end of the context may leave more. Integrality and the bounds of variables are given.
//
// First the elastic filter: every limit may be violated at a price; what the cheapest solution violates is made hard,
// until there is no solution: some of what was made hard is in conflict. (Chinneck and Dravnieks, Locating minimal
// infeasible constraint sets in linear programs, ORSA Journal on Computing 3, 1991.) Then the deletion filter: each
// of those is left out in turn, and for good where the rest is still infeasible.
//
// It is an error to ask about a model that is feasible.
func FindConflict(ctx context.Context, s Solver, m *Model) (limits []Limit, minimal bool, err error) {
	if err := m.Validate(); err != nil {
		return nil, false, err
	}
	soft := rowLimits(m)
	f := &filter{ctx: ctx, solver: s, model: m}
	found, err := f.elastic(soft)
	if err == nil {
		minimal, err = f.delete(soft, found)
	}
	if err != nil {
		return nil, false, fmt.Errorf("explaining why %q has no solution: %w", m.Name, err)
	}
	for k, in := range found {
		if in {
			limits = append(limits, soft[k])
		}
	}
	return limits, minimal, nil
}

type filter struct {
	ctx    context.Context
	solver Solver
	model  *Model
}

func (f *filter) solve(m *Model) (*Solution, error) { return f.solver.Solve(f.ctx, m, Options{}) }

// elastic returns which of the soft limits hold a conflict.
func (f *filter) elastic(soft []Limit) ([]bool, error) {
	found := make([]bool, len(soft))
	e := newElastic(f.model, soft)
	for {
		sol, err := f.solve(e.model)
		if err != nil {
			return nil, err
		}
		if sol.Status == Infeasible {
			return found, nil
		}
		if !sol.Feasible() {
			return f.stopped(soft, sol.Status)
		}
		hardened := false
		for k := range soft {
			if e.amount(sol.X, k) > 0 {
				e.harden(k)
				found[k], hardened = true, true
			}
		}
		if hardened {
			continue
		}
		if sol.Status != Optimal {
			return f.stopped(soft, sol.Status)
		}
		// Nothing is violated: the model has a solution to within the tolerance. Ask the model itself.
		own, err := f.solve(f.withoutObjective(f.model))
		if err != nil {
			return nil, err
		}
		if own.Status != Infeasible {
			return nil, errNotInfeasible
		}
		// The solver's tolerances hide the conflict from the elastic model: leave it to the deletion filter.
		return slices.Repeat([]bool{true}, len(soft)), nil
	}
}

// stopped is the way out when a limit ended an elastic solve: all of it, if it is known to be infeasible.
func (f *filter) stopped(soft []Limit, why Status) ([]bool, error) {
	own, err := f.solve(f.withoutObjective(f.model))
	if err != nil {
		return nil, err
	}
	switch {
	case own.Status == Infeasible:
		return slices.Repeat([]bool{true}, len(soft)), nil
	case own.Feasible():
		return nil, errNotInfeasible
	}
	return nil, fmt.Errorf("stopped (%v) before a conflict was found", why)
}

// delete leaves out of found each limit without which the rest is still infeasible. It reports whether every one
// was tried to the end.
func (f *filter) delete(soft []Limit, found []bool) (minimal bool, err error) {
	m := f.withoutObjective(f.model)
	for k, in := range found {
		if !in {
			soft[k].dropFrom(m)
		}
	}
	minimal = true
	for k, in := range found {
		if !in {
			continue
		}
		trial := m.Clone()
		soft[k].dropFrom(trial)
		sol, err := f.solve(trial)
		if err != nil {
			return false, err
		}
		switch {
		case sol.Status == Infeasible:
			found[k], m = false, trial
		case sol.Feasible() || sol.Status == Unbounded:
		default:
			minimal = false // not known: keep it
		}
	}
	return minimal, nil
}

func (f *filter) withoutObjective(m *Model) *Model {
	c := m.Clone()
	c.Name = m.Name + " (feasibility)"
	for j := range c.vars {
		c.vars[j].obj = 0
	}
	return c
}

// dropFrom takes a limit out of a model.
func (l Limit) dropFrom(m *Model) {
	if l.Side == Lower {
		m.rows[l.Row].lo = -Inf
	} else {
		m.rows[l.Row].hi = Inf
	}
}
