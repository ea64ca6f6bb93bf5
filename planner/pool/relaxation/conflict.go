package relaxation

import (
	"context"
	"fmt"

	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// ConflictingFloors names the floors (least rates of models) and pools that exclude each other. If that is not known, it
// returns nil.
func ConflictingFloors(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (conflict []string) {
	program := newMasterProgram(catalogue, nil, mostServingTemplates(ctx, solver, catalogue), -1, true)
	limits, _, err := milp.FindConflict(ctx, solver, program.m)
	if err != nil {
		return nil
	}
	for _, limit := range limits {
		conflict = append(conflict, program.limitName(limit))
	}
	return conflict
}

// mostServingTemplates returns the templates of one wait choice (bounds on how long batches wait for others on
// time-shared pools): of that under which the linear program carries the largest common factor of the floors.
func mostServingTemplates(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (set []int) {
	choices, _ := templates.ListWaitBounds(catalogue)
	maxFactor := 0.0
	for _, bounds := range choices {
		allowed := catalogue.TemplatesWithin(bounds)
		program := newMasterProgram(catalogue, nil, allowed, -1, false)
		for d := range catalogue.Problem.Models {
			// The row rate - theta >= 0 becomes rate - floor * theta >= 0. A model without a floor asks for
			// nothing.
			program.m.AddTerm(program.modelRows[d], program.theta, 1-catalogue.Problem.Models[d].MinRPS/catalogue.Units.ModelRPS[d])
		}
		sol, err := solver.Solve(ctx, program.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > maxFactor || set == nil) {
			maxFactor, set = sol.Value, allowed
		}
	}
	return set
}

// limitName returns in words what a row of the linear program stands for: a model's floor or a pool's devices.
func (l *masterProgram) limitName(limit milp.Limit) string {
	for d := range l.problem.Models {
		if l.floorRows[d] == limit.Row {
			return fmt.Sprintf("at least %g requests/s of %s", l.problem.Models[d].MinRPS, l.problem.Models[d].Name)
		}
	}
	for k := range l.problem.Pools {
		if l.poolRows[k] == limit.Row {
			return fmt.Sprintf("%d devices of kind %s", l.problem.Pools[k].Count, l.problem.Pools[k].Kind)
		}
	}
	return limit.String()
}
