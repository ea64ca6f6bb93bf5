package relaxation

import (
	"context"
	"fmt"

	"inferplan/planner/lists"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// ConflictingFloors explains why no plan reaches all floors (least rates of models): it returns, in words, floors and
// pools' device counts that cannot all be kept. It looks for them in the linear program over templates with devices in
// fractions. If that program has a solution, or the solver fails, the conflict is not known and it returns nil.
func ConflictingFloors(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (conflict []string) {
	program := newMasterProgram(catalogue, nil, mostServingTemplates(ctx, solver, catalogue), -1, true)
	limits, _, err := milp.FindConflict(ctx, solver, program.m)
	if err != nil {
		return nil
	}
	return lists.Map(len(limits), func(i int) string { return program.limitName(limits[i]) })
}

// mostServingTemplates returns the indexes of the templates that may be used under one wait choice (bounds on how long
// batches wait for others on time-shared pools), so that a conflict is looked for where floors come nearest to being
// met. It takes the choice under which the linear program carries the largest multiple of all floors (least rates). If
// the solver finds none, it returns nil.
func mostServingTemplates(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (set []int) {
	// The program of each choice maximises θ (costs are nil), has no rows for the floors (false), and no pool with one more
	// device than it has (-1).
	choices, _ := templates.ListWaitBounds(catalogue)
	maxFactor := 0.0
	for _, bounds := range choices {
		allowed := catalogue.TemplatesWithin(bounds)
		program := newMasterProgram(catalogue, nil, allowed, -1, false)
		for d := range catalogue.Problem.Models {
			// The model's row rate - θ >= 0, in units, becomes rate - floor * θ >= 0, by a term that is added to the
			// coefficient -1 of θ. Then θ is the multiple. A model without a floor asks for nothing.
			floorUnits := catalogue.Problem.Models[d].MinRPS / catalogue.Units.ModelRPS[d]
			program.m.AddTerm(program.modelRows[d], program.theta, 1-floorUnits)
		}
		sol, err := solver.Solve(ctx, program.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && (sol.Value > maxFactor || set == nil) {
			maxFactor, set = sol.Value, allowed
		}
	}
	return set
}

// limitName returns in words the limit that a row of the linear program stands for: a model's floor (least rate) or a
// pool's devices. For another row it returns the solver's words. Users read it in the reason why there is no plan.
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
