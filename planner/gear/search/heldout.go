package search

import (
	"cmp"
	"context"
	"math"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/solver/milp"
)

// Limits of the search for a plan that keeps its accuracy on held-out samples: number of plans, and step of the
// planned accuracy below which no other plan is made.
const (
	maxHeldOutPlans = 8
	heldOutStep     = 2e-4
)

// SolveHeldOut returns the best plan that reaches the target accuracy twice: on the planning samples, and by the lower
// end of its confidence interval on the held-out samples. If the plan for the target misses it on the held-out samples,
// plans are made for higher accuracies, first for as much more as that plan lacks. The second result is the accuracy
// that was planned for. Bounds of plans that reach the target on the planning samples hold for these plans, too.
// Without held-out samples or a target it is Solve. If ctx ends after a plan was found, it returns the best so far.
func SolveHeldOut(ctx context.Context, p *cascades.Problem, solver milp.Solver, o Options) (*trials.Plan, float64, error) {
	// Plan for the target itself.
	cache, history := cascades.CascadeCache{}, trials.NewHistory(o.Seed)
	plan, err := solveWithCache(ctx, p, solver, o, cache, history)
	if err != nil || p.TargetAccuracy == 0 {
		return plan, p.TargetAccuracy, err
	}
	heldOut, ok := plan.HeldOutAccuracy()
	if !ok || heldOut.Low >= p.TargetAccuracy {
		return plan, p.TargetAccuracy, nil
	}

	// Raise the planned accuracy until the held-out samples reach the target or there is no plan, and then bisect. A higher target
	// has no plan below the latency of a lower one, so a search for the least latency starts at that of the last plan that was too
	// low: the SLO of a plan's problem is then the latency that it was made for.
	targets := &targetSearch{firstPlan: plan, lastTooLow: plan, closest: heldOut, lowTarget: p.TargetAccuracy, highTarget: math.Inf(1)}
	next := p.TargetAccuracy + p.TargetAccuracy - heldOut.Low
	for try := 1; try < maxHeldOutPlans && targets.highTarget-targets.lowTarget > heldOutStep && !targets.isProved(); try++ {
		q := *p
		q.TargetAccuracy = min(1, next)
		o.startLatency = targets.lastTooLow.Problem.SLO
		attempt, err := solveWithCache(ctx, &q, solver, o, cache, history)
		hasPlan, isInfeasible := err == nil, cascades.IsInfeasible(err)
		if !hasPlan && !isInfeasible {
			// An interrupt ends the search with the best plan, if there is one. Any other error is returned.
			if _, err = trials.PlanOrError(ctx, targets.bestPlan, err); err != nil {
				return nil, 0, err
			}
			break
		}
		next = targets.nextTarget(p.TargetAccuracy, q.TargetAccuracy, attempt, hasPlan)
	}
	if targets.bestPlan == nil {
		return nil, 0, cmp.Or[error](ctx.Err(), &cascades.InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: targets.closest.Low, ClosestHeldOut: &targets.closest})
	}
	return targets.finalPlan(p), targets.bestTarget, nil
}

// targetSearch searches for the accuracy to plan for, between one that is too low and one that suffices or is out
// of reach.
type targetSearch struct {
	firstPlan             *trials.Plan             // plan for the requested accuracy
	lastTooLow            *trials.Plan             // latest plan whose held-out accuracy is too low
	closest               cascades.HeldOutAccuracy // highest held-out accuracy that was too low
	bestPlan              *trials.Plan             // best plan that suffices; nil if there is none
	bestTarget            float64                  // accuracy that bestPlan was planned for
	lowTarget, highTarget float64                  // planned accuracies: too low, and high enough or out of reach
}

// isProved reports whether the best plan is no worse in latency or price than the first plan, which only had to reach
// the requested accuracy on the planning samples. Then no better one is looked for.
func (t *targetSearch) isProved() bool {
	return t.bestPlan != nil && t.bestPlan.Value <= t.firstPlan.Value
}

// nextTarget records the plan that was made for an accuracy, plannedTarget (ok is false if there was none), and returns
// the accuracy to plan for next. The plan suffices if the lower end of its held-out interval reaches requested, the
// accuracy that the user asked for. The accuracies to plan for are more than that. As long as none is known to be high
// enough or out of reach, the next is higher by what the plan lacks. After that it is half way between lowTarget and
// highTarget.
func (t *targetSearch) nextTarget(requested, plannedTarget float64, plan *trials.Plan, ok bool) float64 {
	if !ok {
		t.highTarget = plannedTarget
		return (t.lowTarget + t.highTarget) / 2
	}

	// The plan suffices: try less.
	heldOut, _ := plan.HeldOutAccuracy()
	if heldOut.Low >= requested {
		if t.bestPlan == nil || plan.Value < t.bestPlan.Value {
			t.bestPlan, t.bestTarget = plan, plannedTarget
		}
		t.highTarget = plannedTarget
		return (t.lowTarget + t.highTarget) / 2
	}

	// It does not suffice. lastTooLow is never nil: it begins as the plan for the requested accuracy.
	isSamePlan := plan.Value == t.lastTooLow.Value && plan.Accuracy == t.lastTooLow.Accuracy
	t.lowTarget, t.lastTooLow = plannedTarget, plan
	if heldOut.Low > t.closest.Low {
		t.closest = heldOut
	}
	if !math.IsInf(t.highTarget, 1) {
		return (t.lowTarget + t.highTarget) / 2
	}

	// No upper end is known: try more. If the same plan came twice, any target up to its accuracy would lead to it again.
	next := plannedTarget + max(heldOutStep, requested-heldOut.Low)
	if isSamePlan && !(next > plan.Accuracy) {
		return plan.Accuracy + heldOutStep
	}
	return next
}

// finalPlan returns the best plan as a plan of problem p, with the accuracy that the user asked for as its target and
// not the one that it was planned for. Its bounds on the value are those of the first plan, which was made for the
// user's accuracy. It changes the best plan.
func (t *targetSearch) finalPlan(p *cascades.Problem) *trials.Plan {
	plan := t.bestPlan
	q := *plan.Problem
	q.TargetAccuracy = p.TargetAccuracy
	plan.Problem = &q
	plan.ValueBound = min(t.firstPlan.ValueBound, plan.Value)
	plan.IsProved = plan.Value <= plan.ValueBound*(1+1e-9)
	plan.TrialBound = min(t.firstPlan.TrialBound, plan.Value)
	return plan
}
