package relaxation

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
// pools' device counts that cannot all be kept. If the linear programs over templates, with devices in fractions, carry
// all floors, or the solver fails, the conflict is not known and it returns nil.
//
// A program maximises the multiple θ of all floors that is carried. Its duals prove the optimum: at these prices the
// floors are worth 1 together, every template costs at least what its rate is worth, and all devices are worth θ. If
// that is below 1, the floors and the pools that have a price exclude each other. Of several wait choices (bounds on
// how long batches wait for others on time-shared pools) it takes the one that carries the largest multiple, where
// floors come nearest to being met.
func ConflictingFloors(ctx context.Context, solver milp.Solver, catalogue *templates.Catalogue) (conflict []string) {
	// The program of each choice maximises θ (costs are nil), has no rows for the floors (false), and no pool with one more
	// device than it has (-1).
	choices, _ := templates.ListWaitBounds(catalogue)
	maxFactor := math.Inf(-1)
	for _, bounds := range choices {
		program := newMasterProgram(catalogue, nil, catalogue.TemplatesWithin(bounds), -1, false)
		floorUnits := lists.Filled(len(catalogue.Problem.Models), func(d int) float64 { return catalogue.Problem.Models[d].MinRPS / catalogue.Units.ModelRPS[d] })
		for d := range floorUnits {
			// The model's row rate - θ >= 0, in units, becomes rate - floor * θ >= 0, by a term that is added to the
			// coefficient -1 of θ. A model without a floor asks for nothing.
			program.m.AddTerm(program.modelRows[d], program.theta, 1-floorUnits[d])
		}
		sol, err := solver.Solve(ctx, program.m, milp.Options{})
		if err == nil && sol.Status == milp.Optimal && sol.Value > maxFactor {
			maxFactor, conflict = sol.Value, program.pricedLimits(sol.RowDuals, floorUnits)
		}
	}
	if maxFactor >= 1 {
		return nil
	}
	return conflict
}

// minPrice is the least price of a floor or a pool that counts: the floors are worth 1 together, and a solver's duals have
// errors of rounding.
const minPrice = 1e-9

// pricedLimits returns, in words, the floors and pools that have a price by the duals of the program, by row. floorUnits has
// the floors in units, by model.
func (l *masterProgram) pricedLimits(duals, floorUnits []float64) (limits []string) {
	for d := range l.problem.Models {
		if m := &l.problem.Models[d]; math.Abs(duals[l.modelRows[d]])*floorUnits[d] > minPrice {
			limits = append(limits, fmt.Sprintf("at least %g requests/s of %s", m.MinRPS, m.Name))
		}
	}
	for k := range l.problem.Pools {
		if pool := &l.problem.Pools[k]; l.poolRows[k] >= 0 && math.Abs(duals[l.poolRows[k]]) > minPrice {
			limits = append(limits, fmt.Sprintf("%d devices of kind %s", pool.Count, pool.Kind))
		}
	}
	return limits
}
