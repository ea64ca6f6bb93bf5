package terms

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// ErrNoPlan is returned when a program has no solution.
var ErrNoPlan = errors.New("no plan")

// SolveError returns the error of a solve of a program without a solution that can be used: that of the solver, that of
// an interruption, or ErrNoPlan if there is no solution. program and result name in words what is solved and found.
func SolveError(ctx context.Context, sol *milp.Solution, err error, program, result string) error {
	switch {
	case err != nil:
		return fmt.Errorf("solving %s: %w", program, err)
	case sol.Status == milp.Infeasible:
		return ErrNoPlan
	case !sol.Feasible() && ctx.Err() != nil:
		return ctx.Err()
	case !sol.Feasible():
		return fmt.Errorf("the solver stopped without %s: %v", result, sol.Status)
	}
	return nil
}

// SetObjectiveBound replaces the bound of an outcome by one that holds for all plans, or for those that boundScope names; NaN if none is
// known. It also sets why the search stopped, by the distance to that bound: a plan that is proven to be the best with its margin need
// not be the best of all. The search stops at requestedGap.
func SetObjectiveBound(o *kind.Outcome, bound float64, boundScope string, requestedGap float64) {
	o.Objective = kind.BoundedObjective(o.Objective.Name, o.Objective.Value, bound)
	o.Objective.BoundAmong = boundScope
	gap := math.Inf(1)
	if o.Objective.Gap != nil {
		gap = *o.Objective.Gap
	}
	if o.StoppedBy != milp.StoppedByInterrupt && gap > kind.ProvenGap {
		o.StoppedBy = kind.StopReason(gap, requestedGap)
	}
}
