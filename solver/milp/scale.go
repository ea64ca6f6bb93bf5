package milp

import (
	"math"
	"slices"
)

// Scaling is a model whose rows and continuous variables have other units, so that solvers accept every
// coefficient as it is. Units are powers of two, so scaling and undoing it are exact.
type Scaling struct {
	Model *Model // in the new units
	of    *Model
	row   []int // row i of Model is the original row times 2^rowExponents[i]
	col   []int // variable j of the original is that of Model times 2^columnExponents[j]
}

// maxExponent decides which rows and columns are scaled: those with a coefficient below 2^-maxExponent or above
// 2^maxExponent. Their coefficients are centred on 1.
const comfort = 20

// scalingPasses limits how often columns and rows are scaled in turn.
const scalingPasses = 8

// Scaling returns the model in units that solvers accept. It returns nil if the model needs no scaling, or if no
// units help. Only rows and variables with a coefficient far from 1 are scaled, and integer variables never are.
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

// isUsableCoefficient reports whether solvers accept a coefficient as it is.
func taken(v float64) bool {
	v = math.Abs(v)
	return v >= minCoef && v <= maxMagnitude
}

// scaleOnce scales the columns that need it, and then the rows that still do. It reports whether it scaled any.
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

// magnitudeRange is the range of the magnitudes of some coefficients.
type span struct {
	some, out bool // whether there is a coefficient, and whether one is far from 1
	min, max  int  // exponents of two
}

// add adds the coefficient v · 2^exp.
func (s *span) add(v float64, exp int) {
	v = math.Ldexp(math.Abs(v), exp)
	_, e := math.Frexp(v)
	if !s.some {
		s.some, s.min, s.max = true, e, e
	}
	s.min, s.max = min(s.min, e), max(s.max, e)
	s.out = s.min < -comfort || s.max > comfort
}

// centringShift returns the exponent that centres the coefficients on 1.
func (s *span) shift() int { return -(s.min + s.max) / 2 }

// hasChanged reports whether anything was scaled.
func (s *Scaling) changed() bool {
	moved := func(exp int) bool { return exp != 0 }
	return slices.ContainsFunc(s.row, moved) || slices.ContainsFunc(s.col, moved)
}

// scaledModel returns the model in the new units.
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

// Options converts options for a solve of the original into options for a solve of Model.
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

// originalPoint converts a point of Model into one of the original.
func (s *Scaling) point(x []float64) []float64 {
	out := make([]float64, len(x))
	for j := range x {
		out[j] = math.Ldexp(x[j], s.col[j])
	}
	return out
}

// Solution converts a solution of Model into one of the original: its point, duals and reduced costs. Value and
// bound are the same.
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
