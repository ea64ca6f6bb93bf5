package milp_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/solver/milp"
)

func TestValidateNamesRowOrVariable(t *testing.T) {
	nan, inf := math.NaN(), milp.Inf
	one := milp.Term{Var: 0, Coef: 1}
	for _, c := range []struct {
		name  string
		build func(*milp.Model)
		want  string // "" is valid
	}{
		{"fine", func(m *milp.Model) { m.AddRow("r", -inf, inf, one) }, ""},
		{"fixed", func(m *milp.Model) { m.AddVar("v", 2, 2, 0) }, ""},
		{"offset", func(m *milp.Model) { m.SetOffset(inf) }, "objective offset is +Inf"},
		{"bound NaN", func(m *milp.Model) { m.AddVar("v", nan, 1, 0) }, "variable v: bounds NaN and 1"},
		{"bounds crossed", func(m *milp.Model) { m.AddVar("v", 2, 1, 0) }, "variable v: lower bound 2 is above upper bound 1"},
		{"no value", func(m *milp.Model) { m.AddVar("v", inf, inf, 0) }, "variable v: bounds +Inf and +Inf leave no finite value"},
		{"huge bound", func(m *milp.Model) { m.AddVar("v", 0, 1e20, 0) }, "variable v: bounds 0 and 1e+20: a finite bound must be below 1e+20"},
		{"cost NaN", func(m *milp.Model) { m.AddVar("v", 0, 1, nan) }, "variable v: objective coefficient NaN"},
		{"cost infinite", func(m *milp.Model) { m.AddVar("v", 0, 1, -inf) }, "variable v: objective coefficient -Inf"},
		{"row crossed", func(m *milp.Model) { m.AddRow("r", 2, 1, one) }, "row r: lower bound 2"},
		{"row NaN", func(m *milp.Model) { m.AddLE("r", nan, one) }, "row r: bounds -Inf and NaN"},
		{"coefficient NaN", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: 0, Coef: nan}) }, "row r, variable first: coefficient NaN"},
		{"coefficient infinite", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: 0, Coef: math.Inf(1)}) }, "row r, variable first: coefficient +Inf"},
		{"coefficient tiny", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: 0, Coef: 1e-12}) }, ""},
		{"coefficient huge where it can be scaled", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: 0, Coef: 1e16}) }, ""},
		{"coefficients too far apart", func(m *milp.Model) {
			m.AddLE("r", 1, milp.Term{Var: m.AddInt("i", 0, 1, 0), Coef: 1e-14}, milp.Term{Var: m.AddInt("j", 0, 1, 0), Coef: 1e14})
		}, "row r, variable i: coefficient 1e-14 is below 1e-09"},
		{"unknown variable", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: 3, Coef: 1}) }, "row r: a coefficient of variable 3, but the model has 1 variables"},
		{"negative variable", func(m *milp.Model) { m.AddLE("r", 1, milp.Term{Var: -1, Coef: 1}) }, "row r: a coefficient of variable -1"},
		{"unknown row", func(m *milp.Model) { m.AddColumn("v", 0, 1, 0, milp.Entry{Row: 5, Coef: 1}) }, "variable v: a coefficient in row 5, but the model has 0 rows"},
		{"unnamed", func(m *milp.Model) { m.AddRow("", 2, 1) }, "row r0: lower bound 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := milp.New("m")
			m.AddVar("first", 0, 1, 0)
			c.build(m)
			err := m.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, milp.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	m := milp.New("many")
	for range 25 {
		m.AddVar("", 1, 0, 0)
	}
	if err := m.Validate(); err == nil || !strings.Contains(err.Error(), "and 15 more") {
		t.Errorf("error %v, want one that counts the rest", err)
	}
}

