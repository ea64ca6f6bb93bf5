package milp

import (
	"math"
	"slices"
)

// Scaling is a model whose rows and continuous variables have other units, so that solvers accept every
// coefficient as it is. Units are powers of two, so scaling and undoing it are exact.
type Scaling struct {
	Model           *Model // in the new units
	original        *Model
	rowExponents    []int // row i of Model is the original row times 2^rowExponents[i]
	columnExponents []int // variable j of the original is that of Model times 2^columnExponents[j]
}

// maxExponent decides which rows and columns are scaled: those with a coefficient below 2^-maxExponent or above
// 2^maxExponent. Their coefficients are centred on 1.
const maxExponent = 20

// scalingPasses limits how often columns and rows are scaled in turn.
const scalingPasses = 8

// Scaling returns the model in units that solvers accept, before a solve. Columns and rows with a coefficient far from 1
// get a power of two as their unit, in several passes; integer variables never do. It returns nil if the model needs no
// scaling, or if no units help.
func (m *Model) Scaling() *Scaling {
	if m.hasUsableCoefficients() {
		return nil
	}
	c := m.Columns()
	s := &Scaling{original: m, rowExponents: make([]int, len(m.rows)), columnExponents: make([]int, len(m.vars))}
	for range scalingPasses {
		if !s.scaleOnce(c) {
			break
		}
	}
	s.Model = s.scaledModel(c)
	if !s.Model.hasUsableCoefficients() || !s.hasChanged() || s.Model.Validate() != nil {
		return nil
	}
	return s
}

// isUsableCoefficient reports whether solvers accept a coefficient as it is.
func isUsableCoefficient(v float64) bool {
	v = math.Abs(v)
	return v >= minCoef && v <= maxMagnitude
}

// scaleOnce is a pass of Scaling: it scales the continuous columns with a coefficient out of range, and then the rows
// that still have one, so that their coefficients are centred on 1. It changes the exponents of two in s, and reports
// whether it changed any. c is the original matrix.
func (s *Scaling) scaleOnce(c Columns) (scaled bool) {
	for j := range s.columnExponents {
		var col magnitudeRange
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			col.add(c.Value[k], s.rowExponents[c.Index[k]]+s.columnExponents[j])
		}
		if !s.original.vars[j].integer && col.outOfRange {
			s.columnExponents[j] += col.centringShift()
			scaled = true
		}
	}
	rows := make([]magnitudeRange, len(s.rowExponents))
	for j := range s.columnExponents {
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			rows[c.Index[k]].add(c.Value[k], s.rowExponents[c.Index[k]]+s.columnExponents[j])
		}
	}
	for i := range rows {
		if rows[i].outOfRange {
			s.rowExponents[i] += rows[i].centringShift()
			scaled = true
		}
	}
	return scaled
}

// magnitudeRange is the range of the magnitudes of some coefficients.
type magnitudeRange struct {
	hasValues, outOfRange bool // whether there is a coefficient, and whether one is far from 1
	min, max              int  // exponents of two
}

// add takes the coefficient v · 2^exp into the range of magnitudes of a row or column: the least and the largest
// exponent of two, and whether one is out of range.
func (s *magnitudeRange) add(v float64, exp int) {
	v = math.Ldexp(math.Abs(v), exp)
	_, e := math.Frexp(v)
	if !s.hasValues {
		s.hasValues, s.min, s.max = true, e, e
	}
	s.min, s.max = min(s.min, e), max(s.max, e)
	s.outOfRange = s.min < -maxExponent || s.max > maxExponent
}

// centringShift returns the exponent that centres the coefficients on 1.
func (s *magnitudeRange) centringShift() int { return -(s.min + s.max) / 2 }

// hasChanged reports whether anything was scaled.
func (s *Scaling) hasChanged() bool {
	isScaled := func(exp int) bool { return exp != 0 }
	return slices.ContainsFunc(s.rowExponents, isScaled) || slices.ContainsFunc(s.columnExponents, isScaled)
}

// scaledModel returns the original model in the new units. A coefficient is multiplied by the factors of its row and its
// column, which are 2 to their exponents. The bounds of a row are multiplied by its factor, and so is the objective
// coefficient of a column; the bounds of a column are divided by its factor. c is the original matrix.
func (s *Scaling) scaledModel(c Columns) *Model {
	model := *s.original
	model.vars = slices.Clone(s.original.vars)
	model.rows = slices.Clone(s.original.rows)
	model.coefs = make([]coef, 0, len(c.Index))
	for j := range model.vars {
		v := &model.vars[j]
		v.name = s.original.VarName(Var(j))
		v.lo, v.hi, v.obj = math.Ldexp(v.lo, -s.columnExponents[j]), math.Ldexp(v.hi, -s.columnExponents[j]), math.Ldexp(v.obj, s.columnExponents[j])
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			i := c.Index[k]
			model.coefs = append(model.coefs, coef{row: i, col: int32(j), val: math.Ldexp(c.Value[k], s.rowExponents[i]+s.columnExponents[j])})
		}
	}
	for i := range model.rows {
		r := &model.rows[i]
		r.name = s.original.RowName(Row(i))
		r.lo, r.hi = math.Ldexp(r.lo, s.rowExponents[i]), math.Ldexp(r.hi, s.rowExponents[i])
	}
	return &model
}

// Options converts options for a solve of the original into options for a solve of Model: the start is scaled, and the
// callback of improved solutions gets their points in the original units.
func (s *Scaling) Options(o Options) Options {
	const inverse = -1
	o.Start = inUnits(o.Start, s.columnExponents, inverse)
	if callback := o.Incumbent; callback != nil {
		o.Incumbent = func(in Incumbent) {
			in.X = inUnits(in.X, s.columnExponents, 1)
			callback(in)
		}
	}
	return o
}

// inUnits returns the values of a list in other units: value i times 2^exponents[i] or, for the sign -1, divided by that. A
// list that is nil stays nil.
func inUnits(list []float64, exponents []int, sign int) []float64 {
	if list == nil {
		return nil
	}
	converted := make([]float64, len(list))
	for i, value := range list {
		converted[i] = math.Ldexp(value, sign*exponents[i])
	}
	return converted
}

// Solution converts a solution of Model into one of the original: its point, duals and reduced costs. Value and bound are
// the same. A dual is a change of the objective per unit of a row's limit, so it is multiplied by the factor of the row,
// as limits are; a reduced cost is divided by the factor of the column, as bounds are.
func (s *Scaling) Solution(sol *Solution) *Solution {
	const inverse = -1
	solution := *sol
	solution.RowDuals, solution.ReducedCosts = inUnits(sol.RowDuals, s.rowExponents, 1), inUnits(sol.ReducedCosts, s.columnExponents, inverse)
	if sol.X != nil {
		solution.X = inUnits(sol.X, s.columnExponents, 1)
		solution.Feasibility = s.original.Check(solution.X)
		solution.Rounded = sol.Rounded && solution.Feasibility.OK()
	}
	return &solution
}
