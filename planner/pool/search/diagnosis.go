package search

import (
	"context"
	"errors"
	"fmt"

	"inferplan/planner/kind"
	"inferplan/planner/pool/programs"
	"inferplan/planner/pool/relaxation"
)

// errNoPlan means that no whole replicas serve every model.
var errNoPlan = errors.New("no plan serves every model")

// explainError replaces an error that says only that there is no plan by one that names the reason: floors (the
// least rates asked for) that exclude each other, or missing devices or memory. Other errors are returned as
// they are.
func (s *planSearch) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, relaxation.ErrInfeasible):
		return floorsTooHigh(ctx, s)
	case errors.Is(err, errNoPlan):
		return tooFewDevices(ctx, s)
	}
	return err
}

// floorsTooHigh returns the error for floors (least rates of models) that are too high: it names the floors and
// pools that exclude each other, and the largest common factor at which whole devices carry the floors.
func floorsTooHigh(ctx context.Context, search *planSearch) error {
	reason := &kind.InfeasibleError{Constraint: "min_rps"}
	if search.options.NoDiagnosis {
		return reason
	}
	outcome, err := search.floors.largestPlan(ctx)
	if err != nil {
		return err // without floors there is no plan either
	}
	reason.Nearest.LoadFactor = outcome.Value
	reason.Reason = fmt.Sprintf("the devices carry %s times the rates asked as min_rps", kind.LoadText(outcome.Value))
	reason.Conflict = relaxation.ConflictingFloors(ctx, search.solver, search.catalogue)
	return reason
}

// tooFewDevices returns the error for a search that found no plan which serves every model. It says how many
// devices are missing for every model to have one replica of each stage of some pipeline. If none are, it says
// which part of the least rates the cluster reaches, or which memory is too small, or else that more effort may
// find a plan.
func tooFewDevices(ctx context.Context, search *planSearch) error {
	reason := &kind.InfeasibleError{Constraint: "devices"}
	if search.options.NoDiagnosis {
		return reason
	}
	total := 0 // missing devices of all pools

	// Count the devices that are missing, by pool, for one replica of each stage of some pipeline of every model.
	for k, n := range programs.MissingDevices(ctx, search.solver, search.choice) {
		if n > 0 {
			reason.Nearest.Devices = append(reason.Nearest.Devices, kind.MissingCount{Device: search.problem.Pools[k].Kind, Count: n})
			total += n
		}
	}
	if total > 0 {
		reason.Reason = fmt.Sprintf("%d models need more devices than there are: at least %d more", len(search.problem.Models), total)
		return reason
	}
	if search.problem.HasFloors() {
		// One replica of everything fits, so whole devices do not carry the floors.
		outcome, err := search.floors.largestPlan(ctx)
		if err != nil {
			return err
		}
		reason.Constraint, reason.Nearest.LoadFactor = "min_rps", outcome.Value
		reason.Reason = fmt.Sprintf("this cluster reaches %s times the minimum rates asked, in whole devices", kind.LoadText(outcome.Value))
		return reason
	}

	// Otherwise memory may be too small for all models together, on pool k.
	if k, bytes := programs.JointMemory(ctx, search.solver, search.catalogue); bytes > 0 {
		reason.Constraint, reason.Nearest.MemoryBytes = "memory", bytes
		reason.Reason = fmt.Sprintf("%d models together need at least %d bytes on each %s, which has %d", len(search.problem.Models), bytes, search.problem.Pools[k].Kind, search.problem.Pools[k].Memory)
		return reason
	}
	reason.Reason = "no plan was found within the work limit; a higher effort may find one"
	return reason
}
