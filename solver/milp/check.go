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
	record := func(field *float64, v float64, name func() string) {
		if math.IsNaN(v) {
			v = Inf
		}
		if v > *field {
			*field = v
		}
		if v > largest {
			largest, result.WorstName = v, name()
		}
	}

	// Variables.
	for j := range m.vars {
		v := &m.vars[j]
		name := func() string { return "variable " + m.VarName(Var(j)) }
		record(&result.Bound, violation(x[j], v.lo, v.hi, 1), name)
		if v.integer {
			record(&result.Integer, math.Abs(x[j]-math.Round(x[j])), name)
		}
	}

	// Rows.
	// activity is the value of a row at x. Its largest term gives the scale of its rounding errors.
	activity := make([]float64, len(m.rows))
	largestTerm := make([]float64, len(m.rows))
	for _, c := range m.coefs {
		t := c.val * x[c.col]
		activity[c.row] += t
		if t = math.Abs(t); t > largestTerm[c.row] {
			largestTerm[c.row] = t
		}
	}
	for i := range m.rows {
		record(&result.Row, violation(activity[i], m.rows[i].lo, m.rows[i].hi, largestTerm[i]), func() string { return "row " + m.RowName(Row(i)) })
	}
	return result
}

// violation returns the distance of v from [lo, hi], in units of max(1, |limit|, scale), where scale is the magnitude of
// the terms of which v is the sum. NaN is infinitely far.
func violation(v, lo, hi, scale float64) float64 {
	switch {
	case math.IsNaN(v):
		return Inf
	case v < lo:
		return (lo - v) / max(1, math.Abs(lo), scale)
	case v > hi:
		return (v - hi) / max(1, math.Abs(hi), scale)
	}
	return 0
}

// Round returns x with its integer variables rounded and every variable moved into its bounds. x itself is not changed.
func (m *Model) Round(x []float64) []float64 {
	rounded := make([]float64, len(x))
	for j := range m.vars {
		v := x[j]
		if m.vars[j].integer {
			v = math.Round(v)
		}
		v = min(max(v, m.vars[j].lo), m.vars[j].hi)
		rounded[j] = v + 0 // no negative zero
	}
	return rounded
}
