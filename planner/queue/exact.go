package queue

import (
	"context"
	"fmt"
	"math"

	"inferplan/planner/lists"
	"inferplan/policy/vqueue"
	"inferplan/solver/milp"
)

// OrderResult is the result of solving a program.
type OrderResult struct {
	Order    [][]int32 // groups by queue, in their order
	Solution *milp.Solution
}

// Solve solves the program for the order of request groups in queues (one queue for each instance), and returns the order that it found,
// nil if none. The solver starts from start, an order of the same problem, unless that is nil.
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
				// At most one group i is at place j of queue g. v is negative if the group cannot be there.
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

// startValues returns start values for the solver, by variable: for x, which place the groups, 1 or 0 as an assignment of groups to
// queues has them, and NaN for all others, which the solver completes. If a queue of the assignment is longer than the program allows, it
// returns nil, and the solver starts without.
func (m *Program) startValues(assignment *vqueue.Assignment) []float64 {
	start := lists.Filled(m.Model.NumVars(), func(int) float64 { return math.NaN() })
	for g := range m.x {
		order := assignment.AppendOrder(int32(g), nil)
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

// StateFromOrder returns the assignment of a problem's groups to its queues (one for each instance) that has them in a given order: order
// has the indexes of the groups, by queue.
func StateFromOrder(p *vqueue.Problem, order [][]int32) *vqueue.Assignment {
	state := vqueue.NewAssignment(p)
	for queue := range order {
		for place, group := range order[queue] {
			state.Insert(group, int32(queue), place)
		}
	}
	return state
}
