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

// solveWithStart solves until there is a verdict, and makes sure that a start does not hide a better solution.
//
// Presolve can remove the whole objective of a mixed-integer program. Then every solution that it leaves is
// equally good, and one of them is optimal. HiGHS 1.10.0 assumes that such an objective takes whole numbers only.
// A worse start, which presolve has excluded, then counts as optimal unless some solution is better by 1 or more.
// So the value of an optimum is compared with the value that presolve leaves. If it is worse, the model is solved
// again without the start.
func settled(ctx context.Context, m *milp.Model, o *milp.Options) (*result, error) {
	r, err := decided(ctx, m, o)
	if err != nil || !r.mip || o.Start == nil || o.NoPresolve || r.modelStatus != modelOptimal || beyond(m, o.Start, r.objective) {
		return r, err
	}

	// Compare with the value that presolve leaves.
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

// beatsStart reports whether an objective is better than that of a start. Then its solution is one that presolve
// left, and as good as any of these.
func beyond(m *milp.Model, start []float64, objective float64) bool {
	from := m.Value(start) // NaN if the start leaves a variable open
	by := objective - from
	if m.Sense() == milp.Minimize {
		by = -by
	}
	return by > 1e-6*max(1, math.Abs(from))
}

// solveWithoutStart solves again without the start, after a run whose solution is worse than a bound. If it finds
// no solution, it returns that of the first run with the bound.
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

// presolvedObjective is the objective that presolve leaves of a model.
type remainder struct {
	constant bool    // all solutions that are left have the same value
	value    float64 // this value, if constant is true
	cpu      time.Duration
}

// presolveObjective returns the objective that presolve leaves of a mixed-integer program.
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
