//go:build cgo

package highs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"inferplan/solver/milp"
)

// crowdedModel is infeasible for one reason only: three models ask for more of the L4s than there are; the rest is
// scenery that a good explanation leaves out.
func crowdedModel(integer bool) *milp.Model {
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
		limits, minimal, err := milp.FindConflict(ctx, solver, crowdedModel(integer))
		if err != nil {
			t.Fatal(err)
		}
		want := "[row rate of a >= 20 row rate of b >= 20 row rate of c >= 20 row L4 <= 25]"
		if fmt.Sprint(limits) != want || !minimal {
			t.Errorf("integer %v: %v (minimal %v), want %v", integer, limits, minimal, want)
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
	limits, _, err := milp.FindConflict(ctx, solver, m)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[row odd >= 3 row odd <= 3]"; fmt.Sprint(limits) != want {
		t.Errorf("%v, want %v", limits, want)
	}
}

func TestConflictOfFeasible(t *testing.T) {
	_, _, err := milp.FindConflict(ctx, solver, knapsackModel())
	if err == nil || !strings.Contains(err.Error(), "feasible") {
		t.Errorf("error %v", err)
	}
}

func TestConflictInterrupted(t *testing.T) {
	c, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := milp.FindConflict(c, solver, crowdedModel(true)); err == nil {
		t.Error("no error with an ended context")
	}
}
