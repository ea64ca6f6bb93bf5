package gear

import (
	"cmp"
	"context"
	"math"

	"inferplan/formats/report"
	"inferplan/solver/milp"
)

// HeldOut is what a plan is right in on the samples that were held out, over the ranges
// by weight, with the ends of its interval.
type HeldOut struct{ Accuracy, Low, High float64 }

// confidence of intervals of held-out samples.
const confidence = .95

// HeldOut is the plan's accuracy on the samples held out; false where there are none.
func (out *Outcome) HeldOut() (h HeldOut, ok bool) {
	p := out.Problem
	if p.HeldOut == nil || p.HeldOut.N == 0 {
		return h, false
	}
	right := make([]float64, p.HeldOut.N) // of a sample, the share of the requests that would be right
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
	squares := 0.0
	for _, x := range right {
		squares += x * x / float64(len(right))
	}
	h.Low, h.High = interval(h.Accuracy, squares-h.Accuracy*h.Accuracy, float64(len(right)))
	return h, true
}

// interval is Wilson's of a mean of values from 0 to 1: n of them whose variance is less
// than that of right and wrong count as more.
func interval(mean, variance, n float64) (low, high float64) {
	if most := mean * (1 - mean); variance > 1e-12 && variance < most {
		n *= most / variance
	}
	return report.WilsonOf(mean, n, confidence)
}

// Of the search for a plan that holds its accuracy out of sample: plans made, and the
// step of the planned accuracy that is not worth another.
const (
	heldOutTries = 8
	heldOutStep  = 2e-4
)

// SolveHeldOut plans such that an accuracy asked for is reached on the samples planned
// on and by the lower end of the interval of those held out. For that it plans for more
// than was asked, by what the plan before lacked. What bounds plans that reach the
// accuracy on the samples planned on bounds these as well. Without samples held out, or
// an accuracy asked for, it is Solve. The second result is the accuracy planned for.
// When ctx ends after a plan was found, it returns the best so far.
func SolveHeldOut(ctx context.Context, p *Problem, solver milp.Solver, o Options) (*Outcome, float64, error) {
	known := newCatalogue()
	out, err := solveWith(ctx, p, solver, o, known)
	if err != nil || p.Target == 0 {
		return out, p.Target, err
	}
	h, ok := out.HeldOut()
	if !ok || h.Low >= p.Target {
		return out, p.Target, nil
	}
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

// outOfSample is the search between an accuracy planned for that is too low and one
// that is high enough, or out of reach.
type outOfSample struct {
	first     *Outcome // for the accuracy asked for
	last      *Outcome // that was too low
	closest   HeldOut
	best      *Outcome
	planned   float64
	low, high float64
}

// proved tells that no plan is better.
func (t *outOfSample) proved() bool { return t.best != nil && t.best.Value <= t.first.Value }

// nextTarget hears of a plan, and says what to plan for next.
func (t *outOfSample) nextTarget(target, planned float64, out *Outcome, ok bool) float64 {
	if !ok {
		t.high = planned
		return (t.low + t.high) / 2
	}
	h, _ := out.HeldOut()
	if h.Low >= target {
		if t.best == nil || out.Value < t.best.Value {
			t.best, t.planned = out, planned
		}
		t.high = planned
		return (t.low + t.high) / 2
	}
	if t.low = planned; h.Low > t.closest.Low {
		t.closest = h
	}
	same := out.Value == t.last.Value && out.Accuracy == t.last.Accuracy
	if t.last = out; math.IsInf(t.high, 1) {
		if next := planned + max(heldOutStep, target-h.Low); !same || next > out.Accuracy {
			return next
		}
		return out.Accuracy + heldOutStep // what is asked for up to its accuracy comes to this plan
	}
	return (t.low + t.high) / 2
}

// plan is the best one, asked for the accuracy that was asked for.
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
