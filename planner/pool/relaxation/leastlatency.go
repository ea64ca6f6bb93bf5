package relaxation

import (
	"context"
	"fmt"

	"inferplan/solver/milp"
)

// LeastLatencyTemplates returns the templates that reach a throughput of minValue, in units of least rate per weight,
// with the least latency, so that a search can make a plan of them that is as good and faster. It solves the linear
// program with rates and devices in fractions, in which each request counts the latency of its template. The templates
// are those with a rate above 0, as indexes in the catalogue, of those that the wait choice allows. If the program has
// no optimum, it returns nil.
func LeastLatencyTemplates(ctx context.Context, solver milp.Solver, choice *WaitChoice, minValue float64) (templates []int, stats milp.Stats, err error) {
	// The throughput θ is a limit here, and the sum of rate times latency is the objective.
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

	// The templates with a rate above the solver's tolerance.
	templates = []int{}
	for i, ti := range choice.AllowedTemplates {
		if sol.At(program.rateVars[i]) > 1e-9 {
			templates = append(templates, ti)
		}
	}
	return templates, sol.Stats, nil
}
