package pool

import (
	"cmp"
	"context"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// sloStep is the change of an SLO that limits are computed for.
const sloStep = 10 * time.Millisecond

// findLimits finds what limits the plan: it solves the linear program again with one more device of each kind,
// and with each model's SLO longer by sloStep. It returns the changes that raise the objective, by falling
// gain. The gain is relative to the relaxation as it is.
func findLimits(ctx context.Context, solver milp.Solver, choice *waitChoice) []formats.Limit {
	var limits []formats.Limit
	catalogue, value := choice.catalogue, choice.lp.value
	add := func(constraint, change string, solved *relaxation, err error) {
		if err == nil && solved.value > value*(1+1e-6) {
			limits = append(limits, formats.Limit{Constraint: constraint, Change: change, Value: catalogue.UnitsToRate(solved.value), Gain: solved.value/value - 1})
		}
	}

	// One more device of each kind.
	var basis *milp.Basis
	for k := range catalogue.Problem.Pools {
		if ctx.Err() != nil || catalogue.Problem.Pools[k].Count == 0 {
			continue
		}
		solved, err := solveRelaxationFrom(ctx, catalogue, solver, nil, choice.allowedTemplates, k, basis)
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
		changed, err := withLongerSLO(choice, d)
		if err != nil {
			continue
		}
		solved, err := solveRelaxation(changed, ctx, solver, nil, changed.AllTemplates())
		add("slo "+catalogue.Problem.Models[d].Name, "+"+document.Duration(sloStep).String(), solved, err)
	}
	slices.SortStableFunc(limits, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return limits
}

// withLongerSLO returns the catalogue of the templates that are allowed if the SLO of model d is longer by
// sloStep: those of the other models, and those of the model listed anew. The units stay.
func withLongerSLO(choice *waitChoice, d int) (*templates.Catalogue, error) {
	relaxed := *choice.catalogue.Problem
	relaxed.Models = slices.Clone(relaxed.Models)
	relaxed.Models[d].SLO += sloStep
	relaxed.Models[d].Margin = kind.Margin(relaxed.Models[d].SLO, problem.MarginShareOf(&relaxed, d))
	templateSet, _, err := templates.UndominatedTemplates(&relaxed, d)
	if err != nil {
		return nil, err
	}
	changed := &templates.Catalogue{Problem: &relaxed, Units: choice.catalogue.Units}
	for _, i := range choice.allowedTemplates {
		if choice.catalogue.Templates[i].Model != d {
			changed.Templates = append(changed.Templates, choice.catalogue.Templates[i])
		}
	}
	for i := range templateSet {
		if choice.waits.AllowsTemplate(&relaxed, &templateSet[i]) {
			changed.Templates = append(changed.Templates, templateSet[i])
		}
	}
	return changed, nil
}
