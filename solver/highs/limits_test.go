//go:build cgo

package highs_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"inferplan/solver/milp"
)

// marketSplit is a small instance of a class that branch and bound cannot finish in reasonable time (Cornuéjols and
// Dawande, 1999): choose items so that every one of several random sums is met as closely as possible.
func marketSplit(rows, cols int) *milp.Model {
	r := rand.New(rand.NewPCG(1, 2))
	m := milp.New("market split")
	for j := range cols {
		m.AddBool(fmt.Sprintf("x%d", j), 0)
	}
	for i := range rows {
		over := m.AddVar(fmt.Sprintf("over%d", i), 0, milp.Inf, 1)
		under := m.AddVar(fmt.Sprintf("under%d", i), 0, milp.Inf, 1)
		var terms []milp.Term
		sum := 0
		for j := range cols {
			a := r.IntN(100)
			sum += a
			terms = append(terms, milp.Term{Var: milp.Var(j), Coef: float64(a)})
		}
		terms = append(terms, milp.Term{Var: over, Coef: -1}, milp.Term{Var: under, Coef: 1})
		m.AddEQ(fmt.Sprintf("sum%d", i), float64(sum/2), terms...)
	}
	return m
}

// bigKnapsack has many near-optimal solutions.
func bigKnapsack() *milp.Model {
	r := rand.New(rand.NewPCG(3, 4))
	m := milp.New("big knapsack")
	m.SetSense(milp.Maximize)
	rows := make([][]milp.Term, 5)
	for range 60 {
		v := m.AddInt("", 0, 3, float64(50+r.IntN(50)))
		for i := range rows {
			rows[i] = append(rows[i], milp.Term{Var: v, Coef: float64(30 + r.IntN(70))})
		}
	}
	for i := range rows {
		m.AddLE("", 1500, rows[i]...)
	}
	return m
}

func TestSolveStopsAtGap(t *testing.T) {
	s := solve(t, bigKnapsack(), milp.Options{Gap: 0.05})
	if s.Status != milp.Gap || s.StoppedBy != milp.StoppedByGap {
		t.Fatalf("status %v by %v, want gap", s.Status, s.StoppedBy)
	}
	if !(s.Gap > 0 && s.Gap <= 0.05) || s.Bound < s.Value {
		t.Errorf("value %v, bound %v, gap %v", s.Value, s.Bound, s.Gap)
	}
	if want := (s.Bound - s.Value) / s.Bound; s.Gap != want {
		t.Errorf("gap %v, want %v", s.Gap, want)
	}
}

func TestWorkLimits(t *testing.T) {
	for _, o := range []milp.Options{{MaxNodes: 20}, {MaxIterations: 1500}} {
		s := solve(t, marketSplit(4, 30), o)
		if s.Status != milp.WorkLimit || s.StoppedBy != milp.StoppedByWork {
			t.Fatalf("%+v: status %v by %v, want work limit", o, s.Status, s.StoppedBy)
		}
		if !s.Feasible() || !s.Feasibility.OK() {
			t.Errorf("%+v: no solution, %+v", o, s.Feasibility)
		}
		if o.MaxNodes > 0 && s.Stats.Nodes > 2*o.MaxNodes {
			t.Errorf("%d nodes, limit %d", s.Stats.Nodes, o.MaxNodes)
		}
		if o.MaxIterations > 0 && (s.Stats.Iterations < o.MaxIterations || s.Stats.Iterations > 20*o.MaxIterations) {
			t.Errorf("%d iterations, limit %d", s.Stats.Iterations, o.MaxIterations)
		}
	}
	lp := transportModel(30)
	if s := solve(t, lp, milp.Options{MaxIterations: 3, NoPresolve: true}); s.Status != milp.WorkLimit || s.Stats.Iterations > 3 {
		t.Errorf("linear program: status %v after %d iterations", s.Status, s.Stats.Iterations)
	}
}

