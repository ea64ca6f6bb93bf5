package milp

import (
	"fmt"
	"math"
	"strconv"
)

// Inf is an absent bound.
var Inf = math.Inf(1)

// Var is a variable of one model: its index, counted from 0 in the order of adding.
type Var int

// Row is a constraint of one model: its index, counted from 0 in the order of adding.
type Row int

// Sense says which way the objective is to go.
type Sense int8

// The two senses; the zero value minimises.
const (
	Minimize Sense = iota
	Maximize
)

func (s Sense) String() string {
	if s == Maximize {
		return "maximize"
	}
	return "minimize"
}

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

// Model is a linear or mixed-integer program: optimise offset + sum obj_j x_j subject to
// lo_i <= sum a_ij x_j <= hi_i for every row i and lo_j <= x_j <= hi_j for every variable j, some x_j integer.
//
// The methods that build it never fail; Validate, which every solver calls first, reports what is wrong with
// the names of the rows and variables. A Model is not safe for concurrent change; any number of solves may read
// it at once.
type Model struct {
	Name string

	sense  Sense
	offset float64
	vars   []variable
	rows   []row
	coefs  []coef
}

type variable struct {
	name        string
	lo, hi, obj float64
	integer     bool
}

type row struct {
	name   string
	lo, hi float64
}

type coef struct {
	row, col int32
	val      float64
}

// New returns an empty model that minimises.
func New(name string) *Model { return &Model{Name: name} }

// SetSense sets the direction of the objective.
func (m *Model) SetSense(s Sense) { m.sense = s }

// Sense returns the direction of the objective.
func (m *Model) Sense() Sense { return m.sense }

// SetOffset sets the objective's constant.
func (m *Model) SetOffset(c float64) { m.offset = c }

// Offset returns the objective's constant.
func (m *Model) Offset() float64 { return m.offset }

// AddVar adds a continuous variable. An empty name becomes "x" and its index.
func (m *Model) AddVar(name string, lo, hi, obj float64) Var {
	m.vars = append(m.vars, variable{name: name, lo: lo, hi: hi, obj: obj})
	return Var(len(m.vars) - 1)
}

// AddInt adds an integer variable.
func (m *Model) AddInt(name string, lo, hi, obj float64) Var {
	v := m.AddVar(name, lo, hi, obj)
	m.vars[v].integer = true
	return v
}

// AddBool adds a variable that is 0 or 1.
func (m *Model) AddBool(name string, obj float64) Var { return m.AddInt(name, 0, 1, obj) }

// AddRow adds lo <= sum terms <= hi. Terms of the same variable add up. An empty name becomes "r" and its index.
func (m *Model) AddRow(name string, lo, hi float64, terms ...Term) Row {
	r := Row(len(m.rows))
	m.rows = append(m.rows, row{name: name, lo: lo, hi: hi})
	for _, t := range terms {
		m.AddTerm(r, t.Var, t.Coef)
	}
	return r
}

// AddLE adds sum terms <= rhs.
func (m *Model) AddLE(name string, rhs float64, terms ...Term) Row {
	return m.AddRow(name, -Inf, rhs, terms...)
}

// AddGE adds sum terms >= rhs.
func (m *Model) AddGE(name string, rhs float64, terms ...Term) Row {
	return m.AddRow(name, rhs, Inf, terms...)
}

// AddEQ adds sum terms = rhs.
func (m *Model) AddEQ(name string, rhs float64, terms ...Term) Row {
	return m.AddRow(name, rhs, rhs, terms...)
}

// AddTerm adds coef * v to an existing row.
func (m *Model) AddTerm(r Row, v Var, c float64) {
	if c == 0 {
		return
	}
	m.coefs = append(m.coefs, coef{row: index32(int(r)), col: index32(int(v)), val: c})
}

// AddColumn adds a continuous variable together with its coefficients in existing rows, as column generation does.
func (m *Model) AddColumn(name string, lo, hi, obj float64, entries ...Entry) Var {
	v := m.AddVar(name, lo, hi, obj)
	for _, e := range entries {
		m.AddTerm(e.Row, v, e.Coef)
	}
	return v
}

// index32 keeps an index that does not fit for Validate to report.
func index32(i int) int32 {
	if i < 0 || i > math.MaxInt32 {
		return -1
	}
	return int32(i)
}

// SetObj changes a variable's objective coefficient.
func (m *Model) SetObj(v Var, c float64) { m.vars[v].obj = c }

// SetBounds changes a variable's bounds.
func (m *Model) SetBounds(v Var, lo, hi float64) { m.vars[v].lo, m.vars[v].hi = lo, hi }

// SetInteger makes a variable integer or continuous.
func (m *Model) SetInteger(v Var, integer bool) { m.vars[v].integer = integer }

// SetRowBounds changes a row's limits.
func (m *Model) SetRowBounds(r Row, lo, hi float64) { m.rows[r].lo, m.rows[r].hi = lo, hi }

// NumVars, NumRows and NumIntegers count.
func (m *Model) NumVars() int { return len(m.vars) }

// NumRows returns the number of rows.
func (m *Model) NumRows() int { return len(m.rows) }

// NumIntegers returns the number of integer variables.
func (m *Model) NumIntegers() int {
	n := 0
	for i := range m.vars {
		if m.vars[i].integer {
			n++
		}
	}
	return n
}

// VarName returns the variable's name.
func (m *Model) VarName(v Var) string {
	if int(v) >= 0 && int(v) < len(m.vars) && m.vars[v].name != "" {
		return m.vars[v].name
	}
	return "x" + strconv.Itoa(int(v))
}

// RowName returns the row's name.
func (m *Model) RowName(r Row) string {
	if int(r) >= 0 && int(r) < len(m.rows) && m.rows[r].name != "" {
		return m.rows[r].name
	}
	return "r" + strconv.Itoa(int(r))
}

// Bounds returns the variable's bounds.
func (m *Model) Bounds(v Var) (lo, hi float64) { return m.vars[v].lo, m.vars[v].hi }

// RowBounds returns the row's limits.
func (m *Model) RowBounds(r Row) (lo, hi float64) { return m.rows[r].lo, m.rows[r].hi }

// Obj returns the variable's objective coefficient.
func (m *Model) Obj(v Var) float64 { return m.vars[v].obj }

// IsInteger reports whether the variable is integer.
func (m *Model) IsInteger(v Var) bool { return m.vars[v].integer }

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := *m
	c.vars = append([]variable(nil), m.vars...)
	c.rows = append([]row(nil), m.rows...)
	c.coefs = append([]coef(nil), m.coefs...)
	return &c
}

// Value returns the objective at x, in the model's own sense.
func (m *Model) Value(x []float64) float64 {
	sum := m.offset
	for j := range m.vars {
		if c := m.vars[j].obj; c != 0 {
			sum += c * x[j]
		}
	}
	return sum
}

// Activity returns the value of every row at x.
func (m *Model) Activity(x []float64) []float64 {
	act := make([]float64, len(m.rows))
	for _, c := range m.coefs {
		act[c.row] += c.val * x[c.col]
	}
	return act
}

func (m *Model) String() string {
	return fmt.Sprintf("%s: %d variables (%d integer), %d rows, %d coefficients, %s",
		m.Name, len(m.vars), m.NumIntegers(), len(m.rows), len(m.coefs), m.sense)
}
