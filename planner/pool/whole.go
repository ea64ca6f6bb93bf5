package pool

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// wholeNodes bounds the branch-and-bound nodes of the program of whole devices per model.
const wholeNodes = 400

// boundByWholeDevices lowers the bound by a relaxation in which only the devices of each kind that each model
// takes are whole numbers: under the slot rule no two models share a device. There are few of these numbers, so
// the program is solved soon. A program of whole replicas branches on replicas first and hardly gets to them.
func (x *phases) wholePerModel(ctx context.Context) error {
	p := x.Problem
	if x.goal.cost() != nil || x.partial || x.best == nil || x.timed() || x.many() || p.Rounding != Slot || len(p.Models) < 2 {
		return nil
	}
	m := milp.New("whole devices per model")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, x.inner, 1)

	// Rows: the devices of each pool, the rate of each model, and the devices that each model takes.
	var rates []milp.Row
	pools := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		pools[k] = m.AddLE("", float64(p.Pools[k].Count))
	}
	taken := make([][]milp.Row, len(p.Models))
	for d := range p.Models {
		rates = append(rates, m.AddGE("", 0, milp.Term{Var: theta, Coef: -1}))
		taken[d] = make([]milp.Row, len(p.Pools))
		for k := range p.Pools {
			if n := p.Pools[k].Count; n > 0 {
				v := m.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(n), 0)
				m.AddTerm(pools[k], v, 1)
				taken[d][k] = m.AddLE("", 0, milp.Term{Var: v, Coef: -1})
			}
		}
	}

	// Columns: the templates that a better plan may use.
	set := 0
	for _, ti := range x.allowed {
		if x.loss[ti] >= x.lp.bound-x.score() {
			continue
		}
		set++
		t := &x.templates[ti]
		entries := []milp.Entry{{Row: rates[t.Model], Coef: 1}}
		for k := range p.Pools {
			if c := t.DevicesPerRPS(k); c > 0 {
				entries = append(entries, milp.Entry{Row: taken[t.Model][k], Coef: c * x.u.rps[t.Model]})
			}
		}
		m.AddColumn("", 0, milp.Inf, 0, entries...)
	}

	// The program's bound holds for every plan.
	o := x.work(wholeNodes)
	o.Gap = proof
	sol, err := x.s.Solve(ctx, m, o)
	if err != nil {
		return fmt.Errorf("solving for whole devices per model over %d pipelines: %w", set, err)
	}
	if !math.IsNaN(sol.Bound) && sol.Status != milp.Infeasible {
		x.inner = max(min(x.inner, sol.Bound*(1+1e-9)), x.score())
	}
	x.phase("whole devices", set, sol.Stats)
	return nil
}
