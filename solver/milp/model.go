package milp

import (
	"fmt"
	"math"
	"slices"
)

// Inf is an absent bound.
var Inf = math.Inf(1)

// Sense is the direction of the objective.
type Sense int8

// The two senses; the zero value minimises.
const (
	Minimize Sense = iota
	Maximize
)

// String returns maximize or minimize.
func (s Sense) String() string {
	if s == Maximize {
		return "maximize"
	}
	return "minimize"
}

// Model is a linear or mixed-integer program: optimise offset + sum obj_j x_j subject to lo_i <= sum a_ij x_j <=
// hi_i for every row i and lo_j <= x_j <= hi_j for every variable j, some x_j integer.
//
// The methods that build it never fail. Validate, which every solver calls first, reports faults with the names of
// the rows and variables. A Model must not be changed concurrently, but any number of solves may read it at once.
type Model struct {
	Name string

	objective
	variables
	constraints
}

// objective holds the direction and the constant. The variables have the coefficients.
type objective struct {
	sense  Sense
	offset float64
}

// New returns an empty model that minimises.
func New(name string) *Model { return &Model{Name: name} }

// SetSense sets the direction of the objective.
func (o *objective) SetSense(s Sense) { o.sense = s }

// Sense returns the direction of the objective.
func (o *objective) Sense() Sense { return o.sense }

// SetOffset sets the objective's constant.
func (o *objective) SetOffset(constant float64) { o.offset = constant }

// Offset returns the objective's constant.
func (o *objective) Offset() float64 { return o.offset }

// AddColumn adds a continuous variable together with its coefficients in existing rows, as column generation does.
func (m *Model) AddColumn(name string, lo, hi, obj float64, entries ...Entry) Var {
	v := m.AddVar(name, lo, hi, obj)
	for _, e := range entries {
		m.AddTerm(e.Row, v, e.Coef)
	}
	return v
}

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	clone := *m
	clone.vars = slices.Clone(m.vars)
	clone.rows = slices.Clone(m.rows)
	clone.coefs = slices.Clone(m.coefs)
	return &clone
}

// WithoutObjective returns a copy of a model in which every solution has the value of the offset.
func (m *Model) WithoutObjective() *Model {
	clone := m.Clone()
	clone.Name = m.Name + " (feasibility)"
	for j := range clone.vars {
		clone.vars[j].obj = 0
	}
	return clone
}

// Value returns the objective at a point x (a value for each variable), in the model's own sense.
func (m *Model) Value(x []float64) float64 {
	sum := m.offset
	for j := range m.vars {
		if coefficient := m.vars[j].obj; coefficient != 0 {
			sum += coefficient * x[j]
		}
	}
	return sum
}

// String returns the name of the model, its sizes and its sense.
func (m *Model) String() string {
	return fmt.Sprintf("%s: %d variables (%d integer), %d rows, %d coefficients, %s",
		m.Name, len(m.vars), m.NumIntegers(), len(m.rows), len(m.coefs), m.sense)
}
