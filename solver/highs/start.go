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

// solveWithStart solves until there is a verdict, and makes sure that a start (a solution to start from) does not hide a
// better solution. Solver.Solve calls it.
//
// Presolve can remove the whole objective of a mixed-integer program. Then every solution that it leaves has the same
// value, and one of them is optimal. HiGHS 1.10.0 assumes that such an objective takes whole numbers only. A worse
// start, which presolve has excluded, then counts as optimal unless some solution is better by 1 or more. So if
// presolve leaves a constant objective, the value of HiGHS's optimum is compared with that constant. If the optimum is
// worse, the model is solved again without the start.
func solveWithStart(ctx context.Context, m *milp.Model, o *milp.Options) (*runResult, error) {
	r, err := solveUntilVerdict(ctx, m, o)
	if err != nil {
		return r, err
	}

	// Only an optimum that is no better than the start may be the start itself, and only presolve excludes a start.
	mayBeWrong := r.mip && o.Start != nil && !o.NoPresolve && r.modelStatus == modelOptimal
	if !mayBeWrong || beatsStart(m, o.Start, r.objective) {
		return r, nil
	}

	// Compare with the value that presolve leaves. A shortfall within the gaps of the options only changes the bound.
	presolved, err := presolveObjective(m, o)
	if err != nil {
		return nil, err
	}
	r.stats.CPU += presolved.cpu
	shortfall := presolved.value - r.objective
	if m.Sense() == milp.Minimize {
		shortfall = -shortfall
	}
	switch {
	case !presolved.constant || shortfall <= 0:
		return r, nil
	case shortfall <= max(o.AbsGap, defaultAbsGap, o.Gap*math.Abs(r.objective)):
		r.bound = presolved.value
		return r, nil
	}
	return solveWithoutStart(ctx, m, o, r, presolved.value)
}

// beatsStart reports whether an objective is better than that of a start. Then its solution is one that presolve left,
// and as good as any of these. If the start leaves a variable open, it returns false.
func beatsStart(m *milp.Model, start []float64, objective float64) bool {
	startValue := m.Value(start) // NaN if the start leaves a variable open
	gain := objective - startValue
	if m.Sense() == milp.Minimize {
		gain = -gain
	}
	return gain > 1e-6*max(1, math.Abs(startValue))
}

// solveWithoutStart solves the model again without the solution from which the first run started, because that solution
// hides a better one (solveWithStart). bound is the value that all solutions have that presolve leaves, and so the optimum.
// If it finds no solution, it returns the one of the first run with that bound. The status is then one that counts as a
// work limit (modelSolutionLimit), unless the second run ended by time or an interrupt.
func solveWithoutStart(ctx context.Context, m *milp.Model, o *milp.Options, first *runResult, bound float64) (*runResult, error) {
	withoutStart := *o
	withoutStart.Start = nil
	r, err := solveUntilVerdict(ctx, m, &withoutStart)
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
type presolvedObjective struct {
	constant bool    // all solutions that are left have the same value
	value    float64 // this value, if constant is true
	cpu      time.Duration
}

// presolveObjective returns the objective that HiGHS's presolve leaves of a mixed-integer program: whether it is
// constant, its value, and the CPU time that it took. An error wraps milp.ErrFault.
func presolveObjective(m *milp.Model, o *milp.Options) (presolvedObjective, error) {
	c := newCall(m, o, fallback{})
	defer c.pinner.Unpin()
	rc := C.inferplan_highs_presolve(c.problem, c.answer)
	runtime.KeepAlive(m)
	if rc != 0 {
		return presolvedObjective{}, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&c.answer.error[0]))
	}
	return presolvedObjective{c.answer.constant != 0, float64(c.answer.objective), cpuTime(c.answer)}, nil
}
