package relaxation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// sloStep is the change of an SLO that limits are computed for.
const sloStep = 10 * time.Millisecond

// FindLimits finds the limits that hold the throughput down, which the plan then names: it solves the linear program (rates
// and devices in fractions) again with one more device of each kind, and with each model's SLO longer by sloStep. It
// returns the changes that raise its value, by falling gain. The gain is a part of the value without a change. Solves
// that fail are left out; if ctx ends, so are the changes that were not tried.
func FindLimits(ctx context.Context, solver milp.Solver, choice *WaitChoice) []formats.Limit {
	// add lists a change with the solution after it, if that is better by more than the solver's tolerance.
	var limits []formats.Limit
	catalogue, value := choice.Catalogue, choice.Relaxation.Value
	add := func(constraint, change string, solved *Solution, err error) {
		if err == nil && solved.Value > value*(1+1e-6) {
			limits = append(limits, formats.Limit{Constraint: constraint, Change: change, Value: catalogue.UnitsToRate(solved.Value), Gain: solved.Value/value - 1})
		}
	}

	// One more device of each kind. Each solve starts from the basis of the one before.
	var basis *milp.Basis
	for k := range catalogue.Problem.Pools {
		if ctx.Err() != nil || catalogue.Problem.Pools[k].Count == 0 {
			continue
		}
		solved, err := solveFrom(ctx, catalogue, solver, nil, choice.AllowedTemplates, k, basis)
		if err == nil {
			basis = solved.basis
		}
		add("device "+catalogue.Problem.Pools[k].Kind, "+1 device", solved, err)
	}

	// A longer SLO of each model. If the templates are too many to list again, these limits are left out.
	for d := range catalogue.Problem.Models {
		if ctx.Err() != nil || catalogue.Incomplete {
			break
		}
		relaxedCatalogue, err := withLongerSLO(choice, d)
		if err != nil {
			continue
		}
		solved, err := Solve(ctx, relaxedCatalogue, solver, nil, relaxedCatalogue.AllTemplates())
		add("slo "+catalogue.Problem.Models[d].Name, "+"+document.Duration(sloStep).String(), solved, err)
	}
	slices.SortStableFunc(limits, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return limits
}

// withLongerSLO returns a catalogue of the templates that the wait choice allows if the SLO of model d is longer by
// sloStep: those of the other models as they are, and those of the model listed anew. Its units are those of the
// choice's catalogue, so that values can be compared. The problem of the choice is not changed. If the model's templates
// are too many to list, it returns an error.
func withLongerSLO(choice *WaitChoice, d int) (*templates.Catalogue, error) {
	// The problem with the longer SLO, of which the margin is a part.
	relaxedProblem := *choice.Catalogue.Problem
	relaxedProblem.Models = slices.Clone(relaxedProblem.Models)
	relaxedProblem.Models[d].SLO += sloStep
	relaxedProblem.Models[d].Margin = kind.Margin(relaxedProblem.Models[d].SLO, problem.MarginShareOf(&relaxedProblem, d))
	templateSet, _, err := templates.UndominatedTemplates(&relaxedProblem, d)
	if err != nil {
		return nil, err
	}
	relaxedCatalogue := &templates.Catalogue{Problem: &relaxedProblem, Units: choice.Catalogue.Units}
	for _, i := range choice.AllowedTemplates {
		if choice.Catalogue.Templates[i].Model != d {
			relaxedCatalogue.Templates = append(relaxedCatalogue.Templates, choice.Catalogue.Templates[i])
		}
	}
	for i := range templateSet {
		if choice.Waits.AllowsTemplate(&relaxedProblem, &templateSet[i]) {
			relaxedCatalogue.Templates = append(relaxedCatalogue.Templates, templateSet[i])
		}
	}
	return relaxedCatalogue, nil
}

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
