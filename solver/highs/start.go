//go:build cgo

package highs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"inferplan/solver/milp"
)

// settled solves until there is a verdict, and does not let a start hide what is better.
//
// Presolve can leave a mixed-integer program no objective: then whatever it leaves is equally good, and holds an
// optimum. HiGHS 1.10.0 takes such an objective for one of whole numbers. A start that is worse, which presolve has
// cut off, then counts as the optimum unless there is a solution better by a whole 1. So what is called optimal
// is compared with what presolve leaves, and solved again without the start where it is worse.
func settled(ctx context.Context, m *milp.Model, o *milp.Options) (*result, error) {
	r, err := decided(ctx, m, o)
	if err != nil || !r.mip || o.Start == nil || o.NoPresolve || r.modelStatus != modelOptimal || beyond(m, o.Start, r.objective) {
		return r, err
	}
	left, err := presolve(m, o)
	if err != nil {
		return nil, err
	}
	r.stats.CPU += left.cpu
	short := left.value - r.objective
	if m.Sense() == milp.Minimize {
		short = -short
	}
	switch {
	case !left.constant || short <= 0:
		return r, nil
	case short <= max(o.AbsGap, defaultAbsGap, o.Gap*math.Abs(r.objective)):
		r.bound = left.value
		return r, nil
	}
	return unstarted(ctx, m, o, r, left.value)
}

// beyond tells whether an objective is better than a start's. Then the solution is one that presolve has left, and as
// good as any of these.
func beyond(m *milp.Model, start []float64, objective float64) bool {
	from := m.Value(start) // not a number where the start leaves a variable open
	by := objective - from
	if m.Sense() == milp.Minimize {
		by = -by
	}
	return by > 1e-6*max(1, math.Abs(from))
}

// unstarted solves again without the start, after a run that ended with a solution short of a bound.
func unstarted(ctx context.Context, m *milp.Model, o *milp.Options, first *result, bound float64) (*result, error) {
	free := *o
	free.Start = nil
	r, err := decided(ctx, m, &free)
	if err != nil {
		return nil, err
	}
	r.stats.Add(first.stats)
	if r.x == nil {
		r.x, r.objective, r.bound = first.x, first.objective, bound
		if r.modelStatus != modelTimeLimit && r.modelStatus != modelInterrupt {
			r.modelStatus = modelSolutionLimit
		}
	}
	return r, nil
}

// remainder is what presolve leaves of a model's objective.
type remainder struct {
	constant bool
	value    float64 // of every solution that is left, where it is constant
	cpu      time.Duration
}

// presolve tells what presolve leaves of the objective of a mixed-integer program.
func presolve(m *milp.Model, o *milp.Options) (remainder, error) {
	c := newCall(m, o, rung{})
	defer c.pin.Unpin()
	rc := C.inferplan_highs_presolve(c.p, c.a)
	runtime.KeepAlive(m)
	if rc != 0 {
		return remainder{}, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&c.a.error[0]))
	}
	return remainder{c.a.constant != 0, float64(c.a.objective), cpuTime(c.a)}, nil
}
