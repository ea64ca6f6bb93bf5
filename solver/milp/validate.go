package milp

import (
	"errors"
	"fmt"
	"math"
)

// ErrInvalid is wrapped by every error of Validate.
var ErrInvalid = errors.New("invalid model")

// Limits on magnitudes. Solvers treat bounds from 1e20 as absent and drop tiny coefficients silently. A model that
// relies on either is refused.
const (
	maxMagnitude = 1e15
	minCoef      = 1e-9
	infinite     = 1e20
	maxErrors    = 10
)

// Validate reports the first ten faults of the model, each with the name of its row or variable. A coefficient out
// of range is a fault only if Scaling does not help.
func (m *Model) Validate() error {
	var faults []error
	// Faults beyond maxErrors are only counted.
	unlisted := 0
	add := func(format string, args ...any) {
		if len(faults) == maxErrors {
			unlisted++
			return
		}
		faults = append(faults, fmt.Errorf(format, args...))
	}

	// Sizes and the objective.
	if math.IsNaN(m.offset) || math.IsInf(m.offset, 0) {
		add("objective offset is %v, expected a finite number", m.offset)
	}
	if len(m.vars) > math.MaxInt32 || len(m.rows) > math.MaxInt32 || len(m.coefs) > math.MaxInt32 {
		add("%d variables, %d rows, %d coefficients: at most %d of each", len(m.vars), len(m.rows), len(m.coefs), math.MaxInt32)
	}

	// Variables, rows and coefficients.
	for j := range m.vars {
		v := &m.vars[j]
		if fault := badBounds(v.lo, v.hi); fault != "" {
			add("variable %s: %s", m.VarName(Var(j)), fault)
		}
		if math.IsNaN(v.obj) || math.Abs(v.obj) > maxMagnitude {
			add("variable %s: objective coefficient %v, expected a number of at most %g in magnitude", m.VarName(Var(j)), v.obj, float64(maxMagnitude))
		}
	}
	for i := range m.rows {
		if fault := badBounds(m.rows[i].lo, m.rows[i].hi); fault != "" {
			add("row %s: %s", m.RowName(Row(i)), fault)
		}
	}
	for _, c := range m.coefs {
		switch {
		case c.row < 0 || int(c.row) >= len(m.rows):
			add("variable %s: a coefficient in row %d, but the model has %d rows", m.VarName(Var(c.col)), c.row, len(m.rows))
		case c.col < 0 || int(c.col) >= len(m.vars):
			add("row %s: a coefficient of variable %d, but the model has %d variables", m.RowName(Row(c.row)), c.col, len(m.vars))
		case math.IsNaN(c.val) || math.IsInf(c.val, 0):
			add("row %s, variable %s: coefficient %v, expected a number", m.RowName(Row(c.row)), m.VarName(Var(c.col)), c.val)
		}
	}

	// Magnitudes, if all else is valid.
	if len(faults) == 0 && !m.hasUsableCoefficients() && m.Scaling() == nil {
		m.outOfRange(add)
	}
	if len(faults) == 0 {
		return nil
	}
	if unlisted > 0 {
		faults = append(faults, fmt.Errorf("and %d more", unlisted))
	}
	return fmt.Errorf("%w %q: %w", ErrInvalid, m.Name, errors.Join(faults...))
}

// outOfRange adds a fault for each coefficient that is too large or too small for solvers. Validate calls it if no
// choice of units for rows and variables (Scaling) brings all coefficients into the range.
func (m *Model) outOfRange(addFault func(format string, args ...any)) {
	columns := m.Columns()
	for j := range m.vars {
		for k := columns.Start[j]; k < columns.Start[j+1]; k++ {
			rowName, varName, value := m.RowName(Row(columns.Index[k])), m.VarName(Var(j)), columns.Value[k]
			switch {
			case math.Abs(value) > maxMagnitude:
				addFault("row %s, variable %s: coefficient %v, expected a number of at most %g in magnitude", rowName, varName, value, float64(maxMagnitude))
			case math.Abs(value) < minCoef:
				addFault("row %s, variable %s: coefficient %v is below %g in magnitude, where solvers take it for zero, and no units of rows and variables mend that", rowName, varName, value, float64(minCoef))
			}
		}
	}
}

// badBounds returns a text on the bounds of a variable or row that are not valid, or "" if they are.
func badBounds(lo, hi float64) string {
	switch {
	case math.IsNaN(lo) || math.IsNaN(hi):
		return fmt.Sprintf("bounds %v and %v, expected numbers", lo, hi)
	case lo > hi:
		return fmt.Sprintf("lower bound %v is above upper bound %v", lo, hi)
	case math.IsInf(lo, 1) || math.IsInf(hi, -1):
		return fmt.Sprintf("bounds %v and %v leave no finite value", lo, hi)
	case !math.IsInf(lo, 0) && math.Abs(lo) >= infinite || !math.IsInf(hi, 0) && math.Abs(hi) >= infinite:
		return fmt.Sprintf("bounds %v and %v: a finite bound must be below %g in magnitude; use milp.Inf for none", lo, hi, float64(infinite))
	}
	return ""
}

// ValidateOptions reports a start or basis that does not fit the model, and limits out of range.
func (m *Model) ValidateOptions(options *Options) error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	// Start and basis.
	if options.Start != nil && len(options.Start) != len(m.vars) {
		add("start has %d values, the model %d variables", len(options.Start), len(m.vars))
	}
	for j, x := range options.Start {
		if math.IsInf(x, 0) {
			add("start of variable %s is %v", m.VarName(Var(j)), x)
			break
		}
	}
	if basis := options.Basis; basis != nil && (len(basis.Vars) > len(m.vars) || len(basis.Rows) > len(m.rows)) {
		add("basis of %d variables and %d rows, the model has %d and %d", len(basis.Vars), len(basis.Rows), len(m.vars), len(m.rows))
	}

	// Gaps and limits.
	if math.IsNaN(options.Gap) || options.Gap < 0 {
		add("gap %v, expected a number >= 0", options.Gap)
	}
	if math.IsNaN(options.AbsGap) || options.AbsGap < 0 {
		add("absolute gap %v, expected a number >= 0", options.AbsGap)
	}
	if options.MaxNodes < 0 || options.MaxIterations < 0 || options.MaxStall < 0 {
		add("work limits %d nodes, %d iterations and %d nodes without a better solution, expected numbers >= 0 (0: none)", options.MaxNodes, options.MaxIterations, options.MaxStall)
	}
	if options.TimeLimit < 0 {
		add("time limit %v, expected >= 0 (0: none)", options.TimeLimit)
	}
	if options.Seed < 0 {
		add("seed %d, expected >= 0", options.Seed)
	}
	if math.IsNaN(options.HeuristicEffort) || options.HeuristicEffort > 1 {
		add("heuristic effort %v, expected at most 1", options.HeuristicEffort)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("options for model %q: %w", m.Name, errors.Join(faults...))
}
