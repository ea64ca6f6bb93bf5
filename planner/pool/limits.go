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
			limits = append(limits, formats.Limit{Constraint: constraint, Change: change, Value: catalogue.unitsToRate(solved.value), Gain: solved.value/value - 1})
		}
	}

	// One more device of each kind.
	var basis *milp.Basis
	for k := range catalogue.problem.Pools {
		if ctx.Err() != nil || catalogue.problem.Pools[k].Count == 0 {
			continue
		}
		solved, err := solveRelaxationFrom(ctx, catalogue, solver, nil, choice.allowedTemplates, k, basis)
		if err == nil {
			basis = solved.basis
		}
		add("device "+catalogue.problem.Pools[k].Kind, "+1 device", solved, err)
	}

	// A longer SLO of each model. If the templates are too many to list again, these limits are left out.
	for d := range catalogue.problem.Models {
		if ctx.Err() != nil || catalogue.incomplete {
			break
		}
		changed, err := withLongerSLO(choice, d)
		if err != nil {
			continue
		}
		solved, err := changed.solveRelaxation(ctx, solver, nil, changed.allTemplates())
		add("slo "+catalogue.problem.Models[d].Name, "+"+document.Duration(sloStep).String(), solved, err)
	}
	slices.SortStableFunc(limits, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return limits
}

// withLongerSLO returns the catalogue of the templates that are allowed if the SLO of model d is longer by
// sloStep: those of the other models, and those of the model listed anew. The units stay.
func withLongerSLO(choice *waitChoice, d int) (*templateCatalogue, error) {
	relaxed := *choice.catalogue.problem
	relaxed.Models = slices.Clone(relaxed.Models)
	relaxed.Models[d].SLO += sloStep
	relaxed.Models[d].Margin = kind.Margin(relaxed.Models[d].SLO, problem.MarginShareOf(&relaxed, d))
	templates, _, err := undominatedTemplates(&relaxed, d)
	if err != nil {
		return nil, err
	}
	changed := &templateCatalogue{problem: &relaxed, units: choice.catalogue.units}
	for _, i := range choice.allowedTemplates {
		if choice.catalogue.templates[i].Model != d {
			changed.templates = append(changed.templates, choice.catalogue.templates[i])
		}
	}
	for i := range templates {
		if choice.waits.allowsTemplate(&relaxed, &templates[i]) {
			changed.templates = append(changed.templates, templates[i])
		}
	}
	return changed, nil
}
