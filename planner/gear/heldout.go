package gear

import (
	"cmp"
	"context"
	"math"

	"inferplan/formats/report"
	"inferplan/solver/milp"
)

// HeldOutAccuracy is the accuracy of a plan on the held-out samples, weighted over the ranges, with the ends of
// its confidence interval.
type HeldOutAccuracy struct{ Accuracy, Low, High float64 }

// heldOutConfidence is the confidence of these intervals.
const heldOutConfidence = .95

// HeldOutAccuracy returns the plan's accuracy on the held-out samples, which planning did not see: the mean
// over the ranges of rates by weight, with a confidence interval. It returns false if there are none.
func (plan *Outcome) HeldOutAccuracy() (heldOut HeldOutAccuracy, ok bool) {
	p := plan.Problem
	if p.HeldOutSamples == nil || p.HeldOutSamples.N == 0 {
		return heldOut, false
	}
	correctShares := make([]float64, p.HeldOutSamples.N) // by sample: share of the requests, over the ranges, that would be answered correctly

	// Replay the gear of each range.
	for r := range plan.Gears {
		n, c := 0, &plan.Gears[r].Cascade
		p.HeldOutSamples.eachSample(c.Models, c.Levels, func(i, _ int, ok bool) {
			if ok {
				correctShares[i] += p.RangeWeights[r]
				n++
			}
		})
		heldOut.Accuracy += p.RangeWeights[r] * float64(n) / float64(len(correctShares))
	}
	heldOut.Accuracy = min(1, heldOut.Accuracy) // more is rounding

	// The interval, by the variance between samples.
	squares := 0.0
	for _, x := range correctShares {
		squares += x * x / float64(len(correctShares))
	}
	heldOut.Low, heldOut.High = wilsonInterval(heldOut.Accuracy, squares-heldOut.Accuracy*heldOut.Accuracy, float64(len(correctShares)))
	return heldOut, true
}

// wilsonInterval returns Wilson's interval of the mean of n values from 0 to 1. Values of less variance than zeros
// and ones count as more values.
func wilsonInterval(mean, variance, n float64) (low, high float64) {
	if binaryVariance := mean * (1 - mean); variance > 1e-12 && variance < binaryVariance {
		n *= binaryVariance / variance
	}
	return report.WilsonOf(mean, n, heldOutConfidence)
}

// Limits of the search for a plan that keeps its accuracy on held-out samples: number of plans, and step of the
// planned accuracy below which no other plan is made.
const (
	maxHeldOutPlans = 8
	heldOutStep     = 2e-4
)

// SolveHeldOut returns a plan that reaches the target accuracy on the planning samples, and by the lower end of
// its interval on the held-out samples. For that it plans for more than the target, by what the plan before
// lacked. Bounds of plans that reach the target on the planning samples hold for these plans, too. Without
// held-out samples or a target it is Solve. The second result is the accuracy that was planned for. If ctx ends
// after a plan was found, it returns the best so far.
func SolveHeldOut(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, float64, error) {
	// Plan for the target itself.
	cache, history := cascadeCache{}, newTrialHistory(o.Seed)
	plan, err := solveWithCache(ctx, p, solver, o, cache, history)
	if err != nil || p.TargetAccuracy == 0 {
		return plan, p.TargetAccuracy, err
	}
	heldOut, ok := plan.HeldOutAccuracy()
	if !ok || heldOut.Low >= p.TargetAccuracy {
		return plan, p.TargetAccuracy, nil
	}

	// Raise the planned accuracy until the held-out samples reach the target, and then bisect.
	targets := &targetSearch{firstPlan: plan, lastTooLow: plan, closest: heldOut, lowTarget: p.TargetAccuracy, highTarget: math.Inf(1)}
	next := p.TargetAccuracy + p.TargetAccuracy - heldOut.Low
	for try := 1; try < maxHeldOutPlans && targets.highTarget-targets.lowTarget > heldOutStep && !targets.isProved(); try++ {
		q := *p
		q.TargetAccuracy = min(1, next)
		o.startLatency = targets.lastTooLow.Problem.SLO
		attempt, err := solveWithCache(ctx, &q, solver, o, cache, history)
		if err != nil && !isInfeasible(err) {
			if _, err = planOrError(ctx, targets.bestPlan, err); err != nil {
				return nil, 0, err
			}
			break
		}
		next = targets.nextTarget(p.TargetAccuracy, q.TargetAccuracy, attempt, err == nil)
	}
	if targets.bestPlan == nil {
		return nil, 0, cmp.Or[error](ctx.Err(), &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: targets.closest.Low, ClosestHeldOut: &targets.closest})
	}
	return targets.finalPlan(p), targets.bestTarget, nil
}

// targetSearch searches for the accuracy to plan for, between one that is too low and one that suffices or is out
// of reach.
type targetSearch struct {
	firstPlan             *Outcome        // plan for the requested accuracy
	lastTooLow            *Outcome        // latest plan whose held-out accuracy is too low
	closest               HeldOutAccuracy // highest held-out accuracy that was too low
	bestPlan              *Outcome        // best plan that suffices; nil if there is none
	bestTarget            float64         // accuracy that bestPlan was planned for
	lowTarget, highTarget float64         // planned accuracies: too low, and high enough or out of reach
}

// isProved reports whether no plan is better than the best.
func (t *targetSearch) isProved() bool {
	return t.bestPlan != nil && t.bestPlan.Value <= t.firstPlan.Value
}

// nextTarget records what planning for an accuracy gave (ok is false if there was no plan), and returns the
// accuracy to plan for next, so that the lower end of the held-out interval just reaches target: more if it
// fell short, less if it suffices, and half way once both ends are known.
func (t *targetSearch) nextTarget(target, plannedTarget float64, plan *Outcome, ok bool) float64 {
	if !ok {
		t.highTarget = plannedTarget
		return (t.lowTarget + t.highTarget) / 2
	}

	// The plan suffices: try less.
	heldOut, _ := plan.HeldOutAccuracy()
	if heldOut.Low >= target {
		if t.bestPlan == nil || plan.Value < t.bestPlan.Value {
			t.bestPlan, t.bestTarget = plan, plannedTarget
		}
		t.highTarget = plannedTarget
		return (t.lowTarget + t.highTarget) / 2
	}

	// It does not suffice: try more, or bisect if an upper end is known.
	if t.lowTarget = plannedTarget; heldOut.Low > t.closest.Low {
		t.closest = heldOut
	}
	unchanged := plan.Value == t.lastTooLow.Value && plan.Accuracy == t.lastTooLow.Accuracy
	if t.lastTooLow = plan; math.IsInf(t.highTarget, 1) {
		if next := plannedTarget + max(heldOutStep, target-heldOut.Low); !unchanged || next > plan.Accuracy {
			return next
		}
		return plan.Accuracy + heldOutStep // any target up to the plan's accuracy leads to the same plan
	}
	return (t.lowTarget + t.highTarget) / 2
}

// finalPlan returns the best plan, with the requested accuracy as its target, as the user asked for that. Its
// bounds are those of the first plan, which was made for just that target.
func (t *targetSearch) finalPlan(p *Problem) *Outcome {
	plan := t.bestPlan
	q := *plan.Problem
	q.TargetAccuracy = p.TargetAccuracy
	plan.Problem = &q
	plan.ValueBound = min(t.firstPlan.ValueBound, plan.Value)
	plan.IsProved = plan.Value <= plan.ValueBound*(1+1e-9)
	plan.TrialBound = min(t.firstPlan.TrialBound, plan.Value)
	return plan
}
