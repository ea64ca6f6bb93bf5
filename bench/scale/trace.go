package main

import (
	"context"
	"math"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// known holds the knowledge of a solve after some CPU time.
type known struct {
	after        time.Duration
	value, bound float64
	phase        string // that ended then; empty at the end
}

// gap is the relative distance to the bound; 1 without a plan or a bound.
func (k known) gap() float64 {
	if !(k.value > 0) || math.IsNaN(k.bound) || math.IsInf(k.bound, 0) {
		return 1
	}
	return 1 - k.value/k.bound
}

// trace is a solve, with what was known on its way.
type trace struct {
	plan  *formats.Plan
	steps []known
	took  time.Duration
}

// solve plans through the documents. Its CPU time is that of the whole process, so
// that nothing else may run in it.
func solve(ctx context.Context, in planner.Inputs, opt planner.Options, limit time.Duration) (*trace, error) {
	opt.Set("time-limit", limit)
	t := &trace{}
	start := cputime.Used()
	value, bound := math.NaN(), math.Inf(1)
	res, err := planner.Solve(ctx, in, opt, highs.Solver{}, func(p planner.Progress) {
		if p.Value > 0 && !(p.Value <= value) {
			value = p.Value
		}
		if p.Bound > 0 {
			bound = min(bound, p.Bound)
		}
		t.steps = append(t.steps, known{cputime.Used() - start, value, bound, p.Phase})
	})
	if err != nil {
		return nil, err
	}
	t.took = cputime.Used() - start
	t.plan = res.Plan
	t.steps = append(t.steps, known{t.took, res.Plan.Objective.Value, *res.Plan.Objective.Bound, ""})
	return t, nil
}

// last returns the knowledge at the end.
func (t *trace) last() known { return t.steps[len(t.steps)-1] }

// to is the CPU time after which a gap was reached; false where it was not.
func (t *trace) to(gap float64) (time.Duration, bool) {
	for _, k := range t.steps {
		if k.gap() <= gap+1e-9 {
			return k.after, true
		}
	}
	return 0, false
}
