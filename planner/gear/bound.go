package gear

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// envelope is the largest mean accuracy that a mixture of cascades reaches at a
// mean cost of at most budget: the upper concave envelope of (cost, accuracy).
// Without memory limits nothing beats it in steady state. NaN where even the
// cheapest costs more.
func envelope(cost, accuracy []float64, budget float64) float64 {
	front := pareto(len(cost), func(i int) float64 { return cost[i] }, func(i int) int32 { return int32(math.Round(accuracy[i] * (1 << 30))) })
	if len(front) == 0 || cost[front[0]] > budget {
		return math.NaN()
	}
	var hull []int
	for _, i := range front {
		for len(hull) >= 2 {
			a, b := hull[len(hull)-2], hull[len(hull)-1]
			if (accuracy[b]-accuracy[a])*(cost[i]-cost[a]) > (accuracy[i]-accuracy[a])*(cost[b]-cost[a]) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, i)
	}
	for k := len(hull) - 1; k >= 0; k-- {
		a := hull[k]
		if cost[a] > budget {
			continue
		}
		if k == len(hull)-1 {
			return accuracy[a]
		}
		b := hull[k+1]
		return accuracy[a] + (accuracy[b]-accuracy[a])*(budget-cost[a])/(cost[b]-cost[a])
	}
	return math.NaN()
}

// bounds are, for every range, what no plan over the same thresholds exceeds at
// its upper edge. Where memory keeps models apart, the relaxation knows of it:
// counts of configurations as fractions, any split, any mixture of cascades.
func (p *Problem) bounds(ctx context.Context, list []Cascade, work [][]float64, solver milp.Solver) ([]float64, error) {
	cost, accuracy := make([]float64, len(list)), make([]float64, len(list))
	for i := range list {
		cost[i], accuracy[i] = sum(work[i]), float64(list[i].Correct)/float64(p.Planned.N)
	}
	out := make([]float64, len(p.Edges))
	for r, edge := range p.Edges {
		out[r] = envelope(cost, accuracy, float64(p.Devices)/edge)
	}
	sets := p.configurations()
	if len(sets) == 1 || solver == nil {
		return out, nil
	}
	best := undominated(list, work)
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