// The compressed matrix must say the same as the terms, in whatever order and however often they were given.
func TestColumnsAgainstDense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := milp.New("m")
		nr, nc := rapid.IntRange(0, 6).Draw(t, "rows"), rapid.IntRange(1, 6).Draw(t, "cols")
		for range nc {
			m.AddVar("", 0, 1, 0)
		}
		for range nr {
			m.AddRow("", 0, 1)
		}
		dense := make([][]float64, nr)
		for i := range dense {
			dense[i] = make([]float64, nc)
		}
		if nr > 0 {
			for range rapid.IntRange(0, 30).Draw(t, "terms") {
				i, j := rapid.IntRange(0, nr-1).Draw(t, "row"), rapid.IntRange(0, nc-1).Draw(t, "col")
				c := float64(rapid.IntRange(-3, 3).Draw(t, "coef"))
				m.AddTerm(milp.Row(i), milp.Var(j), c)
				dense[i][j] += c
			}
		}
		got := make([][]float64, nr)
		for i := range got {
			got[i] = make([]float64, nc)
		}
		c := m.Columns()
		for j := range nc {
			last := int32(-1)
			for k := c.Start[j]; k < c.Start[j+1]; k++ {
				if c.Index[k] <= last {
					t.Fatalf("column %d: row %d after row %d", j, c.Index[k], last)
				}
				if c.Value[k] == 0 {
					t.Fatalf("column %d, row %d: a stored zero", j, c.Index[k])
				}
				last = c.Index[k]
				got[c.Index[k]][j] = c.Value[k]
			}
		}
		if d := cmp.Diff(dense, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestCheckFindsLargestViolation(t *testing.T) {
	m := milp.New("m")
	x := m.AddInt("x", 0, 5, 1)
	y := m.AddVar("y", -1, milp.Inf, 2)
	m.AddLE("cap", 6, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: 1})
	m.AddEQ("big", 1e6, milp.Term{Var: x, Coef: 1e6}, milp.Term{Var: y, Coef: 1})
	for _, c := range []struct {
		x    []float64
		ok   bool
		want string
	}{
		{[]float64{1, 0}, true, ""},
		{[]float64{1, 0.5}, true, "row big"}, // half a unit in a million
		{[]float64{1, 2}, false, "row big"},
		{[]float64{1.001, -1000}, false, "variable y"},
		{[]float64{0.5, 0}, false, "variable x"},
		{[]float64{9, 0}, false, "row big"},
		{[]float64{1, math.NaN()}, false, "variable y"},
		{[]float64{1}, false, "1 values for 2 variables"},
	} {
		v := m.Check(c.x)
		if v.OK() != c.ok || v.WorstName != c.want {
			t.Errorf("Check(%v) = %+v, want ok %v, worst %q", c.x, v, c.ok, c.want)
		}
	}
	if got := m.Round([]float64{5.4, -1.0000001}); got[0] != 5 || got[1] != -1 {
		t.Errorf("Round = %v", got)
	}
	if got := m.Round([]float64{-0.2, 0}); math.Signbit(got[0]) {
		t.Error("Round gives a negative zero")
	}
}

func TestRelativeGap(t *testing.T) {
	for _, c := range []struct {
		sense        milp.Sense
		value, bound float64
		want         float64
	}{
		{milp.Maximize, 90, 100, 0.1},
		{milp.Minimize, 100, 90, 0.1},
		{milp.Maximize, 100, 100, 0},
		{milp.Maximize, 100.1, 100, 0},
		{milp.Minimize, 0, -1, milp.Inf},
		{milp.Maximize, -110, -100, 0.1},
		{milp.Minimize, 5, -milp.Inf, milp.Inf},
		{milp.Minimize, 5, math.NaN(), math.NaN()},
	} {
		got := milp.RelativeGap(c.sense, c.value, c.bound)
		if math.IsNaN(got) != math.IsNaN(c.want) || !math.IsNaN(got) && got != c.want && math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: gap of %v and %v is %v, want %v", c.sense, c.value, c.bound, got, c.want)
		}
	}
}

