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
	columns := m.Columns()
	scaling := &Scaling{original: m, rowExponents: make([]int, len(m.rows)), columnExponents: make([]int, len(m.vars))}
	for range scalingPasses {
		if !scaling.scaleOnce(columns) {
			break
		}
	}
	scaling.Model = scaling.scaledModel(columns)
	if !scaling.Model.hasUsableCoefficients() || !scaling.hasChanged() || scaling.Model.Validate() != nil {
		return nil
	}
	return scaling
}

// isUsableCoefficient reports whether solvers accept a coefficient as it is.
func isUsableCoefficient(coefficient float64) bool {
	coefficient = math.Abs(coefficient)
	return coefficient >= minCoef && coefficient <= maxMagnitude
}

// scaleOnce is a pass of Scaling: it scales the continuous columns with a coefficient out of range, and then the rows
// that still have one, so that their coefficients are centred on 1. It changes the exponents of two in s, and reports
// whether it changed any. c is the original matrix.
func (s *Scaling) scaleOnce(columns Columns) (scaled bool) {
	for j := range s.columnExponents {
		var columnRange magnitudeRange
		for k := columns.Start[j]; k < columns.Start[j+1]; k++ {
			columnRange.add(columns.Value[k], s.rowExponents[columns.Index[k]]+s.columnExponents[j])
		}
		if !s.original.vars[j].integer && columnRange.outOfRange {
			s.columnExponents[j] += columnRange.centringShift()
			scaled = true
		}
	}
	rowRanges := make([]magnitudeRange, len(s.rowExponents))
	for j := range s.columnExponents {
		for k := columns.Start[j]; k < columns.Start[j+1]; k++ {
			rowRanges[columns.Index[k]].add(columns.Value[k], s.rowExponents[columns.Index[k]]+s.columnExponents[j])
		}
	}
	for i := range rowRanges {
		if rowRanges[i].outOfRange {
			s.rowExponents[i] += rowRanges[i].centringShift()
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
func (s *magnitudeRange) add(coefficient float64, extraExponent int) {
	coefficient = math.Ldexp(math.Abs(coefficient), extraExponent)
	_, exponent := math.Frexp(coefficient)
	if !s.hasValues {
		s.hasValues, s.min, s.max = true, exponent, exponent
	}
	s.min, s.max = min(s.min, exponent), max(s.max, exponent)
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
func (s *Scaling) scaledModel(columns Columns) *Model {
	model := *s.original
	model.vars = slices.Clone(s.original.vars)
	model.rows = slices.Clone(s.original.rows)
	model.coefs = make([]coef, 0, len(columns.Index))
	for j := range model.vars {
		v := &model.vars[j]
		v.name = s.original.VarName(Var(j))
		v.lo, v.hi, v.obj = math.Ldexp(v.lo, -s.columnExponents[j]), math.Ldexp(v.hi, -s.columnExponents[j]), math.Ldexp(v.obj, s.columnExponents[j])
		for k := columns.Start[j]; k < columns.Start[j+1]; k++ {
			i := columns.Index[k]
			model.coefs = append(model.coefs, coef{row: i, col: int32(j), val: math.Ldexp(columns.Value[k], s.rowExponents[i]+s.columnExponents[j])})
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
func (s *Scaling) Options(options Options) Options {
	const inverse = -1
	options.Start = inUnits(options.Start, s.columnExponents, inverse)
	if callback := options.Incumbent; callback != nil {
		options.Incumbent = func(incumbent Incumbent) {
			incumbent.X = inUnits(incumbent.X, s.columnExponents, 1)
			callback(incumbent)
		}
	}
	return options
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
func (s *Scaling) Solution(scaledSolution *Solution) *Solution {
	const inverse = -1
	solution := *scaledSolution
	solution.RowDuals, solution.ReducedCosts = inUnits(scaledSolution.RowDuals, s.rowExponents, 1), inUnits(scaledSolution.ReducedCosts, s.columnExponents, inverse)
	if scaledSolution.X != nil {
		solution.X = inUnits(scaledSolution.X, s.columnExponents, 1)
		solution.Feasibility = s.original.Check(solution.X)
		solution.Rounded = scaledSolution.Rounded && solution.Feasibility.OK()
	}
	return &solution
}
