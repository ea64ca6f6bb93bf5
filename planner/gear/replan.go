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

// replanner searches a plan that starts from the one that runs.
type replanner struct {
	*resolvedWorkload
	running    *runningCascade
	before     *trials.Plan // the plan that runs, judged as new plans are; nil if it does not keep what is asked for
	maxMoved   int          // devices that may move
	candidates []*nearPlan  // that move few enough
}

// nearPlan is a plan that was found, and how many devices it moves.
type nearPlan struct {
	*foundPlan
	moved int
}

// replan returns the outcome of a plan that starts from the one that runs, which moves at most the share of the devices
// that the option max-moved says, and is no worse by the trials of both. The candidates are the plan that runs as it is; the
// best plan of all, if it moves few enough; and the best plans that move no device, at most one, two, four and so on, up to
// as many as may move. These are searched for until a candidate is within the option gap of the best plan of all. Of the
// candidates within the gap of the best one, it takes that with the fewest moves.
func (f *resolvedWorkload) replan(ctx context.Context) (*kind.Outcome, error) {
	r := &replanner{resolvedWorkload: f, running: f.readRunning(), maxMoved: moves.MaxDevices(f.input, f.pools)}
	requested := f.problem
	reason, err := r.judgeRunning(ctx, requested.OverRequests)
	if err != nil {
		return nil, err
	}

	// The best plan of all. If none is found, what runs may stand. If the planner chose that the SLO is over all requests,
	// what runs is judged again by that.
	anew, err := f.search(ctx, requested)
	_, isInfeasible := errors.AsType[*kind.InfeasibleError](err)
	if err != nil && (r.before == nil || !isInfeasible && ctx.Err() == nil) {
		return nil, err
	}
	if anew != nil && anew.plan.Problem.OverRequests != requested.OverRequests {
		if reason, err = r.judgeRunning(ctx, true); err != nil {
			return nil, err
		}
	}
	if r.before != nil {
		f.setBounds(r.before, anew)
		r.add(&foundPlan{r.before, requested.TargetAccuracy})
	}

	// Plans that move few devices, if that of all moves more, or what runs is worse.
	anewMoved := 0
	if anew != nil {
		anewMoved = r.add(anew)
		for limit := 0; limit <= r.maxMoved && limit < anewMoved && ctx.Err() == nil; limit = nextLimit(limit, r.maxMoved) {
			if r.hasNear(anew.plan.Value, limit) {
				break
			}
			found, err := f.search(ctx, requested.WithRunning(r.running.devices(), limit))
			if _, isInfeasible := errors.AsType[*kind.InfeasibleError](err); err != nil && !isInfeasible && ctx.Err() == nil {
				return nil, err
			}
			if err == nil {
				r.add(found)
			}
		}
	}
	if len(r.candidates) == 0 {
		return nil, moves.TooManyError(f.pools, r.maxMoved, anewMoved)
	}
	return r.outcome(ctx, r.choose(), reason)
}

// nextLimit returns the number of devices that the next search may move: one after none, and then twice as many, up to the
// most. After the most it returns more than that.
func nextLimit(limit, most int) int {
	if next := max(1, 2*limit); limit >= most || next <= most {
		return next
	}
	return most
}

// judgeRunning judges the plan that runs. If it does not keep what is asked for, it returns the reason.
func (r *replanner) judgeRunning(ctx context.Context, overRequests bool) (reason string, err error) {
	if r.before, reason, err = r.running.judge(ctx, overRequests); err != nil {
		return "", fmt.Errorf("judging the plan that runs: %w", err)
	}
	return reason, nil
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

// add adds a plan to the candidates, if it moves few enough devices, and returns how many it moves.
func (r *replanner) add(found *foundPlan) int {
	o := r.planOutcome(found.plan)
	moves.Renumber(r.input, o)
	if o.Replan.MovedGPUs <= r.maxMoved {
		r.candidates = append(r.candidates, &nearPlan{found, o.Replan.MovedGPUs})
	}
	return o.Replan.MovedGPUs
}

// isNear reports whether a value is within the option gap of the best one.
func (r *replanner) isNear(value, best float64) bool {
	return milp.RelativeGap(r.objectiveSense(), value, best) <= r.input.Values.Number("gap")
}

// hasNear reports whether a candidate that moves at most so many devices is within the option gap of a value.
func (r *replanner) hasNear(best float64, maxMoved int) bool {
	return slices.ContainsFunc(r.candidates, func(c *nearPlan) bool { return c.moved <= maxMoved && r.isNear(c.plan.Value, best) })
}

// choose returns, of the candidates within the option gap of the best one, the one with the fewest moves, and of those the
// best.
func (r *replanner) choose() *nearPlan {
	isBetter := func(a, b *nearPlan) bool {
		return a.plan.Value != b.plan.Value && (a.plan.Value > b.plan.Value) == (r.objectiveSense() == milp.Maximize)
	}
	best := r.candidates[0]
	for _, c := range r.candidates {
		if isBetter(c, best) {
			best = c
		}
	}
	chosen := best
	for _, c := range r.candidates {
		if r.isNear(c.plan.Value, best.plan.Value) && (c.moved < chosen.moved || c.moved == chosen.moved && isBetter(c, chosen)) {
			chosen = c
		}
	}
	return chosen
}

// outcome returns the chosen plan as the parts of its document, with its moves and the value of the plan that runs. reason
// says why that has none.
func (r *replanner) outcome(ctx context.Context, chosen *nearPlan, reason string) (*kind.Outcome, error) {
	o, err := r.completeOutcome(ctx, chosen.foundPlan)
	if err != nil {
		return nil, err
	}
	moves.Renumber(r.input, o)
	if r.before == nil {
		r.run.Assume("the plan that runs has no value of the objective today: %s", reason)
		return o, nil
	}
	value := r.before.Value
	o.Replan.RunningValue = &value
	r.run.Assume("the plan that runs is judged as new plans are: by trials at the upper edges of the ranges of rates, each with the gear that serves that rate today")
	return o, nil
}
