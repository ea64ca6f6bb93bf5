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
func solveWithStart(ctx context.Context, model *milp.Model, options *milp.Options) (*runResult, error) {
	result, err := solveUntilVerdict(ctx, model, options)
	if err != nil {
		return result, err
	}

	// Only an optimum that is no better than the start may be the start itself, and only presolve excludes a start.
	mayBeWrong := result.mip && options.Start != nil && !options.NoPresolve && result.modelStatus == modelOptimal
	if !mayBeWrong || beatsStart(model, options.Start, result.objective) {
		return result, nil
	}

	// Compare with the value that presolve leaves. A shortfall within the gaps of the options only changes the bound.
	presolved, err := presolveObjective(model, options)
	if err != nil {
		return nil, err
	}
	result.stats.CPU += presolved.cpu
	shortfall := presolved.value - result.objective
	if model.Sense() == milp.Minimize {
		shortfall = -shortfall
	}
	switch {
	case !presolved.constant || shortfall <= 0:
		return result, nil
	case shortfall <= max(options.AbsGap, defaultAbsGap, options.Gap*math.Abs(result.objective)):
		result.bound = presolved.value
		return result, nil
	}
	return solveWithoutStart(ctx, model, options, result, presolved.value)
}

// minRelativeGain is the relative gain of the objective from which on a solution counts as better than the start.
const minRelativeGain = 1e-6

// beatsStart reports whether an objective is better than that of a start, by more than minRelativeGain. A better solution
// is not the start itself, so it is one of those that presolve left. If the start leaves a variable open, it returns
// false.
func beatsStart(model *milp.Model, start []float64, objective float64) bool {
	startValue := model.Value(start) // NaN if the start leaves a variable open
	gain := objective - startValue
	if model.Sense() == milp.Minimize {
		gain = -gain
	}
	return gain > minRelativeGain*max(1, math.Abs(startValue))
}

// solveWithoutStart solves the model again without the solution from which the first run started, because that solution
// hides a better one (solveWithStart). bound is the value that all solutions have that presolve leaves, and so the optimum.
// If it finds no solution, it returns the one of the first run with that bound. The status is then one that counts as a
// work limit (modelSolutionLimit), unless the second run ended by time or an interrupt.
func solveWithoutStart(ctx context.Context, model *milp.Model, options *milp.Options, first *runResult, bound float64) (*runResult, error) {
	withoutStart := *options
	withoutStart.Start = nil
	second, err := solveUntilVerdict(ctx, model, &withoutStart)
	if err != nil {
		return nil, err
	}
	second.stats.Add(first.stats)
	if second.x == nil {
		second.x, second.objective, second.bound = first.x, first.objective, bound
		if second.modelStatus != modelTimeLimit && second.modelStatus != modelInterrupt {
			second.modelStatus = modelSolutionLimit
		}
	}
	return second, nil
}

// presolvedObjective is the objective that presolve leaves of a model.
type presolvedObjective struct {
	constant bool    // all solutions that are left have the same value
	value    float64 // this value, if constant is true
	cpu      time.Duration
}

// presolveObjective returns the objective that HiGHS's presolve leaves of a mixed-integer program: whether it is
// constant, its value, and the CPU time that it took. An error wraps milp.ErrFault.
func presolveObjective(model *milp.Model, options *milp.Options) (presolvedObjective, error) {
	call := newCall(model, options, fallback{})
	defer call.pinner.Unpin()
	returnCode := C.inferplan_highs_presolve(call.problem, call.answer)
	runtime.KeepAlive(model)
	if returnCode != 0 {
		return presolvedObjective{}, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&call.answer.error[0]))
	}
	return presolvedObjective{call.answer.constant != 0, float64(call.answer.objective), cpuTime(call.answer)}, nil
}
