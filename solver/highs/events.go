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
// leads to the solve's callbackState. x is an improved solution of numCol values, or nil for news of progress; value is the
// objective of the best solution, bound that which no solution can beat. A target reached sets the stop flag, which C++
// reads.
//
//export inferplan_highs_event
func inferplan_highs_event(handle C.uintptr_t, numCol C.int32_t, x *C.double, value, bound C.double, nodes, iterations C.int64_t, cpuSeconds C.double) {
	s := cgo.Handle(handle).Value().(*callbackState)
	defer func() {
		if p := recover(); p != nil {
			s.panicValue = p
			atomic.StoreInt32(s.stop, 1)
		}
	}()
	if s.panicValue != nil {
		return
	}

	// Without a point the event is about progress.
	cpu := time.Duration(float64(cpuSeconds) * float64(time.Second))
	if x == nil {
		if s.progress != nil {
			v, b := float64(value), float64(bound)
			s.progress(milp.Progress{Value: v, Bound: b, Gap: milp.RelativeGap(s.model.Sense(), v, b), Nodes: int64(nodes), Iterations: int64(iterations), CPU: cpu})
		}
		return
	}

	// Else it is an improved solution.
	s.incumbentCount++
	if s.reachesTarget(float64(value)) {
		s.reachedTarget = true
		atomic.StoreInt32(s.stop, 1)
	}
	if s.incumbent != nil {
		raw := unsafe.Slice((*float64)(unsafe.Pointer(x)), int(numCol))
		s.incumbent(milp.Incumbent{Value: float64(value), Bound: float64(bound), X: s.model.Round(raw), CPU: cpu, Nodes: int64(nodes)})
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
