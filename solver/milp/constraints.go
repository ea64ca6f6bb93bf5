package milp

import (
	"math"
	"slices"
	"strconv"
)

// Row is a constraint of one model: its index, counted from 0 in the order of adding.
type Row int

// Term is a coefficient of a variable in a row.
type Term struct {
	Var  Var
	Coef float64
}

// Entry is a coefficient of a row in a column that is added after its rows.
type Entry struct {
	Row  Row
	Coef float64
}

// constraints are the rows of a model with their coefficients.
type constraints struct {
	rows  []row
	coefs []coef
}

// row is a constraint with its limits, -Inf and Inf without one.
type row struct {
	name   string
	lo, hi float64
}

// coef is a coefficient of the constraint matrix. An index of -1 does not fit int32, which Validate reports.
type coef struct {
	row, col int32 // indexes of the row and of the variable
	val      float64
}

// AddRow adds the constraint lower <= sum of terms <= upper, and returns its index. Terms of the same variable add up. An empty name becomes "r" and its index.
func (l *constraints) AddRow(name string, lower, upper float64, terms ...Term) Row {
	r := Row(len(l.rows))
	l.rows = append(l.rows, row{name: name, lo: lower, hi: upper})
	for _, term := range terms {
		l.AddTerm(r, term.Var, term.Coef)
	}
	return r
}

// AddLE adds sum terms <= rhs.
func (l *constraints) AddLE(name string, rhs float64, terms ...Term) Row {
	return l.AddRow(name, -Inf, rhs, terms...)
}

// AddGE adds sum terms >= rhs.
func (l *constraints) AddGE(name string, rhs float64, terms ...Term) Row {
	return l.AddRow(name, rhs, Inf, terms...)
}

// AddEQ adds sum terms = rhs.
func (l *constraints) AddEQ(name string, rhs float64, terms ...Term) Row {
	return l.AddRow(name, rhs, rhs, terms...)
}

// AddTerm adds coefficient * v to an existing row. A coefficient of 0 is left out.
func (l *constraints) AddTerm(r Row, v Var, coefficient float64) {
	if coefficient == 0 {
		return
	}
	l.coefs = append(l.coefs, coef{row: index32(int(r)), col: index32(int(v)), val: coefficient})
}

// index32 returns an index as an int32, or -1 if it does not fit, which Validate reports.
func index32(i int) int32 {
	if i < 0 || i > math.MaxInt32 {
		return -1
	}
	return int32(i)
}

// SetRowBounds changes a row's limits.
func (l *constraints) SetRowBounds(r Row, lower, upper float64) {
	l.rows[r].lo, l.rows[r].hi = lower, upper
}

// NumRows returns the number of rows.
func (l *constraints) NumRows() int { return len(l.rows) }

// RowName returns the row's name.
func (l *constraints) RowName(r Row) string {
	if int(r) >= 0 && int(r) < len(l.rows) && l.rows[r].name != "" {
		return l.rows[r].name
	}
	return "r" + strconv.Itoa(int(r))
}

// RowBounds returns the row's limits.
func (l *constraints) RowBounds(r Row) (lo, hi float64) { return l.rows[r].lo, l.rows[r].hi }

// Activity returns, by row, the sum of its terms at a point x (a value for each variable).
func (l *constraints) Activity(x []float64) []float64 {
	activity := make([]float64, len(l.rows))
	for _, entry := range l.coefs {
		activity[entry.row] += entry.val * x[entry.col]
	}
	return activity
}

// hasUsableCoefficients reports whether solvers accept every coefficient as it is.
func (l *constraints) hasUsableCoefficients() bool {
	return !slices.ContainsFunc(l.coefs, func(c coef) bool { return !isUsableCoefficient(c.val) })
}
