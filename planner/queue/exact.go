package queue

import (
	"context"
	"fmt"
	"math"

	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// Exact is what a program's solve found.
type Exact struct {
	Order    [][]int32 // groups by queue
	Solution *milp.Solution
}

// Solve solves the program. A start, if any, is a state of the same problem.
func (m *Program) Solve(ctx context.Context, solver milp.Solver, o milp.Options, start *vqueue.State) (*Exact, error) {
	if start != nil {
		o.Start = m.startFrom(start)
	}
	sol, err := solver.Solve(ctx, m.Model, o)
	if err != nil {
		return nil, fmt.Errorf("solving the program for the order of groups: %w", err)
	}
	out := &Exact{Solution: sol}
	if sol.Feasible() {
		out.Order = make([][]int32, len(m.x))
		for g := range m.x {
			for j := range m.x[g] {
				for i, v := range m.x[g][j] {
					if v >= 0 && sol.Int(v) == 1 {
						out.Order[g] = append(out.Order[g], int32(i))
					}
				}
			}
		}
	}
	return out, nil
}

// startFrom fixes x and leaves what follows from it open. It is nil where the state
// does not fit the program.
func (m *Program) startFrom(s *vqueue.State) []float64 {
	start := make([]float64, m.Model.NumVars())
	for v := range start {
		start[v] = math.NaN()
	}
	for g := range m.x {
		order := s.Order(int32(g), nil)
		if len(order) > len(m.x[g]) {
			return nil
		}
		for j := range m.x[g] {
			for i, v := range m.x[g][j] {
				if v >= 0 {
					start[v] = 0
					if j < len(order) && int(order[j]) == i {
						start[v] = 1
					}
				}
			}
		}
	}
	return start
}

// State puts an order into a state of a problem.
func State(p *vqueue.Problem, order [][]int32) *vqueue.State {
	s := vqueue.NewState(p)
	for g := range order {
		for j, i := range order[g] {
			s.Insert(i, int32(g), j)
		}
	}
	return s
}
