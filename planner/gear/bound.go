package gear

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// envelope is the upper concave envelope of points (cost, accuracy), by rising
// cost: the largest mean accuracy of a mixture of cascades by its mean cost.
// Without memory limits nothing beats it in steady state.
type envelope struct{ cost, accuracy []float64 }

func newEnvelope(list []Cascade, cost []float64, samples int) envelope {
	var e envelope
	for _, i := range pareto(cost, list) {
		c, a := cost[i], float64(list[i].Correct)/float64(samples)
		for n := len(e.cost); n >= 2; n = len(e.cost) {
			if (e.accuracy[n-1]-e.accuracy[n-2])*(c-e.cost[n-2]) > (a-e.accuracy[n-2])*(e.cost[n-1]-e.cost[n-2]) {
				break
			}
			e.cost, e.accuracy = e.cost[:n-1], e.accuracy[:n-1]
		}
		e.cost, e.accuracy = append(e.cost, c), append(e.accuracy, a)
	}
	return e
}

// at is the envelope's height at a budget; NaN where even the cheapest costs
// more.
func (e *envelope) at(budget float64) float64 {
	for k := len(e.cost) - 1; k >= 0; k-- {
		if e.cost[k] > budget {
			continue
		}
		if k == len(e.cost)-1 {
			return e.accuracy[k]
		}
		return e.accuracy[k] + (e.accuracy[k+1]-e.accuracy[k])*(budget-e.cost[k])/(e.cost[k+1]-e.cost[k])
	}
	return math.NaN()
}

// bounds are, for every range, what no plan over the same thresholds exceeds at
// its upper edge. Where memory keeps models apart, the relaxation knows of it:
// counts of configurations as fractions, any split, any mixture of cascades.
func (p *Problem) bounds(ctx context.Context, list []Cascade, work [][]float64, solver milp.Solver) ([]float64, error) {
	out := make([]float64, len(p.Edges))
	free := newEnvelope(list, totals(work), p.Planned.N)
	for r, edge := range p.Edges {
		out[r] = free.at(float64(p.Devices) / edge)
	}
	sets := p.configurations()
	if len(sets) == 1 || solver == nil {
		return out, nil
	}
	best := undominated(list, work)
	accuracy := make([]float64, len(list))
	for i := range list {
		accuracy[i] = float64(list[i].Correct) / float64(p.Planned.N)
	}
	for r, edge := range p.Edges {
		b, err := p.relaxation(ctx, best, accuracy, work, sets, edge, solver)
		if err != nil {
			return nil, fmt.Errorf("bounding the accuracy at %.6g requests per second: %w", edge, err)
		}
		if math.IsNaN(out[r]) || b < out[r] || math.IsNaN(b) {
			out[r] = b
		}
	}
	return out, nil
}

// relaxation solves the linear program of one range. NaN: infeasible.
func (p *Problem) relaxation(ctx context.Context, best []int, accuracy []float64, work [][]float64, sets []uint32, edge float64, solver milp.Solver) (float64, error) {
	m := milp.New("gears")
	m.SetSense(milp.Maximize)
	one := make([]milp.Term, 0, len(best))
	need := make([][]milp.Term, len(p.Models))
	for _, i := range best {
		x := m.AddVar("", 0, milp.Inf, accuracy[i])
		one = append(one, milp.Term{Var: x, Coef: 1})
		for k, w := range work[i] {
			if w > 0 {
				need[k] = append(need[k], milp.Term{Var: x, Coef: w * edge})
			}
		}
	}
	m.AddEQ("one cascade", 1, one...)
	devices := make([]milp.Term, 0, len(sets))
	for _, set := range sets {
		n := m.AddVar("", 0, milp.Inf, 0)
		devices = append(devices, milp.Term{Var: n, Coef: 1})
		time := []milp.Term{{Var: n, Coef: -1}}
		for k := range p.Models {
			if set&(1<<k) != 0 {
				f := m.AddVar("", 0, milp.Inf, 0)
				time = append(time, milp.Term{Var: f, Coef: 1})
				need[k] = append(need[k], milp.Term{Var: f, Coef: -1})
			}
		}
		m.AddLE("", 0, time...)
	}
	for k := range need {
		if len(need[k]) > 0 {
			m.AddLE("", 0, need[k]...)
		}
	}
	m.AddLE("devices", float64(p.Devices), devices...)
	sol, err := solver.Solve(ctx, m, milp.Options{})
	if err != nil {
		return 0, err
	}
	if sol.X == nil {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return math.NaN(), nil
	}
	if math.IsNaN(sol.Bound) {
		return sol.Value, nil
	}
	return max(sol.Bound, sol.Value), nil
}
