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
func (x *planImprover) boundByWholeDevices(ctx context.Context) error {
	p := x.Problem
	if x.goal.poolCosts() != nil || x.incomplete || x.bestPlan == nil || x.hasTimeShared() || x.usesBundles() || p.Rounding != Slot || len(p.Models) < 2 {
		return nil
	}
	m := milp.New("whole devices per model")
	m.SetSense(milp.Maximize)
	theta := m.AddVar("theta", 0, x.choiceBound, 1)

	// Rows: the devices of each pool, the rate of each model, and the devices that each model takes.
	var rateRows []milp.Row
	poolRows := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		poolRows[k] = m.AddLE("", float64(p.Pools[k].Count))
	}
	takenRows := make([][]milp.Row, len(p.Models))
	for d := range p.Models {
		rateRows = append(rateRows, m.AddGE("", 0, milp.Term{Var: theta, Coef: -1}))
		takenRows[d] = make([]milp.Row, len(p.Pools))
		for k := range p.Pools {
			if n := p.Pools[k].Count; n > 0 {
				v := m.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(n), 0)
				m.AddTerm(poolRows[k], v, 1)
				takenRows[d][k] = m.AddLE("", 0, milp.Term{Var: v, Coef: -1})
			}
		}
	}

	// Columns: the templates that a better plan may use.
	numTemplates := 0
	for _, ti := range x.allowedTemplates {
		if x.losses[ti] >= x.lp.bound-x.bestScore() {
			continue
		}
		numTemplates++
		t := &x.templates[ti]
		entries := []milp.Entry{{Row: rateRows[t.Model], Coef: 1}}
		for k := range p.Pools {
			if c := t.DevicesPerRPS(k); c > 0 {
				entries = append(entries, milp.Entry{Row: takenRows[t.Model][k], Coef: c * x.units.modelRPS[t.Model]})
			}
		}
		m.AddColumn("", 0, milp.Inf, 0, entries...)
	}

	// The program's bound holds for every plan.
	options := x.workLimits(wholeNodes)
	options.Gap = provenGap
	sol, err := x.solver.Solve(ctx, m, options)
	if err != nil {
		return fmt.Errorf("solving for whole devices per model over %d pipelines: %w", numTemplates, err)
	}
	if !math.IsNaN(sol.Bound) && sol.Status != milp.Infeasible {
		x.choiceBound = max(min(x.choiceBound, sol.Bound*(1+1e-9)), x.bestScore())
	}
	x.recordPhase("whole devices", numTemplates, sol.Stats)
	return nil
}
