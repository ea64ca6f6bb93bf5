//go:build cgo

package highs_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/milp"
)

// tinyModel is a MIP small enough to enumerate: integers in small boxes and at most one continuous variable, the last.
type tinyModel struct {
	model      *milp.Model
	ints       int
	continuous bool
}

func drawTiny(t *rapid.T) tinyModel {
	small := rapid.IntRange(-4, 4)
	m := milp.New("tiny")
	if rapid.Bool().Draw(t, "maximize") {
		m.SetSense(milp.Maximize)
	}
	m.SetOffset(float64(small.Draw(t, "offset")))
	n := rapid.IntRange(1, 4).Draw(t, "integers")
	for range n {
		lo := rapid.IntRange(-3, 2).Draw(t, "lo")
		m.AddInt("", float64(lo), float64(lo+rapid.IntRange(0, 3).Draw(t, "width")), float64(small.Draw(t, "cost")))
	}
	cont := rapid.Bool().Draw(t, "continuous")
	if cont {
		lo := rapid.IntRange(-3, 2).Draw(t, "lo")
		m.AddVar("y", float64(lo), float64(lo+rapid.IntRange(0, 5).Draw(t, "width")), float64(small.Draw(t, "cost")))
	}
	for range rapid.IntRange(0, 4).Draw(t, "rows") {
		var terms []milp.Term
		for v := range m.NumVars() {
			terms = append(terms, milp.Term{Var: milp.Var(v), Coef: float64(small.Draw(t, "coef"))})
		}
		rhs := float64(rapid.IntRange(-6, 6).Draw(t, "rhs"))
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			m.AddLE("", rhs, terms...)
		case 1:
			m.AddGE("", rhs, terms...)
		case 2:
			m.AddEQ("", rhs, terms...)
		default:
			m.AddRow("", rhs, rhs+float64(rapid.IntRange(0, 4).Draw(t, "range")), terms...)
		}
	}
	return tinyModel{m, n, cont}
}

// bestByEnumeration enumerates the integers; for each, the continuous variable is left with an interval, whose better end counts.
func (p tinyModel) bestByEnumeration() (value float64, feasible bool) {
	m := p.model
	cols := m.Columns()
	x := make([]float64, m.NumVars())
	value = milp.Inf
	sign := 1.0
	if m.Sense() == milp.Maximize {
		sign = -1
	}
	var walk func(j int)
	walk = func(j int) {
		if j < p.ints {
			lo, hi := m.Bounds(milp.Var(j))
			for v := lo; v <= hi; v++ {
				x[j] = v
				walk(j + 1)
			}
			return
		}
		ends := []float64{0}
		if p.continuous {
			x[j] = 0
			lo, hi := m.Bounds(milp.Var(j))
			act := m.Activity(x)
			coef := make([]float64, m.NumRows())
			for k := cols.Start[j]; k < cols.Start[j+1]; k++ {
				coef[cols.Index[k]] = cols.Value[k]
			}
			for i := range coef {
				rlo, rhi := m.RowBounds(milp.Row(i))
				switch a := coef[i]; {
				case a > 0:
					lo, hi = max(lo, (rlo-act[i])/a), min(hi, (rhi-act[i])/a)
				case a < 0:
					lo, hi = max(lo, (rhi-act[i])/a), min(hi, (rlo-act[i])/a)
				}
			}
			if lo > hi {
				return
			}
			ends = []float64{lo, hi}
		}
		for _, e := range ends {
			if p.continuous {
				x[j] = e
			}
			if m.Check(x).OK() {
				feasible = true
				value = min(value, sign*m.Value(x))
			}
		}
	}
	walk(0)
	return sign * value, feasible
}

func TestAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawTiny(t)
		want, feasible := p.bestByEnumeration()
		s, err := solver.Solve(ctx, p.model, milp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !feasible {
			if s.Status != milp.Infeasible || s.X != nil {
				t.Fatalf("status %v, want infeasible", s.Status)
			}
			return
		}
		if s.Status != milp.Optimal || !s.Feasible() || !s.Rounded || !s.Feasibility.OK() {
			t.Fatalf("status %v, rounded %v, violation %+v; want optimal at %v", s.Status, s.Rounded, s.Feasibility, want)
		}
		if math.Abs(s.Value-want) > 1e-5 || math.Abs(s.Bound-want) > 1e-5 {
			t.Fatalf("value %v, bound %v, want %v", s.Value, s.Bound, want)
		}
		for v := range p.ints {
			if s.X[v] != math.Trunc(s.X[v]) {
				t.Fatalf("x%d = %v is not an integer", v, s.X[v])
			}
		}
	})
}
