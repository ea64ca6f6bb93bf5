package flow

import (
	"context"
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/policy/flow"
	"inferplan/solver/milp"
)

// batches chooses the batch of every service so that the rates take the fewest
// devices and every way keeps its deadline, with a batch to wait for and one's own
// at every step.
//
// The value is the device time that the rates take per second. It is the capacity
// bound that leaves memory and loads out: no placement carries more than the
// devices over it.
func (w *workflowProblem) batches(ctx context.Context) (*chosenBatches, error) {
	m := milp.New("batches of workflows")
	sizes := make([][]milp.Var, len(w.services))
	for s := range w.services {
		load := 0.0
		for a := range w.apps {
			load += w.apps[a].weight * w.apps[a].work[s]
		}
		one := m.AddEQ("batch of "+w.services[s].name, 1)
		for k := range w.services[s].sizes {
			v := m.AddBool(fmt.Sprintf("%s %d", w.services[s].name, w.services[s].sizes[k].batch), load*w.services[s].sizes[k].each())
			m.AddTerm(one, v, 1)
			sizes[s] = append(sizes[s], v)
		}
	}
	for a := range w.apps {
		w.deadlines(m, &w.apps[a], sizes)
	}
	for {
		sol, err := w.run.Solver.Solve(ctx, m, milp.Options{Gap: w.gap, Seed: w.seed})
		switch {
		case err != nil:
			return nil, fmt.Errorf("solving the program of batches: %w", err)
		case sol.Status == milp.Infeasible:
			return nil, errNone
		case !sol.Feasible() && ctx.Err() != nil:
			return nil, ctx.Err()
		case !sol.Feasible():
			return nil, fmt.Errorf("the solver stopped without batches: %v", sol.Status)
		}
		out := &chosenBatches{value: sol.Value, bound: min(sol.Bound, sol.Value), stopped: sol.StoppedBy, nodes: sol.Stats.Nodes, iterations: sol.Stats.Iterations}
		for s := range sizes {
			for k, v := range sizes[s] {
				if sol.Int(v) == 1 {
					out.chosen = append(out.chosen, k)
				}
			}
		}
		if w.keeps(out.chosen) {
			return out, nil
		}
		// The solver's tolerance let a way pass that is too slow by less than that.
		bar := m.AddLE("barred", float64(len(sizes)-1))
		for s, k := range out.chosen {
			m.AddTerm(bar, sizes[s][k], 1)
		}
	}
}

// deadlines holds the ways of an application to its budget, in seconds.
func (w *workflowProblem) deadlines(m *milp.Model, a *workflow, sizes [][]milp.Var) {
	segments := make([]milp.Var, len(a.paths))
	for g := range a.paths {
		segments[g] = m.AddVar("segment "+a.asked.Name, 0, milp.Inf, 0)
		for _, path := range a.paths[g] {
			row := m.AddGE("path of "+a.asked.Name, 0, milp.Term{Var: segments[g], Coef: 1})
			for i := range path {
				m.AddTerm(row, w.leg(m, a, &path[i], sizes), -1)
			}
		}
	}
	budget := (a.slo - a.margin).Seconds() / waiting
	for _, v := range a.visits {
		row := m.AddLE("deadline of "+a.asked.Name, budget)
		for g, n := range v.Times {
			if n > 0 {
				m.AddTerm(row, segments[g], float64(n))
			}
		}
	}
}

// leg is the time of a step: the longest of the services that may run it.
func (w *workflowProblem) leg(m *milp.Model, a *workflow, leg *flow.Leg, sizes [][]milp.Var) milp.Var {
	v := m.AddVar("step", 0, milp.Inf, 0)
	for _, id := range leg.Services {
		s := a.of[id]
		row := m.AddGE("step", 0, milp.Term{Var: v, Coef: 1})
		for k, z := range sizes[s] {
			m.AddTerm(row, z, -leg.Work*w.services[s].sizes[k].worst.Seconds())
		}
	}
	return v
}

// keeps tells whether batches keep all deadlines, exactly.
func (w *workflowProblem) keeps(chosen []int) bool {
	for i := range w.apps {
		if a := &w.apps[i]; waiting*w.took(a, chosen) > a.slo-a.margin {
			return false
		}
	}
	return true
}

// tooSoon names the application whose SLO has to grow most.
func (w *workflowProblem) tooSoon() error {
	worst, by := 0, 0.0
	for i := range w.apps {
		a := &w.apps[i]
		if f := w.took(a, nil).Seconds() / max((a.slo-a.margin).Seconds(), 1e-9); f > by {
			worst, by = i, f
		}
	}
	a := &w.apps[worst]
	need := waiting * w.took(a, nil)
	return &kind.InfeasibleError{Model: a.asked.Name, Constraint: "slo",
		Reason: fmt.Sprintf("the longest way of %s at %s takes %v in batches of one, with one to wait for and one's own at every step, and %v less the margin of %v leaves %v",
			a.asked.Name, a.asked.Percentile, need, a.slo, a.margin, a.slo-a.margin),
		Nearest: kind.Nearest{SLOUS: float64(leastSLO(need, &app{slo: a.slo, margin: a.margin})) / 1000}}
}

// factor is the common factor of the rates that so many devices carry.
func (b *chosenBatches) factor(devices int) (value, bound float64) {
	if b.value <= 0 {
		return 0, 0
	}
	value = float64(devices) / b.value
	if b.bound >= b.value*(1-1e-12) {
		return value, value
	}
	return value, float64(devices) / math.Max(b.bound, 1e-300)
}
