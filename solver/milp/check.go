package milp

import (
	"fmt"
	"math"
)

// Tolerance is the largest violation that counts as feasible: of a bound or row in units of
// max(1, |limit|, largest term of the row), of an integer in absolute terms.
const Tolerance = 1e-6

// Violation holds the distances of a point from feasibility.
type Violation struct {
	Row       float64 // largest violation of a row, scaled as Tolerance says
	Bound     float64 // largest violation of a bound, scaled likewise
	Integer   float64 // largest distance of an integer variable from an integer
	WorstName string  // name of the worst row or variable; "" if nothing is violated
}

// OK reports whether all is within Tolerance.
func (v Violation) OK() bool {
	return v.Row <= Tolerance && v.Bound <= Tolerance && v.Integer <= Tolerance
}

// Check returns the distances of a point x (a value for each variable) from feasibility, computed without a solver: the
// largest violation of a bound, of integrality and of a row, and the name of the worst. They are relative, see
// violation; a point of the wrong length is infinitely far.
func (m *Model) Check(x []float64) Violation {
	if len(x) != len(m.vars) {
		return Violation{Row: Inf, Bound: Inf, Integer: Inf, WorstName: fmt.Sprintf("%d values for %d variables", len(x), len(m.vars))}
	}

	// record keeps the largest violation of each sort, and the name of the largest of all.
	var result Violation
	largest := 0.0
	record := func(field *float64, distance float64, name func() string) {
		if math.IsNaN(distance) {
			distance = Inf
		}
		if distance > *field {
			*field = distance
		}
		if distance > largest {
			largest, result.WorstName = distance, name()
		}
	}

	// Variables.
	for j := range m.vars {
		variable := &m.vars[j]
		name := func() string { return "variable " + m.VarName(Var(j)) }
		record(&result.Bound, violation(x[j], variable.lo, variable.hi, 1), name)
		if variable.integer {
			record(&result.Integer, math.Abs(x[j]-math.Round(x[j])), name)
		}
	}

	// Rows: activity is the value of a row at x. Its largest term gives the scale of its rounding errors.
	activity := make([]float64, len(m.rows))
	largestTerm := make([]float64, len(m.rows))
	for _, entry := range m.coefs {
		term := entry.val * x[entry.col]
		activity[entry.row] += term
		largestTerm[entry.row] = max(largestTerm[entry.row], math.Abs(term))
	}
	for i := range m.rows {
		record(&result.Row, violation(activity[i], m.rows[i].lo, m.rows[i].hi, largestTerm[i]), func() string { return "row " + m.RowName(Row(i)) })
	}
	return result
}

// violation returns the distance of a value from [lower, upper], in units of max(1, |limit|, scale), where scale is the
// magnitude of the terms of which the value is the sum. NaN is infinitely far.
func violation(value, lower, upper, scale float64) float64 {
	switch {
	case math.IsNaN(value):
		return Inf
	case value < lower:
		return (lower - value) / max(1, math.Abs(lower), scale)
	case value > upper:
		return (value - upper) / max(1, math.Abs(upper), scale)
	}
	return 0
}

// Round returns x with its integer variables rounded and every variable moved into its bounds. x itself is not changed.
func (m *Model) Round(x []float64) []float64 {
	rounded := make([]float64, len(x))
	for j := range m.vars {
		value := x[j]
		if m.vars[j].integer {
			value = math.Round(value)
		}
		value = min(max(value, m.vars[j].lo), m.vars[j].hi)
		rounded[j] = value + 0 // makes a negative zero positive
	}
	return rounded
}
