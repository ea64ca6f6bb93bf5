//go:build cgo

package highs_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx                = context.Background()
	solver milp.Solver = highs.Solver{}
)

func solve(t testing.TB, m *milp.Model, o milp.Options) *milp.Solution {
	t.Helper()
	s, err := solver.Solve(ctx, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func requireNear(t testing.TB, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 1e-7*math.Max(1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// factoryModel is a textbook LP: maximise 3x + 5y, x <= 4, 2y <= 12, 3x + 2y <= 18; optimum 36 at (2, 6), prices 0, 3/2, 1.
func factoryModel() *milp.Model {
	m := milp.New("factory")
	m.SetSense(milp.Maximize)
	x := m.AddVar("x", 0, milp.Inf, 3)
	y := m.AddVar("y", 0, milp.Inf, 5)
	m.AddLE("plant 1", 4, milp.Term{Var: x, Coef: 1})
	m.AddLE("plant 2", 12, milp.Term{Var: y, Coef: 2})
	m.AddLE("plant 3", 18, milp.Term{Var: x, Coef: 3}, milp.Term{Var: y, Coef: 2})
	return m
}

// knapsackModel: capacity 14, items (worth, weight) = (8, 5), (11, 7), (6, 4), (4, 3); the best are the last three, worth 21.
func knapsackModel() *milp.Model {
	m := milp.New("knapsack")
	m.SetSense(milp.Maximize)
	worth := []float64{8, 11, 6, 4}
	weight := []float64{5, 7, 4, 3}
	var terms []milp.Term
	for i := range worth {
		terms = append(terms, milp.Term{Var: m.AddBool("", worth[i]), Coef: weight[i]})
	}
	m.AddLE("weight", 14, terms...)
	return m
}

func TestKnownOptima(t *testing.T) {
	t.Run("lp", func(t *testing.T) {
		s := solve(t, factoryModel(), milp.Options{})
		if s.Status != milp.Optimal || s.StoppedBy != milp.StoppedByProof || !s.Rounded || !s.Feasibility.OK() {
			t.Fatalf("%+v", s)
		}
		requireNear(t, "value", s.Value, 36)
		requireNear(t, "bound", s.Bound, 36)
		requireNear(t, "x", s.X[0], 2)
		requireNear(t, "y", s.X[1], 6)
		for i, want := range []float64{0, 1.5, 1} {
			requireNear(t, "dual", s.RowDuals[i], want)
		}
	})
	t.Run("mip", func(t *testing.T) {
		s := solve(t, knapsackModel(), milp.Options{})
		if s.Status != milp.Optimal {
			t.Fatalf("%+v", s)
		}
		requireNear(t, "value", s.Value, 21) // b, c, d: 11 + 6 + 4 at weight 14
		if s.RowDuals != nil || s.ReducedCosts != nil {
			t.Error("a mixed-integer program has no duals")
		}
	})
	t.Run("offset", func(t *testing.T) {
		m := knapsackModel()
		m.SetOffset(100)
		requireNear(t, "value", solve(t, m, milp.Options{}).Value, 121)
	})
	t.Run("empty", func(t *testing.T) {
		m := milp.New("empty")
		m.SetOffset(7)
		s := solve(t, m, milp.Options{})
		requireNear(t, "value", s.Value, 7)
		m.AddGE("impossible", 1)
		if s := solve(t, m, milp.Options{}); s.Status != milp.Infeasible {
			t.Errorf("status %v", s.Status)
		}
	})
	t.Run("no rows", func(t *testing.T) {
		m := milp.New("box")
		m.SetSense(milp.Maximize)
		m.AddVar("x", -1, 3, 2)
		m.AddInt("n", 0, 2.5, 1)
		s := solve(t, m, milp.Options{})
		requireNear(t, "value", s.Value, 8)
	})
}

func TestInfeasibleAndUnbounded(t *testing.T) {
	for _, integer := range []bool{false, true} {
		m := milp.New("m")
		x := m.AddVar("x", 0, milp.Inf, -1)
		y := m.AddVar("y", 0, milp.Inf, 0)
		m.SetInteger(x, integer)
		m.AddGE("apart", 1, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: -1})
		s := solve(t, m, milp.Options{})
		if s.Status != milp.Unbounded || s.X != nil {
			t.Errorf("integer %v: status %v, want unbounded", integer, s.Status)
		}
		m.AddLE("contrary", 0, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: -1})
		s = solve(t, m, milp.Options{})
		if s.Status != milp.Infeasible || s.X != nil || s.StoppedBy != milp.StoppedByProof {
			t.Errorf("integer %v: status %v, want infeasible", integer, s.Status)
		}
	}
}

func TestInvalidModelNamesFaults(t *testing.T) {
	m := milp.New("bad")
	x := m.AddVar("x", 0, 1, math.NaN())
	m.AddRow("crossed", 2, 1, milp.Term{Var: x, Coef: 1})
	m.AddLE("stranger", 1, milp.Term{Var: 7, Coef: 1})
	_, err := solver.Solve(ctx, m, milp.Options{})
	if !errors.Is(err, milp.ErrInvalid) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{`"bad"`, "variable x: objective", "row crossed: lower bound 2", "row stranger: a coefficient of variable 7"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestVersionIsThatOfHiGHS(t *testing.T) {
	if got := highs.Version(); got != "highs 1.10.0" {
		t.Errorf("Version() = %q", got)
	}
	if err := highs.Available(); err != nil {
		t.Error(err)
	}
}
