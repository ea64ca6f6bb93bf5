package milp

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// Side says which limit of a row or variable is meant.
type Side int8

// The sides.
const (
	Lower Side = iota
	Upper
)

func (s Side) String() string {
	if s == Upper {
		return "<="
	}
	return ">="
}

// Limit is one side of one row or variable.
type Limit struct {
	IsVar bool
	Index int // of the row, or of the variable
	Side  Side
	Name  string
	Value float64 // the limit
}

func (l Limit) String() string {
	what := "row"
	if l.IsVar {
		what = "variable"
	}
	return fmt.Sprintf("%s %s %s %v", what, l.Name, l.Side, l.Value)
}

// limits lists the finite sides of rows, then of variables; an equation is listed as its two sides.
func (m *Model) limits() []Limit {
	var out []Limit
	add := func(isVar bool, i int, name string, lo, hi float64) {
		if !math.IsInf(lo, 0) {
			out = append(out, Limit{IsVar: isVar, Index: i, Side: Lower, Name: name, Value: lo})
		}
		if !math.IsInf(hi, 0) {
			out = append(out, Limit{IsVar: isVar, Index: i, Side: Upper, Name: name, Value: hi})
		}
	}
	for i := range m.rows {
		add(false, i, m.RowName(Row(i)), m.rows[i].lo, m.rows[i].hi)
	}
	for j := range m.vars {
		add(true, j, m.VarName(Var(j)), m.vars[j].lo, m.vars[j].hi)
	}
	return out
}

// Violated is a limit and by how much a point goes beyond it.
type Violated struct {
	Limit
	Amount float64
}

// Relaxation is the cheapest way to make a model feasible.
type Relaxation struct {
	Cost     float64    // sum of weight * amount
	Violated []Violated // what must give, rows first, in the model's order
	X        []float64
	Status   Status // Optimal, or the limit that stopped the search: then a way, perhaps not the cheapest
}

// Relax finds the smallest weighted violation of m's limits: what must give, and by how much, for a solution to
// exist. weight gives the price of violating a limit by one unit; 0 or less means that the limit is hard. A nil
// weight prices every row's side 1 and keeps variables' bounds hard. It returns a nil Relaxation where the hard limits
// alone exclude each other.
func Relax(ctx context.Context, s Solver, m *Model, o Options, weight func(Limit) float64) (*Relaxation, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if weight == nil {
		weight = func(l Limit) float64 {
			if l.IsVar {
				return 0
			}
			return 1
		}
	}
	e := newElastic(m, m.limits(), weight)
	sol, err := s.Solve(ctx, e.model, o.limitsOnly())
	if err != nil {
		return nil, fmt.Errorf("relaxing %q: %w", m.Name, err)
	}
	if sol.Status == Infeasible {
		return nil, nil
	}
	if !sol.Feasible() {
		return nil, fmt.Errorf("relaxing %q: stopped (%v) before a solution was found", m.Name, sol.Status)
	}
	out := &Relaxation{Cost: sol.Value, X: sol.X[:len(m.vars)], Status: sol.Status}
	for k, l := range e.limits {
		if a := e.amount(sol.X, k); a > 0 {
			out.Violated = append(out.Violated, Violated{Limit: l, Amount: a})
		}
	}
	return out, nil
}

// limitsOnly keeps the options that a derived solve should share: limits and seed, not starts or callbacks.
func (o Options) limitsOnly() Options {
	return Options{MaxNodes: o.MaxNodes, MaxIterations: o.MaxIterations, TimeLimit: o.TimeLimit, Seed: o.Seed, Gap: o.Gap, AbsGap: o.AbsGap}
}

// elastic is a model in which some limits may be violated at a price: each has a slack variable, and the
// objective is to pay least. Variables' own limits become rows, so that all sides are treated alike.
type elastic struct {
	model  *Model
	limits []Limit
	slack  []Var // per limit; -1: hard
}

func newElastic(m *Model, limits []Limit, weight func(Limit) float64) *elastic {
	c := m.Clone()
	c.Name = m.Name + " (elastic)"
	c.sense, c.offset = Minimize, 0
	for j := range c.vars {
		c.vars[j].obj = 0
	}
	e := &elastic{model: c, limits: limits, slack: make([]Var, len(limits))}
	for k, l := range limits {
		e.slack[k] = -1
		w := weight(l)
		if !(w > 0) {
			continue
		}
		sign := 1.0
		if l.Side == Upper {
			sign = -1
		}
		s := c.AddVar("slack "+l.String(), 0, Inf, w)
		e.slack[k] = s
		if !l.IsVar {
			c.AddTerm(Row(l.Index), s, sign)
			continue
		}
		lo, hi := -Inf, Inf
		if l.Side == Lower {
			lo, c.vars[l.Index].lo = l.Value, -Inf
		} else {
			hi, c.vars[l.Index].hi = l.Value, Inf
		}
		c.AddRow("bound "+l.String(), lo, hi, Term{Var(l.Index), 1}, Term{s, sign})
	}
	return e
}

// amount returns by how much limit k is violated at x; what is below the tolerance is noise.
func (e *elastic) amount(x []float64, k int) float64 {
	if e.slack[k] < 0 {
		return 0
	}
	a := x[e.slack[k]]
	if a <= Tolerance*max(1, math.Abs(e.limits[k].Value)) {
		return 0
	}
	return a
}

// harden makes limit k hard again.
func (e *elastic) harden(k int) {
	s := e.slack[k]
	e.slack[k] = -1
	e.model.vars[s].hi = 0
	e.model.vars[s].obj = 0
}

var errNotInfeasible = errors.New("the model is feasible: nothing is in conflict")
