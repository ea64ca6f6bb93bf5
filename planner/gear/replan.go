package gear

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/planner/gear/trials"
	"inferplan/planner/kind"
	"inferplan/planner/moves"
	"inferplan/solver/milp"
)

// replan returns the outcome of a plan that starts from the one that runs, which moves at most the share of the devices
// that the option max-moved says, and is no worse by the trials of both. The candidates are the plan that runs as it is; the
// best plan of all, if it moves few enough; and the best plans that move no device, at most one, two, four and so on, up to
// as many as may move. These are searched for until a candidate is within the option gap of the best plan of all. Of the
// candidates within the gap of the best one, it takes that with the fewest moves.
func (f *resolvedWorkload) replan(ctx context.Context) (*kind.Outcome, error) {
	running, requested := f.readRunning(), f.problem
	runningPlan, reason, err := running.judge(ctx, requested.OverRequests)
	if err != nil {
		return nil, fmt.Errorf("judging the plan that runs: %w", err)
	}

	// The best plan of all. If none is found, what runs may stand. If the planner chose that the SLO is over all requests,
	// what runs is judged again by that.
	bestPlan, err := f.search(ctx, requested)
	_, isInfeasible := errors.AsType[*kind.InfeasibleError](err)
	if err != nil && (runningPlan == nil || !isInfeasible && ctx.Err() == nil) {
		return nil, err
	}
	if bestPlan != nil && bestPlan.plan.Problem.OverRequests != requested.OverRequests {
		if runningPlan, reason, err = running.judge(ctx, true); err != nil {
			return nil, fmt.Errorf("judging the plan that runs: %w", err)
		}
	}

	// Candidates, by the outcome that each has.
	plans := map[*kind.Outcome]*foundPlan{}
	chooser := &moves.Chooser{Sense: kind.SenseOf(f.objective), Gap: f.input.Values.Number("gap"), MaxMoved: moves.MaxDevices(f.input, f.pools)}
	add := func(found *foundPlan) (moved int, err error) {
		o := f.planOutcome(found.plan)
		if err := moves.Renumber(f.input, o); err != nil {
			return 0, err
		}
		plans[o] = found
		return chooser.Add(o), nil
	}
	if runningPlan != nil {
		f.setBounds(runningPlan, bestPlan)
		if _, err := add(&foundPlan{runningPlan, requested.TargetAccuracy}); err != nil {
			return nil, err
		}
	}
	bestMoved := 0
	if bestPlan != nil {
		if bestMoved, err = add(bestPlan); err != nil {
			return nil, err
		}
		for limit := range chooser.Limits(ctx, bestPlan.plan.Value, bestMoved) {
			found, err := f.search(ctx, requested.WithRunning(running.devices(), limit))
			if _, isInfeasible := errors.AsType[*kind.InfeasibleError](err); err != nil && !isInfeasible && ctx.Err() == nil {
				return nil, err
			}
			if err != nil {
				continue
			}
			if _, err := add(found); err != nil {
				return nil, err
			}
		}
	}

	// The chosen plan, with its moves and the value of the plan that runs.
	chosen := chooser.Best()
	if chosen == nil {
		return nil, moves.TooManyError(f.pools, chooser.MaxMoved, bestMoved)
	}
	o, err := f.completeOutcome(ctx, plans[chosen])
	if err != nil {
		return nil, err
	}
	if err := moves.Renumber(f.input, o); err != nil {
		return nil, err
	}
	if runningPlan == nil {
		f.run.Assume("the plan that runs has no value of the objective today: %s", reason)
		return o, nil
	}
	o.Replan.RunningValue = &runningPlan.Value
	f.run.Assume("the plan that runs is judged as new plans are: by trials at the upper edges of the ranges of rates, each with the gear that serves that rate today")
	return o, nil
}

// setBounds gives the plan that runs the bounds of the best plan of all, which hold for every plan. If there is none, they
// are those that hold for any problem.
func (f *resolvedWorkload) setBounds(running *trials.Plan, bestPlan *foundPlan) {
	bounds := slices.Repeat([]float64{1}, len(running.Gears))
	total, sense := 1.0, kind.SenseOf(f.objective)
	if sense == milp.Maximize {
		running.ValueBound = 1
	}
	if bestPlan != nil {
		total, running.ValueBound, running.CascadeCount = bestPlan.plan.Bound, bestPlan.plan.ValueBound, bestPlan.plan.CascadeCount
		for i := range bounds {
			bounds[i] = bestPlan.plan.Gears[i].Bound
		}
	}
	running.SetBounds(bounds, total)
	running.ValueBound = kind.ValidBound(sense, running.Value, running.ValueBound)
}
