package queue

import (
	"context"
	"fmt"
	"math"

	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// OrderResult is the result of solving a program.
type OrderResult struct {
	Order    [][]int32 // groups by queue, in their order
	Solution *milp.Solution
}

// Solve solves the program. It may start from a state of the same problem; start may be nil.
func (m *Program) Solve(ctx context.Context, solver milp.Solver, o milp.Options, start *vqueue.Assignment) (*OrderResult, error) {
	if start != nil {
		o.Start = m.startValues(start)
	}
	sol, err := solver.Solve(ctx, m.Model, o)
	if err != nil {
		return nil, fmt.Errorf("solving the program for the order of groups: %w", err)
	}
	result := &OrderResult{Solution: sol}

	// Read the order from x.
	if sol.Feasible() {
		result.Order = make([][]int32, len(m.x))
		for g := range m.x {
			for j := range m.x[g] {
				for i, v := range m.x[g][j] {
					if v >= 0 && sol.Int(v) == 1 {
						result.Order[g] = append(result.Order[g], int32(i))
					}
				}
			}
		}
	}
	return result, nil
}

// startValues returns start values for the solver: x by the state, NaN (open) for everything else. If a
// queue of the state is longer than the program allows, it returns nil.
func (m *Program) startValues(s *vqueue.Assignment) []float64 {
	start := make([]float64, m.Model.NumVars())
	for v := range start {
		start[v] = math.NaN()
	}
	for g := range m.x {
		order := s.AppendOrder(int32(g), nil)
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

// StateFromOrder returns a state of a problem with the groups in the given order.
func StateFromOrder(p *vqueue.Problem, order [][]int32) *vqueue.Assignment {
	s := vqueue.NewAssignment(p)
	for g := range order {
		for j, i := range order[g] {
			s.Insert(i, int32(g), j)
		}
	}
	return s
}
