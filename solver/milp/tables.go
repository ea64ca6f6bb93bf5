package milp

// Tables is a model as lists of numbers, in a form that can be sent to another process. It has no names of rows
// and variables.
type Tables struct {
	Name             string
	Sense            Sense
	Offset           float64
	Lo, Hi, Obj      []float64 // of variables
	Integer          []bool
	RowLo, RowHi     []float64
	CoefRow, CoefVar []int32
	Coef             []float64
}

// Tables returns the model as lists of numbers, in which form it is sent to the process of a solver. Names of rows and
// variables are left out. The lists are parts of two allocations.
func (m *Model) Tables() *Tables {
	nv, nr, nc := len(m.vars), len(m.rows), len(m.coefs)
	numbers := make([]float64, 3*nv+2*nr+nc)
	list := func(n int) (l []float64) {
		l, numbers = numbers[:n], numbers[n:]
		return l
	}
	indexes := make([]int32, 2*nc)
	t := &Tables{Name: m.Name, Sense: m.sense, Offset: m.offset, Lo: list(nv), Hi: list(nv), Obj: list(nv), Integer: make([]bool, nv),
		RowLo: list(nr), RowHi: list(nr), CoefRow: indexes[:nc], CoefVar: indexes[nc:], Coef: list(nc)}
	for i := range m.vars {
		v := &m.vars[i]
		t.Lo[i], t.Hi[i], t.Obj[i], t.Integer[i] = v.lo, v.hi, v.obj, v.integer
	}
	for i := range m.rows {
		t.RowLo[i], t.RowHi[i] = m.rows[i].lo, m.rows[i].hi
	}
	for i, c := range m.coefs {
		t.CoefRow[i], t.CoefVar[i], t.Coef[i] = c.row, c.col, c.val
	}
	return t
}

// Model returns the model of the lists, without names of rows and variables.
func (t *Tables) Model() *Model {
	m := New(t.Name)
	m.sense, m.offset = t.Sense, t.Offset
	m.vars, m.rows, m.coefs = make([]variable, len(t.Lo)), make([]row, len(t.RowLo)), make([]coef, len(t.Coef))
	for i := range m.vars {
		m.vars[i] = variable{lo: t.Lo[i], hi: t.Hi[i], obj: t.Obj[i], integer: t.Integer[i]}
	}
	for i := range m.rows {
		m.rows[i] = row{lo: t.RowLo[i], hi: t.RowHi[i]}
	}
	for i := range m.coefs {
		m.coefs[i] = coef{t.CoefRow[i], t.CoefVar[i], t.Coef[i]}
	}
	return m
}
