package milp

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Conflict is a set of limits that exclude each other.
type Conflict struct {
	// Limits, rows first, in the model's order. An equation appears with the side, or both, that takes part.
	Limits []Limit
	// Minimal says that without any one of the limits the others (and the hard ones) have a solution. It is false
	// where a limit on work, time or the context stopped the search: then the set is a conflict, perhaps not a smallest.
	Minimal bool
	// Stats sums the work over the solves.
	Stats  Stats
	Solves int
}

func (c *Conflict) String() string {
	var b strings.Builder
	for i, l := range c.Limits {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(l.String())
	}
	return b.String()
}

// ConflictOptions steer FindConflict.
type ConflictOptions struct {
	// Hard says which limits are given and never named, such as the sign of a variable or a definition; nil
	// names rows only, and takes variables' bounds as given.
	Hard func(Limit) bool
	// Solve holds the limits of each solve.
	Solve Options
}

// FindConflict explains an infeasible model: a set of its limits that exclude each other, minimal where the work
// allows. Integrality is always given.
//
// First the elastic filter: every limit may be violated at a price; what the cheapest solution violates is made hard,
// until there is no solution: some of what was made hard is in conflict. (Chinneck and Dravnieks, Locating minimal
// infeasible constraint sets in linear programs, ORSA Journal on Computing 3, 1991.) Then the deletion filter: each
// of those is left out in turn, and for good where the rest is still infeasible.
//
// It is an error to ask about a model that is feasible.
func FindConflict(ctx context.Context, s Solver, m *Model, o ConflictOptions) (*Conflict, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	hard := o.Hard
	if hard == nil {
		hard = func(l Limit) bool { return l.IsVar }
	}
	var soft []Limit
	for _, l := range limits(m) {
		if !hard(l) {
			soft = append(soft, l)
		}
	}
	f := &filter{ctx: ctx, solver: s, model: m, opts: o.Solve.limitsOnly()}
	f.opts.Gap, f.opts.AbsGap = 0, 0
	found, err := f.elastic(soft)
	if err != nil {
		return nil, fmt.Errorf("explaining why %q has no solution: %w", m.Name, err)
	}
	minimal, err := f.delete(soft, found)
	if err != nil {
		return nil, fmt.Errorf("explaining why %q has no solution: %w", m.Name, err)
	}
	c := &Conflict{Minimal: minimal, Stats: f.stats, Solves: f.solves}
	for k, in := range found {
		if in {
			c.Limits = append(c.Limits, soft[k])
		}
	}
	return c, nil
}

type filter struct {
	ctx    context.Context
	solver Solver
	model  *Model
	opts   Options
	stats  Stats
	solves int
}

func (f *filter) solve(m *Model) (*Solution, error) {
	sol, err := f.solver.Solve(f.ctx, m, f.opts)
	if err != nil {
		return nil, err
	}
	f.solves++
	f.stats.Add(sol.Stats)
	return sol, nil
}

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
	var lo, hi *float64
	if l.IsVar {
		lo, hi = &m.vars[l.Index].lo, &m.vars[l.Index].hi
	} else {
		lo, hi = &m.rows[l.Index].lo, &m.rows[l.Index].hi
	}
	if l.Side == Lower {
		*lo = -Inf
	} else {
		*hi = Inf
	}
}
