package milp

import (
	"context"
	"fmt"
	"slices"
)

// FindConflict explains an infeasible model: it returns limits of its rows that exclude each other, in the model's
// order. An equation appears with the side that takes part, or with both. The limits are minimal if the others
// have a solution once any one of them is left out. If the context ends early, they may not be minimal.
// Integrality and the bounds of variables always hold.
//
// The elastic filter comes first: every limit may be violated at a price. The limits that the cheapest solution
// violates are made hard, until there is no solution. Then some of the hard limits are in conflict. (Chinneck and
// Dravnieks, Locating minimal infeasible constraint sets in linear programs, ORSA Journal on Computing 3, 1991.)
// The deletion filter follows: it leaves out each of these limits in turn, for good if the rest is still
// infeasible.
//
// If the model is feasible, it returns an error.
func FindConflict(ctx context.Context, solver Solver, model *Model) (limits []Limit, minimal bool, err error) {
	if err := model.Validate(); err != nil {
		return nil, false, err
	}
	softLimits := rowLimits(model)
	filter := &conflictFilter{ctx: ctx, solver: solver, model: model}
	inConflict, err := filter.elasticFilter(softLimits)
	if err == nil {
		minimal, err = filter.deletionFilter(softLimits, inConflict)
	}
	if err != nil {
		return nil, false, fmt.Errorf("explaining why %q has no solution: %w", model.Name, err)
	}
	for k, isIn := range inConflict {
		if isIn {
			limits = append(limits, softLimits[k])
		}
	}
	return limits, minimal, nil
}

// conflictFilter searches a model for a conflict.
type conflictFilter struct {
	ctx    context.Context
	solver Solver
	model  *Model
}

// solve solves a model without limits.
func (f *conflictFilter) solve(model *Model) (*Solution, error) {
	return f.solver.Solve(f.ctx, model, Options{})
}

// elasticFilter is the first step of FindConflict. It returns, by soft limit (one that may be violated at a price),
// whether it belongs to a set of limits that exclude each other; the set may hold more than is needed. In each round the
// limits that the cheapest solution violates become hard and enter the set, until the elastic model has no solution. If
// the model is feasible, it returns errNotInfeasible.
func (f *conflictFilter) elasticFilter(softLimits []Limit) ([]bool, error) {
	inConflict := make([]bool, len(softLimits))
	relaxed := newElastic(f.model, softLimits)
	for {
		// Find the cheapest violation.
		solution, err := f.solve(relaxed.model)
		if err != nil {
			return nil, err
		}
		if solution.Status == Infeasible {
			return inConflict, nil
		}
		if !solution.Feasible() {
			return f.allIfInfeasible(softLimits, solution.Status)
		}

		// Make the violated limits hard.
		madeHard := false
		for k := range softLimits {
			if relaxed.violatedBy(solution.X, k) > 0 {
				relaxed.makeHard(k)
				inConflict[k], madeHard = true, true
			}
		}
		if madeHard {
			continue
		}
		if solution.Status != Optimal {
			return f.allIfInfeasible(softLimits, solution.Status)
		}
		// No limit is violated, so the model has a solution within the tolerance. Solve the model itself to know.
		direct, err := f.solve(f.model.WithoutObjective())
		if err != nil {
			return nil, err
		}
		if direct.Status != Infeasible {
			return nil, errNotInfeasible
		}
		// The solver's tolerances hide the conflict from the elastic model. Leave it to the deletion filter.
		return slices.Repeat([]bool{true}, len(softLimits)), nil
	}
}

// allIfInfeasible is called if an elastic solve ended without a proof, at a limit of work or time with this status. It
// solves the model itself, and returns a set of all soft limits if that is infeasible, and else an error.
func (f *conflictFilter) allIfInfeasible(softLimits []Limit, status Status) ([]bool, error) {
	direct, err := f.solve(f.model.WithoutObjective())
	if err != nil {
		return nil, err
	}
	switch {
	case direct.Status == Infeasible:
		return slices.Repeat([]bool{true}, len(softLimits)), nil
	case direct.Feasible():
		return nil, errNotInfeasible
	}
	return nil, fmt.Errorf("stopped (%v) before a conflict was found", status)
}

// deletionFilter is the second step of FindConflict. It takes limits out of the conflict (inConflict, by soft limit,
// which it changes) as long as the rest is still infeasible. minimal reports whether each was decided, so that none can
// be left out.
func (f *conflictFilter) deletionFilter(softLimits []Limit, inConflict []bool) (minimal bool, err error) {
	// Start from the limits in the conflict: m is the model without all others.
	conflictModel := f.model.WithoutObjective()
	for k, isIn := range inConflict {
		if !isIn {
			softLimits[k].removeFrom(conflictModel)
		}
	}

	// Leave out one after the other. If the trial is still infeasible, it goes on without the limit.
	minimal = true
	for k, isIn := range inConflict {
		if !isIn {
			continue
		}
		trial := conflictModel.Clone()
		softLimits[k].removeFrom(trial)
		solution, err := f.solve(trial)
		if err != nil {
			return false, err
		}
		switch {
		case solution.Status == Infeasible:
			inConflict[k], conflictModel = false, trial
		case solution.Feasible() || solution.Status == Unbounded: // the limit is part of the conflict
		default:
			minimal = false // not decided: the limit stays
		}
	}
	return minimal, nil
}

// removeFrom removes a limit from a model.
func (l Limit) removeFrom(model *Model) {
	if l.Side == Lower {
		model.rows[l.Row].lo = -Inf
	} else {
		model.rows[l.Row].hi = Inf
	}
}
