package search

import (
	"context"
	"fmt"
	"slices"

	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// Solve plans for the most throughput: the largest least rps / weight of all models, and then, at that value,
// the largest weighted sum of rps. If ctx ends after a plan was found, it returns that plan, with StoppedBy set
// to the interruption.
func Solve(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	return solveAtFloors(p, func(p *problem.Problem) (*problem.Outcome, error) { return solveThroughput(ctx, p, s, o) })
}

// solveThroughput searches for the plan of the most throughput, places it and returns it with its bound. It
// takes the floors (the least rates asked for) as they are: its caller allows for a tolerance.
func solveThroughput(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	search, err := newSearch(ctx, p, s, o, incumbent.MaxThroughput{})
	if err != nil {
		return nil, err
	}
	maxChoices := 1
	if slices.Contains(search.catalogue.TightMemory(search.catalogue.AllTemplates()), true) {
		// The relaxation orders the wait choices without regard to memory, so several are tried.
		maxChoices = maxCandidates * search.options.Effort
	}

	// If a plan runs and the new one moves (makes load something) more whole devices than the option max-moved allows, solve
	// again. tightenMoves lowers the limit on moves each time, and returns false after moveTries searches.
	for {
		if err := search.planChoices(ctx, maxChoices); err != nil {
			return nil, err
		}
		if err := search.requirePlan(ctx); err != nil {
			return nil, err
		}
		if !o.NoPolish {
			if err := polishPlan(ctx, search); err != nil {
				return nil, err
			}
		}
		outcome, err := writeOutcome(ctx, search)
		if err != nil || !tightenMoves(ctx, search, outcome.MovedDevices) {
			return outcome, err
		}
	}
}

// writeOutcome places the best plan on devices and returns the outcome with its bound and, unless the plan is
// only wanted quickly, what limits it.
func writeOutcome(ctx context.Context, search *planSearch) (*problem.Outcome, error) {
	plan, err := placeOutcome(ctx, search, search.catalogue)
	if err != nil {
		return nil, err
	}
	outcome := search.outcome
	// A replica that found no place was left out, so the proof is not of this plan.
	if plan.Value < search.incumbent.Plan.Value && outcome.StoppedBy == milp.StoppedByProof {
		search.stoppedBy, outcome.StoppedBy = milp.StoppedByWork, milp.StoppedByWork
	}
	search.incumbent.Plan = plan
	outcome.Value = plan.Value
	outcome.Bound = max(search.catalogue.UnitsToRate(search.incumbent.ProvenBound()), plan.Value)
	if !search.options.NoPolish {
		outcome.Limits = relaxation.FindLimits(ctx, search.solver, search.choice)
	}
	if ctx.Err() != nil {
		outcome.StoppedBy = milp.StoppedByInterrupt
	}
	return outcome, nil
}

// placeOutcome places the best plan on the devices of a catalogue's problem, and writes into the outcome what runs there
// and why the search ended. It returns the plan, without the replicas that found no place.
func placeOutcome(ctx context.Context, search *planSearch, catalogue *templates.Catalogue) (*placement.Plan, error) {
	plan, places, warnings := placement.Place(catalogue, search.incumbent.Plan, search.replan.HeldContents())
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: no replica can be left out to make %d pipelines fit", len(search.incumbent.Plan.Pipelines))
	}
	outcome := search.outcome
	outcome.Warnings, outcome.RPS, outcome.StoppedBy = warnings, plan.ModelRPS, search.stoppedBy
	outcome.Pipelines = placement.PlacedPipelines(catalogue, plan, places)
	if search.replan != nil {
		outcome.MovedDevices = search.replan.CountLoading(outcome.Pipelines)
	}
	if ctx.Err() != nil {
		// The proof was complete before the interruption, but what came after it was cut short.
		outcome.StoppedBy = milp.StoppedByInterrupt
	}
	return plan, nil
}

// moveTries bounds the searches for a plan that keeps the limit on moves in whole devices. Shares of devices may
// keep the limit while the whole devices that hold them do not.
const moveTries = 3

// tightenMoves prepares another search if a finished plan moves more whole devices (which have to load something) than
// the option max-moved allows, a share of all devices. It lowers the search's limit on moves, which counts shares of
// devices, by the excess, forgets the best plan, and returns true. It returns false if the plan keeps the option, if no
// plan runs, after moveTries searches, or if the limit is 0 already and cannot be lowered.
func tightenMoves(ctx context.Context, search *planSearch, movedDevices int) bool {
	if search.replan == nil || ctx.Err() != nil {
		return false
	}
	allowedDevices := search.options.RunningPlan.MaxMoved * float64(search.problem.TotalDevices())
	excess := float64(movedDevices) - allowedDevices
	search.replan.NumSearches++
	if excess <= 1e-9 || search.replan.NumSearches == moveTries || search.replan.MaxMoved == 0 {
		return false
	}
	search.replan.MaxMoved = max(search.replan.MaxMoved-excess, 0)
	search.incumbent.Plan = nil
	return true
}
