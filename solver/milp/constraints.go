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

type row struct {
	name   string
	lo, hi float64
}

type coef struct {
	row, col int32
	val      float64
}

// AddRow adds lo <= sum terms <= hi. Terms of the same variable add up. An empty name becomes "r" and its index.
func (l *constraints) AddRow(name string, lo, hi float64, terms ...Term) Row {
	r := Row(len(l.rows))
	l.rows = append(l.rows, row{name: name, lo: lo, hi: hi})
	for _, t := range terms {
		l.AddTerm(r, t.Var, t.Coef)
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

// AddTerm adds coef * v to an existing row.
func (l *constraints) AddTerm(r Row, v Var, c float64) {
	if c == 0 {
		return
	}
	l.coefs = append(l.coefs, coef{row: index32(int(r)), col: index32(int(v)), val: c})
}

// index32 returns an index as an int32, or -1 if it does not fit, which Validate reports.
func index32(i int) int32 {
	if i < 0 || i > math.MaxInt32 {
		return -1
	}
	return int32(i)
}

// SetRowBounds changes a row's limits.
func (l *constraints) SetRowBounds(r Row, lo, hi float64) { l.rows[r].lo, l.rows[r].hi = lo, hi }

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

// Activity returns the value of every row at x.
func (l *constraints) Activity(x []float64) []float64 {
	act := make([]float64, len(l.rows))
	for _, c := range l.coefs {
		act[c.row] += c.val * x[c.col]
	}
	return act
}

// hasUsableCoefficients reports whether solvers accept every coefficient as it is.
func (l *constraints) hasUsableCoefficients() bool {
	return !slices.ContainsFunc(l.coefs, func(c coef) bool { return !isUsableCoefficient(c.val) })
}
