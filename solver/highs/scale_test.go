//go:build cgo

package highs_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// inUnits is a model with rows and continuous variables counted in other units.
func inUnits(m *milp.Model, row, col []int) *milp.Model {
	out := milp.New("in other units")
	out.SetSense(m.Sense())
	for j := range m.NumVars() {
		v := milp.Var(j)
		lo, hi := m.Bounds(v)
		out.SetInteger(out.AddVar("", math.Ldexp(lo, -col[j]), math.Ldexp(hi, -col[j]), math.Ldexp(m.Obj(v), col[j])), m.IsInteger(v))
	}
	for i := range m.NumRows() {
		lo, hi := m.RowBounds(milp.Row(i))
		out.AddRow("", math.Ldexp(lo, row[i]), math.Ldexp(hi, row[i]))
	}
	c := m.Columns()
	for j := range m.NumVars() {
		for k := c.Start[j]; k < c.Start[j+1]; k++ {
			out.AddTerm(milp.Row(c.Index[k]), milp.Var(j), math.Ldexp(c.Value[k], row[c.Index[k]]+col[j]))
		}
	}
	return out
}

// The same program in units in which its coefficients are out of range has the
// same solution, duals and reduced costs, and the solver is told a start.
func TestCoefficientsOutOfRange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	scaled := 0
	for n := range 200 {
		m := randomLP(r)
		col, row := make([]int, m.NumVars()), make([]int, m.NumRows())
		for j := range col {
			if col[j] = r.IntN(81) - 40; n%2 == 1 && j%2 == 0 {
				lo, hi := m.Bounds(milp.Var(j))
				m.SetBounds(milp.Var(j), math.Floor(lo), math.Ceil(hi))
				m.SetInteger(milp.Var(j), true)
				col[j] = 0
			}
		}
		for i := range row {
			row[i] = r.IntN(5) - 2
		}
		wide := inUnits(m, row, col)
		if wide.Scaling() == nil {
			continue // solvers take it as it is
		}
		scaled++
		var o milp.Options
		want := solve(t, m, o)
		if n%4 == 1 && want.Feasible() {
			o.Start = make([]float64, len(want.X))
			for j, x := range want.X {
				o.Start[j] = math.Ldexp(x, -col[j])
			}
			o.Incumbent = func(in milp.Incumbent) {
				if v := wide.Value(in.X); math.Abs(v-in.Value) > 1e-5*max(1, math.Abs(v)) {
					t.Errorf("incumbent says %v, its point has %v", in.Value, v)
				}
			}
		}
		got, err := highs.Solver{}.Solve(context.Background(), wide, o)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != want.Status || math.Abs(got.Value-want.Value) > 1e-5*max(1, math.Abs(want.Value)) || math.Abs(got.Bound-want.Bound) > 1e-5*max(1, math.Abs(want.Bound)) {
			t.Fatalf("%v, value %v, bound %v, expected %v, %v, %v", got.Status, got.Value, got.Bound, want.Status, want.Value, want.Bound)
		}
		if got.Feasible() && got.Value != wide.Value(got.X) {
			t.Errorf("value %v, its point has %v", got.Value, wide.Value(got.X))
		}
		for i := range got.RowDuals {
			if v := math.Ldexp(got.RowDuals[i], row[i]); math.Abs(v-want.RowDuals[i]) > 1e-5 {
				t.Errorf("dual of row %d is %v, expected %v", i, v, want.RowDuals[i])
			}
		}
		for j := range got.ReducedCosts {
			if v := math.Ldexp(got.ReducedCosts[j], -col[j]); math.Abs(v-want.ReducedCosts[j]) > 1e-5 {
				t.Errorf("reduced cost %d is %v, expected %v", j, v, want.ReducedCosts[j])
			}
		}
	}
	t.Logf("%d of 200 programs were scaled", scaled)
	if scaled < 50 {
		t.Error("too few programs were out of range")
	}
}
