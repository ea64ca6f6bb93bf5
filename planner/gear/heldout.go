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
type HeldOut struct{ Accuracy, Low, High float64 }

// heldOutConfidence is the confidence of these intervals.
const confidence = .95

// HeldOutAccuracy returns the plan's accuracy on the held-out samples. It returns false if there are none.
func (out *Outcome) HeldOut() (h HeldOut, ok bool) {
	p := out.Problem
	if p.HeldOut == nil || p.HeldOut.N == 0 {
		return h, false
	}
	right := make([]float64, p.HeldOut.N) // by sample: share of the requests, over the ranges, that would be answered correctly

	// Replay the gear of each range.
	for r := range out.Gears {
		n, c := 0, &out.Gears[r].Cascade
		p.HeldOut.each(c.Models, c.Levels, func(i, _ int, ok bool) {
			if ok {
				right[i] += p.Weights[r]
				n++
			}
		})
		h.Accuracy += p.Weights[r] * float64(n) / float64(len(right))
	}
	h.Accuracy = min(1, h.Accuracy) // more is rounding

	// The interval, by the variance between samples.
	squares := 0.0
	for _, x := range right {
		squares += x * x / float64(len(right))
	}
	h.Low, h.High = interval(h.Accuracy, squares-h.Accuracy*h.Accuracy, float64(len(right)))
	return h, true
}

// wilsonInterval returns Wilson's interval of the mean of n values from 0 to 1. Values of less variance than zeros
// and ones count as more values.
func interval(mean, variance, n float64) (low, high float64) {
	if most := mean * (1 - mean); variance > 1e-12 && variance < most {
		n *= most / variance
	}
	return report.WilsonOf(mean, n, confidence)
}

// Limits of the search for a plan that keeps its accuracy on held-out samples: number of plans, and step of the
// planned accuracy below which no other plan is made.
const (
	heldOutTries = 8
	heldOutStep  = 2e-4
)

// SolveHeldOut returns a plan that reaches the target accuracy on the planning samples, and by the lower end of
// its interval on the held-out samples. For that it plans for more than the target, by what the plan before
// lacked. Bounds of plans that reach the target on the planning samples hold for these plans, too. Without
// held-out samples or a target it is Solve. The second result is the accuracy that was planned for. If ctx ends
// after a plan was found, it returns the best so far.
func SolveHeldOut(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, float64, error) {
	// Plan for the target itself.
	known := newCatalogue()
	out, err := solveWith(ctx, p, solver, o, known)
	if err != nil || p.Target == 0 {
		return out, p.Target, err
	}
	h, ok := out.HeldOut()
	if !ok || h.Low >= p.Target {
		return out, p.Target, nil
	}

	// Raise the planned accuracy until the held-out samples reach the target, and then bisect.
	t := &outOfSample{first: out, last: out, closest: h, low: p.Target, high: math.Inf(1)}
	next := p.Target + p.Target - h.Low
	for try := 1; try < heldOutTries && t.high-t.low > heldOutStep && !t.proved(); try++ {
		q := *p
		q.Target = min(1, next)
		o.startLatency = t.last.Problem.SLO
		got, err := solveWith(ctx, &q, solver, o, known)
		if err != nil && !none(err) {
			if _, err = kept(ctx, t.best, err); err != nil {
				return nil, 0, err
			}
			break
		}
		next = t.nextTarget(p.Target, q.Target, got, err == nil)
	}
	if t.best == nil {
		return nil, 0, cmp.Or[error](ctx.Err(), &Infeasible{Target: p.Target, Best: t.closest.Low, HeldOut: &t.closest})
	}
	return t.plan(p), t.planned, nil
}

// targetSearch searches for the accuracy to plan for, between one that is too low and one that suffices or is out
// of reach.
type outOfSample struct {
	first     *Outcome // plan for the requested accuracy
	last      *Outcome // latest plan whose held-out accuracy is too low
	closest   HeldOut  // highest held-out accuracy that was too low
	best      *Outcome // best plan that suffices; nil if there is none
	planned   float64  // accuracy that bestPlan was planned for
	low, high float64  // planned accuracies: too low, and high enough or out of reach
}

// isProved reports whether no plan is better than the best.
func (t *outOfSample) proved() bool { return t.best != nil && t.best.Value <= t.first.Value }

// nextTarget records the plan for a planned accuracy, and returns the accuracy to plan for next. ok is false if
// there was no plan.
func (t *outOfSample) nextTarget(target, planned float64, out *Outcome, ok bool) float64 {
	if !ok {
		t.high = planned
		return (t.low + t.high) / 2
	}

	// The plan suffices: try less.
	h, _ := out.HeldOut()
	if h.Low >= target {
		if t.best == nil || out.Value < t.best.Value {
			t.best, t.planned = out, planned
		}
		t.high = planned
		return (t.low + t.high) / 2
	}

	// It does not suffice: try more, or bisect if an upper end is known.
	if t.low = planned; h.Low > t.closest.Low {
		t.closest = h
	}
	same := out.Value == t.last.Value && out.Accuracy == t.last.Accuracy
	if t.last = out; math.IsInf(t.high, 1) {
		if next := planned + max(heldOutStep, target-h.Low); !same || next > out.Accuracy {
			return next
		}
		return out.Accuracy + heldOutStep // any target up to the plan's accuracy leads to the same plan
	}
	return (t.low + t.high) / 2
}

// finalPlan returns the best plan, with the requested accuracy as its target.
func (t *outOfSample) plan(p *Problem) *Outcome {
	out := t.best
	q := *out.Problem
	q.Target = p.Target
	out.Problem = &q
	out.ValueBound = min(t.first.ValueBound, out.Value)
	out.Proved = out.Value <= out.ValueBound*(1+1e-9)
	out.TriedBound = min(t.first.TriedBound, out.Value)
	return out
}