// A search without a better solution for so many nodes ends, and not before that.
func TestSolveStopsWhenItStalls(t *testing.T) {
	const stall = 30
	for _, name := range []string{"heard", "unheard"} {
		var found []milp.Incumbent
		o := milp.Options{MaxNodes: 2000, MaxStall: stall}
		if name == "heard" {
			o.Incumbent = func(in milp.Incumbent) { found = append(found, in) }
		}
		s := solve(t, marketSplit(4, 30), o)
		if s.Status != milp.WorkLimit || s.StoppedBy != milp.StoppedByWork || !s.Feasible() {
			t.Fatalf("%s: status %v by %v, feasible %v; want a solution at a work limit", name, s.Status, s.StoppedBy, s.Feasible())
		}
		if s.Stats.Nodes < stall || s.Stats.Nodes >= o.MaxNodes {
			t.Errorf("%s: %d nodes, limit %d", name, s.Stats.Nodes, o.MaxNodes)
		}
		if o.Incumbent == nil {
			continue
		}
		for i := 1; i < len(found); i++ {
			if found[i].Nodes-found[i-1].Nodes > 2*stall {
				t.Errorf("solution %d came %d nodes after the one before", i, found[i].Nodes-found[i-1].Nodes)
			}
		}
		if last := found[len(found)-1].Nodes; s.Stats.Nodes < last+stall || s.Stats.Nodes > last+2*stall {
			t.Errorf("%d nodes, the last solution came at %d", s.Stats.Nodes, last)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	s := solve(t, marketSplit(5, 40), milp.Options{TimeLimit: 50 * time.Millisecond})
	if s.Status != milp.TimeLimit || s.StoppedBy != milp.StoppedByTime {
		t.Errorf("status %v by %v, want time limit", s.Status, s.StoppedBy)
	}
}

// transportModel is a dense linear program: n sources, n sinks.
func transportModel(n int) *milp.Model {
	r := rand.New(rand.NewPCG(5, 6))
	m := milp.New("transport")
	from, to := make([][]milp.Term, n), make([][]milp.Term, n)
	for i := range n {
		for j := range n {
			v := m.AddVar("", 0, milp.Inf, 1+99*r.Float64())
			from[i] = append(from[i], milp.Term{Var: v, Coef: 1})
			to[j] = append(to[j], milp.Term{Var: v, Coef: 1})
		}
	}
	for i := range n {
		m.AddLE("", float64(20+r.IntN(5)), from[i]...)
		m.AddGE("", float64(10+r.IntN(8)), to[i]...)
	}
	return m
}

// seenOnce ends when it has been looked at: as soon as a solver has begun.
type seenOnce struct {
	context.Context
	cancel context.CancelFunc
}

func (c seenOnce) Err() error {
	defer c.cancel()
	return c.Context.Err()
}

func TestInterruptKeepsBestSolution(t *testing.T) {
	for name, m := range map[string]*milp.Model{"mip": marketSplit(5, 40), "lp": transportModel(400)} {
		t.Run(name, func(t *testing.T) {
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			start := time.Now()
			// Left alone, the integer program takes hours.
			s, err := solver.Solve(seenOnce{inner, cancel}, m, milp.Options{NoPresolve: name == "lp"})
			if err != nil {
				t.Fatal(err)
			}
			if s.Status != milp.Interrupted || s.StoppedBy != milp.StoppedByInterrupt {
				t.Errorf("status %v by %v after %v", s.Status, s.StoppedBy, time.Since(start))
			}
			if s.Feasible() && !s.Feasibility.OK() {
				t.Errorf("infeasible answer: %+v", s.Feasibility)
			}
		})
	}
	c, cancel := context.WithCancel(ctx)
	cancel()
	s, err := solver.Solve(c, knapsackModel(), milp.Options{})
	if err != nil || s.Status != milp.Interrupted || s.Feasible() {
		t.Errorf("with an ended context: %+v, %v", s, err)
	}
}

func TestStartIsUsed(t *testing.T) {
	m := bigKnapsack()
	start := make([]float64, m.NumVars())
	for j := range start {
		if j%5 == 0 {
			start[j] = 1
		}
	}
	if v := m.Check(start); !v.OK() {
		t.Fatalf("the start is not feasible: %+v", v)
	}
	want := m.Value(start)
	first := math.NaN()
	s := solve(t, m, milp.Options{Start: start, Gap: 0.05, Incumbent: func(i milp.Incumbent) {
		if math.IsNaN(first) {
			first = i.Value
		}
		if v := m.Check(i.X); !v.OK() {
			t.Errorf("incumbent %v is infeasible: %+v", i.Value, v)
		}
		if math.Abs(m.Value(i.X)-i.Value) > 1e-6*i.Value {
			t.Errorf("incumbent of value %v is worth %v", i.Value, m.Value(i.X))
		}
	}})
	requireNear(t, "first incumbent", first, want)
	if s.Value < want {
		t.Errorf("value %v, the start's was %v", s.Value, want)
	}
	if s.Stats.Incumbents == 0 {
		t.Error("no incumbent counted")
	}

	// Half of an optimal solution, the rest left open, must lead to it at once.
	opt := solve(t, knapsackModel(), milp.Options{})
	part := append([]float64(nil), opt.X...)
	part[0], part[1] = math.NaN(), math.NaN()
	requireNear(t, "value from a partial start", solve(t, knapsackModel(), milp.Options{Start: part}).Value, opt.Value)
}

func TestBasisStart(t *testing.T) {
	m := transportModel(40)
	cold := solve(t, m, milp.Options{NoPresolve: true})
	if cold.Basis == nil || cold.Stats.Iterations == 0 {
		t.Fatalf("basis %v after %d iterations", cold.Basis, cold.Stats.Iterations)
	}
	again := solve(t, m, milp.Options{Basis: cold.Basis})
	if again.Stats.Iterations != 0 {
		t.Errorf("%d iterations from the optimal basis", again.Stats.Iterations)
	}
	requireNear(t, "value", again.Value, cold.Value)
	// A new column and a new row, as column generation adds them.
	v := m.AddColumn("shortcut", 0, 5, 0.5, milp.Entry{Row: 0, Coef: 1}, milp.Entry{Row: 1, Coef: 1})
	m.AddLE("cap", 3, milp.Term{Var: v, Coef: 1})
	warm, fresh := solve(t, m, milp.Options{Basis: cold.Basis}), solve(t, m, milp.Options{NoPresolve: true})
	requireNear(t, "value after growing", warm.Value, fresh.Value)
	if warm.Stats.Iterations >= fresh.Stats.Iterations {
		t.Errorf("%d iterations from the old basis, %d without", warm.Stats.Iterations, fresh.Stats.Iterations)
	}
}

func TestCallbackPanics(t *testing.T) {
	_, err := solver.Solve(ctx, bigKnapsack(), milp.Options{Incumbent: func(milp.Incumbent) { panic("mine") }})
	if err == nil || !strings.Contains(err.Error(), "callback panicked: mine") {
		t.Errorf("error %v", err)
	}
}

func TestProgressIsReported(t *testing.T) {
	calls := 0
	solve(t, marketSplit(4, 30), milp.Options{MaxNodes: 50, Progress: func(p milp.Progress) {
		calls++
		if p.Bound > p.Value {
			t.Errorf("minimising: bound %v above value %v", p.Bound, p.Value)
		}
	}})
	if calls == 0 {
		t.Error("no progress was reported")
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]milp.Options{
		"start has 1 values":    {Start: []float64{1}},
		"gap NaN":               {Gap: math.NaN()},
		"heuristic effort 2":    {HeuristicEffort: 2},
		"basis of 9 variables":  {Basis: &milp.Basis{Vars: make([]milp.BasisStatus, 9)}},
		"work limits -1 nodes":  {MaxNodes: -1},
		"seed -1":               {Seed: -1},
		"time limit -1":         {TimeLimit: -1},
		"start of variable x0 ": {Start: []float64{milp.Inf, 0, 0, 0}},
	} {
		if _, err := solver.Solve(ctx, knapsackModel(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// A model that HiGHS 1.10.0 calls infeasible, and with s fixed ends in an error, unless one of its presolve rules is off:
// x = -2, y = 1 meets the equation without slacks.
func TestPresolveRule(t *testing.T) {
	for _, hi := range []float64{milp.Inf, 0} {
		m := milp.New("parallel columns")
		x := m.AddInt("x", -3, -2, 0)
		y := m.AddInt("y", 0, 1, 0)
		s := m.AddVar("s", 0, hi, 1)
		u := m.AddVar("u", 0, milp.Inf, 1)
		m.AddEQ("five", 5, milp.Term{Var: x, Coef: -2}, milp.Term{Var: y, Coef: 1}, milp.Term{Var: s, Coef: 1}, milp.Term{Var: u, Coef: -1})
		got := solve(t, m, milp.Options{})
		if got.Status != milp.Optimal || got.Value != 0 {
			t.Errorf("s <= %v: status %v, value %v; want optimal at 0", hi, got.Status, got.Value)
		}
	}
}

// A solve that was told what is enough ends there, and with a solution that is no worse.
func TestSolveStopsAtTargetValue(t *testing.T) {
	best := solve(t, bigKnapsack(), milp.Options{Gap: 1e-3})
	enough := solve(t, bigKnapsack(), milp.Options{Gap: 1e-3, TargetValue: best.Value / 4})
	if enough.Status != milp.Gap || enough.Value < best.Value/4 || enough.Bound < best.Value {
		t.Errorf("status %s, value %v, bound %v, where %v is enough and %v the best", enough.Status, enough.Value, enough.Bound, best.Value/4, best.Value)
	}
	if enough.Stats.Nodes > 1 || enough.Value > best.Value*(1-1e-3) {
		t.Errorf("%d nodes, value %v of %v: nothing was saved", enough.Stats.Nodes, enough.Value, best.Value)
	}
	never := solve(t, bigKnapsack(), milp.Options{Gap: 1e-3, TargetValue: best.Value * 2})
	requireNear(t, "value where nothing is enough", never.Value, best.Value)
}
