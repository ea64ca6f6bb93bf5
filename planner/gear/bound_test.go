package gear

import (
	"context"
	"math"
	"testing"

	"inferplan/solver/milp"
)

// oneRangeByLP holds the bounds against the linear program that they are the
// solution of: fractions of devices for every set of models that fits into
// memory, any split of the work, any mixture of cascades.
func oneRangeByLP(t interface{ Fatalf(string, ...any) }, p *Problem, list []Cascade, work [][]float64, bounds []float64, solver milp.Solver) {
	accuracy := make([]float64, len(list))
	for i := range list {
		accuracy[i] = float64(list[i].Correct) / float64(p.Planned.N)
	}
	for r, edge := range p.Edges {
		want, err := p.relaxation(context.Background(), undominated(list, work), accuracy, work, p.configurations(), edge, solver)
		if err != nil {
			t.Fatalf("range %d: %v", r, err)
		}
		if math.Abs(want-bounds[r]) > 1e-7 || math.IsNaN(want) != math.IsNaN(bounds[r]) {
			t.Fatalf("range %d: bound %v, by linear programming %v", r, bounds[r], want)
		}
	}
}

func TestBoundOfPublishedFamilies(t *testing.T) {
	for _, devices := range []int{1, 4, 6} {
		p := llama4.problem(t, devices, 10)
		list := p.inTime(Enumerate(p.Planned, p.Grid, p.usable()))
		work := p.works(list)
		oneRangeByLP(t, p, list, work, p.bounds(list, work), solver(t))
	}
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
