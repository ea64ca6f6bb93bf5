//go:build cgo

package highs

// #include "shim.h"
import "C"

import (
	"math"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"unsafe"

	"inferplan/solver/milp"
)

// inferplan_highs_event is called by shim.cc while a mixed-integer solve runs, on the goroutine that solves. A panic of
// the user's callback must not unwind through C++: it stops the solve, which then returns it as an error. The handle
// leads to the solve's callbackState. solution is an improved solution of numCol values, or nil for news of progress. value
// is the objective of the best solution, bound the value that no solution can beat. If the target is reached, the stop flag
// is set, which C++ reads.
//
//export inferplan_highs_event
func inferplan_highs_event(handle C.uintptr_t, numCol C.int32_t, solution *C.double, value, bound C.double, nodes, iterations C.int64_t, cpuSeconds C.double) {
	state := cgo.Handle(handle).Value().(*callbackState)
	defer func() {
		if panicValue := recover(); panicValue != nil {
			state.panicValue = panicValue
			atomic.StoreInt32(state.stop, 1)
		}
	}()
	if state.panicValue != nil {
		return
	}

	// Without a point the event is about progress.
	cpu := time.Duration(float64(cpuSeconds) * float64(time.Second))
	if solution == nil {
		if state.progress != nil {
			bestValue, bestBound := float64(value), float64(bound)
			state.progress(milp.Progress{Value: bestValue, Bound: bestBound, Gap: milp.RelativeGap(state.model.Sense(), bestValue, bestBound), Nodes: int64(nodes), Iterations: int64(iterations), CPU: cpu})
		}
		return
	}

	// Else it is an improved solution.
	state.incumbentCount++
	if state.reachesTarget(float64(value)) {
		state.reachedTarget = true
		atomic.StoreInt32(state.stop, 1)
	}
	if state.incumbent != nil {
		raw := unsafe.Slice((*float64)(unsafe.Pointer(solution)), int(numCol))
		state.incumbent(milp.Incumbent{Value: float64(value), Bound: float64(bound), X: state.model.Round(raw), CPU: cpu, Nodes: int64(nodes)})
	}
}

// reachesTarget reports whether a solution is as good as Options.TargetValue. If there is no target, it returns
// false.
func (s *callbackState) reachesTarget(value float64) bool {
	switch {
	case s.targetValue == 0 || math.IsNaN(s.targetValue):
		return false
	case s.model.Sense() == milp.Maximize:
		return value >= s.targetValue
	}
	return value <= s.targetValue
}