func TestEveryStatusHasAReason(t *testing.T) {
	for s := milp.Unknown; s <= milp.Unbounded; s++ {
		if (s.StoppedBy() == "") != (s == milp.Unknown) {
			t.Errorf("%v: stopped by %q", s, s.StoppedBy())
		}
	}
	if got := milp.Status(99).String(); got != "unknown" {
		t.Errorf("Status(99) = %q", got)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	m := milp.New("m")
	x := m.AddVar("x", 0, 1, 1)
	r := m.AddLE("r", 1, milp.Term{Var: x, Coef: 1})
	c := m.Clone()
	c.SetBounds(x, 5, 6)
	c.SetRowBounds(r, 5, 6)
	c.SetObj(x, 9)
	c.AddTerm(r, x, 1)
	if lo, hi := m.Bounds(x); lo != 0 || hi != 1 {
		t.Errorf("bounds of the original are now %v and %v", lo, hi)
	}
	if lo, hi := m.RowBounds(r); !math.IsInf(lo, -1) || hi != 1 {
		t.Errorf("limits of the original are now %v and %v", lo, hi)
	}
	if m.Obj(x) != 1 || m.Columns().Value[0] != 1 {
		t.Error("the original's coefficients changed")
	}
}

// scriptedSolver is a Solver that answers with given points.
type scriptedSolver []*milp.Solution

func (s *scriptedSolver) Solve(context.Context, *milp.Model, milp.Options) (*milp.Solution, error) {
	if len(*s) == 0 {
		return nil, errors.New("no more answers")
	}
	out := (*s)[0]
	*s = (*s)[1:]
	return out, nil
}

// Finish must round what is nearly integer, solve again where rounding breaks a row, and say so where that fails.
func TestFinishRoundsAndSolvesAgain(t *testing.T) {
	build := func() *milp.Model {
		m := milp.New("m")
		n := m.AddInt("n", 0, 10, 0)
		y := m.AddVar("y", 0, milp.Inf, 1)
		m.AddEQ("tie", 0, milp.Term{Var: y, Coef: 1}, milp.Term{Var: n, Coef: -1000})
		return m
	}
	t.Run("noise", func(t *testing.T) {
		sol := milp.NewSolution(milp.Optimal)
		if err := build().Finish(context.Background(), &scriptedSolver{}, milp.Options{}, sol, []float64{2.9999999999, 3000}); err != nil {
			t.Fatal(err)
		}
		if !sol.Rounded || sol.X[0] != 3 || sol.Value != 3000 || !sol.Feasibility.OK() {
			t.Errorf("%+v", sol)
		}
	})
	t.Run("mended", func(t *testing.T) {
		sol := milp.NewSolution(milp.Optimal)
		again := milp.NewSolution(milp.Optimal)
		again.X = []float64{3, 3000}
		if err := build().Finish(context.Background(), &scriptedSolver{again}, milp.Options{}, sol, []float64{2.99999, 2999.99}); err != nil {
			t.Fatal(err)
		}
		if !sol.Rounded || sol.X[1] != 3000 {
			t.Errorf("%+v", sol)
		}
	})
	t.Run("beyond mending", func(t *testing.T) {
		sol := milp.NewSolution(milp.Optimal)
		point := []float64{2.99999, 2999.99}
		if err := build().Finish(context.Background(), &scriptedSolver{milp.NewSolution(milp.Infeasible)}, milp.Options{}, sol, point); err != nil {
			t.Fatal(err)
		}
		if sol.Rounded || sol.X[0] != point[0] || sol.Feasibility.OK() {
			t.Errorf("%+v", sol)
		}
	})
	t.Run("bound", func(t *testing.T) {
		m := build()
		sol := milp.NewSolution(milp.WorkLimit)
		sol.Bound = 2000
		if err := m.Finish(context.Background(), &scriptedSolver{}, milp.Options{}, sol, []float64{3, 3000}); err != nil {
			t.Fatal(err)
		}
		if want := 1.0 / 3; math.Abs(sol.Gap-want) > 1e-12 {
			t.Errorf("gap %v, want %v", sol.Gap, want)
		}
		if got := m.FixIntegers([]float64{2.7, 0}); got.NumIntegers() != 0 || got.NumVars() != 2 {
			t.Errorf("%v", got)
		}
	})
}

// Other units change no digit: a point has the same objective in both, and every
// row the same activity but for its unit. Models in range keep theirs.
func TestScalingIsExact(t *testing.T) {
	scaled := 0
	rapid.Check(t, func(t *rapid.T) {
		m := milp.New("m")
		nc := rapid.IntRange(1, 5).Draw(t, "cols")
		for range nc {
			v := m.AddVar("", -3, 7, float64(rapid.IntRange(-5, 5).Draw(t, "obj")))
			m.SetInteger(v, rapid.Bool().Draw(t, "integer"))
		}
		tiny := false
		for range rapid.IntRange(1, 4).Draw(t, "rows") {
			r := m.AddLE("", 1)
			for j := range nc {
				c := math.Ldexp(float64(rapid.IntRange(1, 1000).Draw(t, "coef")), rapid.IntRange(-60, 10).Draw(t, "exp"))
				tiny = tiny || c < 1e-9
				m.AddTerm(r, milp.Var(j), c)
			}
		}
		k := m.Scaling()
		if !tiny && k != nil {
			t.Error("a model in range has other units")
		}
		if k == nil {
			return
		}
		scaled++
		x := make([]float64, nc)
		for j := range x {
			x[j] = float64(rapid.IntRange(-300, 700).Draw(t, "x")) / 64
		}
		inner := k.Options(milp.Options{Start: x}).Start
		if v, w := m.Value(x), k.Model.Value(inner); v != w {
			t.Errorf("objective %v, in other units %v", v, w)
		}
		back := k.Solution(&milp.Solution{X: inner}).X
		if d := cmp.Diff(x, back); d != "" {
			t.Error(d)
		}
		act, other := m.Activity(x), k.Model.Activity(inner)
		for i := range act {
			if a, _ := math.Frexp(act[i]); act[i] != 0 {
				if b, _ := math.Frexp(other[i]); a != b {
					t.Errorf("row %d: activity %v, in other units %v: not a power of two apart", i, act[i], other[i])
				}
			}
		}
		for j := range nc {
			if v := milp.Var(j); m.IsInteger(v) && inner[j] != x[j] {
				t.Errorf("integer variable %d is counted in other units", j)
			}
		}
	})
	t.Logf("%d models were scaled", scaled)
	if scaled == 0 {
		t.Error("no model was scaled")
	}
}
