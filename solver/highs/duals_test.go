//go:build cgo

package highs_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"inferplan/solver/milp"
)

// randomLP is feasible (a known point lies inside) and bounded (a box).
func randomLP(r *rand.Rand) *milp.Model {
	m := milp.New("random")
	if r.IntN(2) == 0 {
		m.SetSense(milp.Maximize)
	}
	n := 3 + r.IntN(5)
	point := make([]float64, n)
	for j := range n {
		point[j] = 10 * r.Float64()
		m.AddVar("", point[j]-5*r.Float64(), point[j]+5*r.Float64(), 10*r.Float64()-5)
	}
	for range 2 + r.IntN(5) {
		var terms []milp.Term
		act := 0.0
		for j := range n {
			c := 4*r.Float64() - 2
			act += c * point[j]
			terms = append(terms, milp.Term{Var: milp.Var(j), Coef: c})
		}
		switch r.IntN(4) {
		case 0:
			m.AddLE("", act+r.Float64(), terms...)
		case 1:
			m.AddGE("", act-r.Float64(), terms...)
		case 2:
			m.AddEQ("", act, terms...)
		default:
			m.AddRow("", act-r.Float64(), act+r.Float64(), terms...)
		}
	}
	return m
}

// Duals and reduced costs are d objective / d limit: the limits that bind are moved by a little either way, and the
// optimum must move at that rate. Random data make degenerate optima, where the rates differ, improbable.
func TestDualsAgainstFiniteDifferences(t *testing.T) {
	const h = 1e-5
	r := rand.New(rand.NewPCG(7, 8))
	priced := map[milp.Sense]int{}
	for range 60 {
		m := randomLP(r)
		s := solve(t, m, milp.Options{})
		if s.Status != milp.Optimal || len(s.RowDuals) != m.NumRows() || len(s.ReducedCosts) != m.NumVars() {
			t.Fatalf("status %v, %d duals, %d reduced costs", s.Status, len(s.RowDuals), len(s.ReducedCosts))
		}
		rate := func(lo, hi, at float64, set func(lo, hi float64)) float64 {
			move := func(d float64) float64 {
				l, u := lo, hi
				if math.Abs(at-lo) < 1e-7 {
					l += d
				}
				if math.Abs(at-hi) < 1e-7 {
					u += d
				}
				set(l, u)
				v := solve(t, m, milp.Options{}).Value
				set(lo, hi)
				return v
			}
			return (move(h) - move(-h)) / (2 * h)
		}
		act := m.Activity(s.X)
		for i, dual := range s.RowDuals {
			row := milp.Row(i)
			lo, hi := m.RowBounds(row)
			got := rate(lo, hi, act[i], func(l, u float64) { m.SetRowBounds(row, l, u) })
			if math.Abs(got-dual) > 1e-3*(1+math.Abs(dual)) {
				t.Errorf("%v: dual of row %d is %v, finite difference %v", m.Sense(), i, dual, got)
			}
			if dual != 0 {
				priced[m.Sense()]++
			}
		}
		for j, rc := range s.ReducedCosts {
			v := milp.Var(j)
			lo, hi := m.Bounds(v)
			got := rate(lo, hi, s.X[j], func(l, u float64) { m.SetBounds(v, l, u) })
			if math.Abs(got-rc) > 1e-3*(1+math.Abs(rc)) {
				t.Errorf("%v: reduced cost of variable %d is %v, finite difference %v", m.Sense(), j, rc, got)
			}
		}
	}
	if priced[milp.Minimize] < 20 || priced[milp.Maximize] < 20 {
		t.Errorf("too few binding rows were tried: %v", priced)
	}
}

// Strong duality: the optimum is the sum of price times limit over binding rows and bounds, plus the offset.
func TestStrongDuality(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 60 {
		m := randomLP(r)
		s := solve(t, m, milp.Options{})
		act := m.Activity(s.X)
		sum := m.Offset()
		for i, d := range s.RowDuals {
			sum += d * act[i]
		}
		for j, d := range s.ReducedCosts {
			sum += d * s.X[j]
		}
		requireNear(t, "dual objective", sum, s.Value)
	}
}
