//go:build cgo

package highs_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"inferplan/solver/milp"
)

// plans is a program of the kind that planners make: rates of pipelines within what whole replicas carry, replicas
// within devices, of which half ones round up, a floor under the rate of every model, and idle devices that are worth
// something.
type plans struct {
	*milp.Model
	rates, pools []milp.Row
	halves       map[[2]int]milp.Row // by model and pool
}

// newPlans makes a program without pipelines. floors are in units of rate.
func newPlans(floors []float64, devices []int) *plans {
	m := &plans{Model: milp.New("plans"), halves: map[[2]int]milp.Row{}}
	m.SetSense(milp.Maximize)
	m.SetOffset(-1)
	all := 0
	for _, n := range devices {
		all += n
	}
	for _, f := range floors {
		m.rates = append(m.rates, m.AddGE("", f))
	}
	for _, n := range devices {
		idle := m.AddInt("", 0, float64(n), 1/float64(all))
		m.pools = append(m.pools, m.AddLE("", float64(n), milp.Term{Var: idle, Coef: 1}))
	}
	return m
}

// add adds a pipeline of one stage, whose replica carries a rate on a device, or on half a one.
func (m *plans) add(model, pool int, rate float64, half bool) {
	_, n := m.RowBounds(m.pools[pool])
	x := m.AddVar("", 0, 2*n*rate, 0)
	m.AddTerm(m.rates[model], x, 1)
	g := m.AddInt("", 0, 2*n, 0)
	m.AddLE("", 0, milp.Term{Var: x, Coef: 1 / rate}, milp.Term{Var: g, Coef: -1})
	if !half {
		m.AddTerm(m.pools[pool], g, 1)
		return
	}
	key := [2]int{model, pool}
	row, ok := m.halves[key]
	if !ok {
		c := m.AddInt("", 0, n, 0)
		row = m.AddLE("", 0, milp.Term{Var: c, Coef: -1})
		m.AddTerm(m.pools[pool], c, 1)
		m.halves[key] = row
	}
	m.AddTerm(row, g, 0.5)
}

// drawPlans draws a program.
func drawPlans(r *rand.Rand) *plans {
	floors, devices := make([]float64, 1+r.IntN(3)), make([]int, 1+r.IntN(3))
	for d := range floors {
		floors[d] = float64(1+r.IntN(4)) / 2
	}
	for k := range devices {
		devices[k] = 1 + r.IntN(3)
	}
	m := newPlans(floors, devices)
	for d := range floors {
		for range 1 + r.IntN(4) {
			m.add(d, r.IntN(len(devices)), []float64{0.3, 0.5, 1, 2, 3}[r.IntN(5)], r.IntN(2) == 0)
		}
	}
	return m
}

// negatedModel is a maximisation as a minimisation.
func negatedModel(m *milp.Model) *milp.Model {
	c := m.Clone()
	c.SetSense(milp.Minimize)
	c.SetOffset(-m.Offset())
	for j := range m.NumVars() {
		c.SetObj(milp.Var(j), -m.Obj(milp.Var(j)))
	}
	return c
}

// worst is a solution of the least value; nil where there is none.
func (m *plans) worst(t *testing.T) []float64 {
	c := m.Clone()
	c.SetSense(milp.Minimize)
	return solve(t, c, milp.Options{NoPresolve: true}).X
}

// Presolve leaves no objective of this program: what it leaves keeps one device idle. HiGHS 1.10.0, started from a plan
// that takes all three, calls that one optimal.
func TestStartThatPresolveCutsOff(t *testing.T) {
	m := newPlans([]float64{0.5, 0.5}, []int{1, 2})
	m.add(0, 1, 0.5, false)
	m.add(1, 0, 1, false)
	m.add(1, 0, 1, true)
	start := m.worst(t)
	requireNear(t, "value of the start", m.Value(start), -1)
	const best = -2.0 / 3
	for name, o := range map[string]milp.Options{
		"proof": {Start: start}, "gap": {Start: start, Gap: 1e-6},
		"open": {Start: append([]float64{math.NaN()}, start[1:]...)},
	} {
		s := solve(t, m.Model, o)
		requireNear(t, name+": value", s.Value, best)
		requireNear(t, name+": bound", s.Bound, best)
		if s.Status != milp.Optimal {
			t.Errorf("%s: status %v", name, s.Status)
		}
		s = solve(t, negatedModel(m.Model), o)
		requireNear(t, name+": value of the negative", s.Value, -best)
		requireNear(t, name+": bound of the negative", s.Bound, -best)
	}

	// Within the gap the start is good enough, but the bound is that of the best.
	s := solve(t, m.Model, milp.Options{Start: start, Gap: 0.5})
	requireNear(t, "bound within the gap", s.Bound, best)
	if s.Value == -1 && s.Status != milp.Gap {
		t.Errorf("status %v of value %v", s.Status, s.Value)
	}
}

// A start changes nothing about what is best: of 300 programs HiGHS 1.10.0 gets several wrong.
func TestStartHidesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	solved := 0
	for i := range 300 {
		m := drawPlans(r)
		want := solve(t, m.Model, milp.Options{NoPresolve: true})
		if !want.Feasible() {
			continue
		}
		solved++
		got := solve(t, m.Model, milp.Options{Start: m.worst(t), Gap: 1e-6})
		if math.Abs(got.Value-want.Value) > 1e-5 || math.Abs(got.Bound-want.Value) > 1e-5 {
			t.Errorf("program %d: value %v, bound %v with a start, %v without", i, got.Value, got.Bound, want.Value)
		}
	}
	if solved == 0 {
		t.Error("no program has a solution")
	}
}
