package milp

import (
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

// limits lists the finite sides of a model's rows, then of its variables; an equation is listed as its two sides.
func limits(m *Model) []Limit {
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

// limitsOnly keeps the options that a derived solve should share: limits and seed, not starts or callbacks.
func (o Options) limitsOnly() Options {
	return Options{MaxNodes: o.MaxNodes, MaxIterations: o.MaxIterations, TimeLimit: o.TimeLimit, Seed: o.Seed, Gap: o.Gap, AbsGap: o.AbsGap}
}

// elastic is a model in which some limits may be violated, each at a price of 1 per unit: each has a slack variable, and the
// objective is to pay least. Variables' own limits become rows, so that all sides are treated alike.
type elastic struct {
	model  *Model
	limits []Limit
	slack  []Var // per limit; -1: hard
}

func newElastic(m *Model, limits []Limit) *elastic {
	c := m.Clone()
	c.Name = m.Name + " (elastic)"
	c.sense, c.offset = Minimize, 0
	for j := range c.vars {
		c.vars[j].obj = 0
	}
	e := &elastic{model: c, limits: limits, slack: make([]Var, len(limits))}
	for k, l := range limits {
		sign := 1.0
		if l.Side == Upper {
			sign = -1
		}
		s := c.AddVar("slack "+l.String(), 0, Inf, 1)
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
