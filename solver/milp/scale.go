package milp

import (
	"math"
	"slices"
)

// Scaling is a model with rows and continuous variables counted in other units,
// so that every coefficient is one that solvers take as it is. Units are powers
// of two: scaling changes no digit of a number, and neither does undoing it.
type Scaling struct {
	Model *Model
	of    *Model
	row   []int // row i of Model is that of the model times 2^row[i]
	col   []int // variable j of the model is that of Model times 2^col[j]
}

// Rows and columns are centred on 1 that have a coefficient below 2^-comfort or
// above 2^comfort.
const comfort = 20

// scalingPasses bounds how often columns and rows are scaled in turn.
const scalingPasses = 8

// Scaling returns the model in units that solvers take, nil where the model is
// fine as it is or no units would do. Only variables and rows with a coefficient
// far from 1 are touched; integer variables never are.
func (m *Model) Scaling() *Scaling {
	if m.inRange() {
		return nil
	}
	c := m.Columns()
	s := &Scaling{of: m, row: make([]int, len(m.rows)), col: make([]int, len(m.vars))}
	for range scalingPasses {
		if !s.pass(c) {
			break
		}
	}
	if s.Model = s.scaled(c); !s.Model.inRange() || !s.changed() || s.Model.Validate() != nil {
		return nil
	}
	return s
}

// taken tells whether solvers take a coefficient as it is.
func taken(v float64) bool {
	v = math.Abs(v)
	return v >= minCoef && v <= maxMagnitude
}

// pass scales the columns that need it, then the rows that still do. It tells
// whether there was one.
func (s *Scaling) pass(c Columns) (any bool) {
	for j := range s.col {
		var col span
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			col.add(c.Value[k], s.row[c.Index[k]]+s.col[j])
		}
		if !s.of.vars[j].integer && col.out {
			s.col[j] += col.shift()
			any = true
		}
	}
	rows := make([]span, len(s.row))
	for j := range s.col {
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			rows[c.Index[k]].add(c.Value[k], s.row[c.Index[k]]+s.col[j])
		}
	}
	for i := range rows {
		if rows[i].out {
			s.row[i] += rows[i].shift()
			any = true
		}
	}
	return any
}

// span is the range of the magnitudes of some coefficients.
type span struct {
	some, out bool
	min, max  int // exponents of two
}

func (s *span) add(v float64, exp int) {
	v = math.Ldexp(math.Abs(v), exp)
	_, e := math.Frexp(v)
	if !s.some {
		s.some, s.min, s.max = true, e, e
	}
	s.min, s.max = min(s.min, e), max(s.max, e)
	s.out = s.min < -comfort || s.max > comfort
}

// shift is the exponent that centres the coefficients on 1.
func (s *span) shift() int { return -(s.min + s.max) / 2 }

// changed tells whether anything was scaled.
func (s *Scaling) changed() bool {
	moved := func(exp int) bool { return exp != 0 }
	return slices.ContainsFunc(s.row, moved) || slices.ContainsFunc(s.col, moved)
}

// scaled is the model in the new units.
func (s *Scaling) scaled(c Columns) *Model {
	out := *s.of
	out.vars = slices.Clone(s.of.vars)
	out.rows = slices.Clone(s.of.rows)
	out.coefs = make([]coef, 0, len(c.Index))
	for j := range out.vars {
		v := &out.vars[j]
		v.name = s.of.VarName(Var(j))
		v.lo, v.hi, v.obj = math.Ldexp(v.lo, -s.col[j]), math.Ldexp(v.hi, -s.col[j]), math.Ldexp(v.obj, s.col[j])
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			i := c.Index[k]
			out.coefs = append(out.coefs, coef{row: i, col: int32(j), val: math.Ldexp(c.Value[k], s.row[i]+s.col[j])})
		}
	}
	for i := range out.rows {
		r := &out.rows[i]
		r.name = s.of.RowName(Row(i))
		r.lo, r.hi = math.Ldexp(r.lo, s.row[i]), math.Ldexp(r.hi, s.row[i])
	}
	return &out
}

// Options are options for a solve of the model as options for one of Model.
func (s *Scaling) Options(o Options) Options {
	if o.Start != nil {
		start := make([]float64, len(o.Start))
		for j, x := range o.Start {
			start[j] = math.Ldexp(x, -s.col[j])
		}
		o.Start = start
	}
	if told := o.Incumbent; told != nil {
		o.Incumbent = func(in Incumbent) {
			in.X = s.point(in.X)
			told(in)
		}
	}
	return o
}

// point is a point of Model as one of the model.
func (s *Scaling) point(x []float64) []float64 {
	out := make([]float64, len(x))
	for j := range x {
		out[j] = math.Ldexp(x[j], s.col[j])
	}
	return out
}

// Solution turns a solution of Model into one of the model: its point, duals and
// reduced costs. Value and bound are the same.
func (s *Scaling) Solution(sol *Solution) *Solution {
	out := *sol
	if sol.X != nil {
		out.X = s.point(sol.X)
		out.Feasibility = s.of.Check(out.X)
		out.Rounded = sol.Rounded && out.Feasibility.OK()
	}
	if sol.RowDuals != nil {
		out.RowDuals = make([]float64, len(sol.RowDuals))
		for i, v := range sol.RowDuals {
			out.RowDuals[i] = math.Ldexp(v, s.row[i])
		}
	}
	if sol.ReducedCosts != nil {
		out.ReducedCosts = make([]float64, len(sol.ReducedCosts))
		for j, v := range sol.ReducedCosts {
			out.ReducedCosts[j] = math.Ldexp(v, -s.col[j])
		}
	}
	return &out
}
