//go:build cgo

package highs_test

import (
	"context"
	"strings"
	"testing"

	"inferplan/solver/milp"
)

// crowded is infeasible for one reason only: three models ask for more of the L4s than there are; the rest is
// scenery that a good explanation leaves out.
func crowded(integer bool) *milp.Model {
	m := milp.New("crowded")
	var all []milp.Term
	for _, name := range []string{"a", "b", "c"} {
		v := m.AddVar("gpus of "+name, 0, 50, 1)
		m.SetInteger(v, integer)
		m.AddGE("rate of "+name, 20, milp.Term{Var: v, Coef: 2})
		all = append(all, milp.Term{Var: v, Coef: 1})
	}
	m.AddLE("L4", 25, all...)
	m.AddLE("power", 4000, milp.Term{Var: 0, Coef: 72}, milp.Term{Var: 1, Coef: 72})
	spare := m.AddVar("spare", 0, milp.Inf, 0)
	m.AddLE("P4", 75, milp.Term{Var: spare, Coef: 1})
	return m
}

func TestConflictNames(t *testing.T) {
	for _, integer := range []bool{false, true} {
		c, err := milp.FindConflict(ctx, solver, crowded(integer), milp.ConflictOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := "row rate of a >= 20; row rate of b >= 20; row rate of c >= 20; row L4 <= 25"
		if c.String() != want || !c.Minimal {
			t.Errorf("integer %v: %v (minimal %v), want %v", integer, c, c.Minimal, want)
		}
		if c.Solves < 2 {
			t.Errorf("%d solves", c.Solves)
		}
	}
}

func TestConflictOfBounds(t *testing.T) {
	m := milp.New("bounds")
	x := m.AddVar("x", 0, 3, 0)
	y := m.AddVar("y", 0, 4, 0)
	m.AddGE("sum", 10, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: 1})
	m.AddLE("aside", 5, milp.Term{Var: x, Coef: 1})
	c, err := milp.FindConflict(ctx, solver, m, milp.ConflictOptions{Hard: func(milp.Limit) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	if want := "row sum >= 10; variable x <= 3; variable y <= 4"; c.String() != want {
		// x <= 3 and "aside" both bound x; only the tighter one, or either with y, excludes the sum: 5 + 4 < 10 too.
		if alt := "row sum >= 10; row aside <= 5; variable y <= 4"; c.String() != alt {
			t.Errorf("%v, want %v or %v", c, want, alt)
		}
	}
}

// An integer hole that no linear relaxation sees: 2x + 2y = 3.
func TestConflictOfIntegrality(t *testing.T) {
	m := milp.New("parity")
	x := m.AddInt("x", 0, 9, 0)
	y := m.AddInt("y", 0, 9, 0)
	m.AddEQ("odd", 3, milp.Term{Var: x, Coef: 2}, milp.Term{Var: y, Coef: 2})
	m.AddLE("aside", 5, milp.Term{Var: x, Coef: 1})
	c, err := milp.FindConflict(ctx, solver, m, milp.ConflictOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "row odd >= 3; row odd <= 3"; c.String() != want {
		t.Errorf("%v, want %v", c, want)
	}
}

func TestConflictOfFeasible(t *testing.T) {
	_, err := milp.FindConflict(ctx, solver, knapsack(), milp.ConflictOptions{})
	if err == nil || !strings.Contains(err.Error(), "feasible") {
		t.Errorf("error %v", err)
	}
}

func TestConflictInterrupted(t *testing.T) {
	c, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := milp.FindConflict(c, solver, crowded(true), milp.ConflictOptions{}); err == nil {
		t.Error("no error with an ended context")
	}
}
