package relaxation

import (
	"context"
	"fmt"

	"inferplan/solver/milp"
)

// LeastLatencyTemplates returns the templates of that mix of rates, in fractions of devices, which reaches a
// throughput in units with the least total latency: each request counts the latency of its template. If the
// program has no optimum, it returns nil.
func LeastLatencyTemplates(ctx context.Context, solver milp.Solver, choice *WaitChoice, minValue float64) (templates []int, stats milp.Stats, err error) {
	program := newMasterProgram(choice.Catalogue, nil, choice.AllowedTemplates, -1, true)
	program.m.SetSense(milp.Minimize)
	program.m.SetObj(program.theta, 0)
	program.m.SetBounds(program.theta, minValue, milp.Inf)
	for i, ti := range choice.AllowedTemplates {
		program.m.SetObj(program.rateVars[i], choice.Catalogue.Templates[ti].Latency.Seconds())
	}
	sol, err := solver.Solve(ctx, program.m, milp.Options{})
	if err != nil {
		return nil, stats, fmt.Errorf("solving for the least latency: %w", err)
	}
	if sol.Status != milp.Optimal {
		return nil, stats, nil
	}
	templates = []int{}
	for i, ti := range choice.AllowedTemplates {
		if sol.At(program.rateVars[i]) > 1e-9 {
			templates = append(templates, ti)
		}
	}
	return templates, sol.Stats, nil
}
