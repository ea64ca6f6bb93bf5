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
	numVars, numRows, numCoefs := len(m.vars), len(m.rows), len(m.coefs)
	numbers := make([]float64, 3*numVars+2*numRows+numCoefs)
	takeList := func(length int) (list []float64) {
		list, numbers = numbers[:length], numbers[length:]
		return list
	}
	indexes := make([]int32, 2*numCoefs)
	tables := &Tables{
		Name: m.Name, Sense: m.sense, Offset: m.offset,
		Lo: takeList(numVars), Hi: takeList(numVars), Obj: takeList(numVars), Integer: make([]bool, numVars),
		RowLo: takeList(numRows), RowHi: takeList(numRows),
		CoefRow: indexes[:numCoefs], CoefVar: indexes[numCoefs:], Coef: takeList(numCoefs),
	}
	for i := range m.vars {
		variable := &m.vars[i]
		tables.Lo[i], tables.Hi[i], tables.Obj[i], tables.Integer[i] = variable.lo, variable.hi, variable.obj, variable.integer
	}
	for i := range m.rows {
		tables.RowLo[i], tables.RowHi[i] = m.rows[i].lo, m.rows[i].hi
	}
	for i, entry := range m.coefs {
		tables.CoefRow[i], tables.CoefVar[i], tables.Coef[i] = entry.row, entry.col, entry.val
	}
	return tables
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
