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
	before, reason, err := running.judge(ctx, requested.OverRequests)
	if err != nil {
		return nil, fmt.Errorf("judging the plan that runs: %w", err)
	}

	// The best plan of all. If none is found, what runs may stand. If the planner chose that the SLO is over all requests,
	// what runs is judged again by that.
	anew, err := f.search(ctx, requested)
	_, isInfeasible := errors.AsType[*kind.InfeasibleError](err)
	if err != nil && (before == nil || !isInfeasible && ctx.Err() == nil) {
		return nil, err
	}
	if anew != nil && anew.plan.Problem.OverRequests != requested.OverRequests {
		if before, reason, err = running.judge(ctx, true); err != nil {
			return nil, fmt.Errorf("judging the plan that runs: %w", err)
		}
	}

	// Candidates, by the outcome that each has.
	plans := map[*kind.Outcome]*foundPlan{}
	chooser := &moves.Chooser{Sense: f.objectiveSense(), Gap: f.input.Values.Number("gap"), MaxMoved: moves.MaxDevices(f.input, f.pools)}
	add := func(found *foundPlan) (moved int, err error) {
		o := f.planOutcome(found.plan)
		if err := moves.Renumber(f.input, o); err != nil {
			return 0, err
		}
		plans[o] = found
		return chooser.Add(o), nil
	}
	if before != nil {
		f.setBounds(before, anew)
		if _, err := add(&foundPlan{before, requested.TargetAccuracy}); err != nil {
			return nil, err
		}
	}
	anewMoved := 0
	if anew != nil {
		if anewMoved, err = add(anew); err != nil {
			return nil, err
		}
		for limit := 0; limit <= chooser.MaxMoved && limit < anewMoved && ctx.Err() == nil && !chooser.HasNear(anew.plan.Value, limit); limit = moves.NextLimit(limit, chooser.MaxMoved) {
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
		return nil, moves.TooManyError(f.pools, chooser.MaxMoved, anewMoved)
	}
	o, err := f.completeOutcome(ctx, plans[chosen])
	if err != nil {
		return nil, err
	}
	if err := moves.Renumber(f.input, o); err != nil {
		return nil, err
	}
	if before == nil {
		f.run.Assume("the plan that runs has no value of the objective today: %s", reason)
		return o, nil
	}
	o.Replan.RunningValue = &before.Value
	f.run.Assume("the plan that runs is judged as new plans are: by trials at the upper edges of the ranges of rates, each with the gear that serves that rate today")
	return o, nil
}

// setBounds gives the plan that runs the bounds of the best plan of all, which hold for every plan. If there is none, they
// are those that hold for any problem.
func (f *resolvedWorkload) setBounds(running *trials.Plan, anew *foundPlan) {
	bounds := slices.Repeat([]float64{1}, len(running.Gears))
	total, isMaximised := 1.0, f.objectiveSense() == milp.Maximize
	if isMaximised {
		running.ValueBound = 1
	}
	if anew != nil {
		total, running.ValueBound, running.CascadeCount = anew.plan.Bound, anew.plan.ValueBound, anew.plan.CascadeCount
		for i := range bounds {
			bounds[i] = anew.plan.Gears[i].Bound
		}
	}
	if running.SetBounds(bounds, total); isMaximised {
		running.ValueBound = max(running.ValueBound, running.Value)
	} else {
		running.ValueBound = min(running.ValueBound, running.Value)
	}
}
