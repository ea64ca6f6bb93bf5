//go:build cgo

package highs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"unsafe"

	"inferplan/solver/milp"
)

// errCallback is in the error of a run whose incumbent or progress callback panicked.
var errCallback = errors.New("an incumbent or progress callback panicked")

// runResult is the answer of one run of HiGHS.
type runResult struct {
	mip              bool
	modelStatus      int       // HighsModelStatus
	stopReason       C.int32_t // which limit of the shim stopped the run
	reachedTarget    bool      // a solution reached Options.TargetValue
	objective, bound float64
	x                []float64 // nil if there is no solution
	rowDual, colDual []float64 // nil unless the model was solved to optimality and is linear
	basis            *milp.Basis
	stats            milp.Stats
}

// callbackState is the state of a running solve that its callbacks read and write.
type callbackState struct {
	model          *milp.Model
	incumbent      func(milp.Incumbent)
	progress       func(milp.Progress)
	incumbentCount int
	targetValue    float64 // objective at which the run stops; 0 or NaN means none
	reachedTarget  bool    // a solution has reached the target
	stop           *int32  // set to 1 to stop the run
	panicValue     any     // what a callback panicked with; nil if none did
}

// highsCall is one run of HiGHS, with its input and the memory that it writes its answer to.
type highsCall struct {
	model     *milp.Model
	mip       bool
	pinner    runtime.Pinner // keeps the memory that C++ reads and writes in place
	problem   *C.inferplan_highs_problem
	answer    *C.inferplan_highs_answer
	stop      *int32 // 1 tells the run to end soon
	callbacks *callbackState

	x, colDual, rowDual []float64
	basis               []int32
}

// fallback is another way to run HiGHS on a model. The zero value is HiGHS's own.
type fallback struct {
	unscaled, primalSimplex, interiorPoint bool
	tolerance                              float64 // of feasibility; 0 means HiGHS's own, 1e-7
}

// fallbacks are tried in this order, after a run without presolve, on a model for which HiGHS has no verdict.
var fallbacks = []fallback{{unscaled: true}, {tolerance: 1e-9}, {primalSimplex: true}, {interiorPoint: true}, {tolerance: 1e-6}, {unscaled: true, primalSimplex: true, tolerance: 1e-6}}

// runOnce runs HiGHS once on a model, with the settings of a fallback (the zero value is HiGHS's own). When ctx ends, a
// flag that HiGHS reads is set, and the run ends with the status of an interrupt. It returns an error that wraps
// errCallback if a callback panics, and one that wraps milp.ErrFault if C++ fails.
func runOnce(ctx context.Context, model *milp.Model, options *milp.Options, alternative fallback) (*runResult, error) {
	call := newCall(model, options, alternative)
	defer call.pinner.Unpin()

	// Pass the callbacks through a handle. The context sets the stop flag.
	call.callbacks = &callbackState{model: model, incumbent: options.Incumbent, progress: options.Progress, targetValue: options.TargetValue, stop: call.stop}
	if call.mip {
		handle := cgo.NewHandle(call.callbacks)
		defer handle.Delete()
		call.problem.handle = C.uintptr_t(handle)
		if options.Progress != nil {
			call.problem.progress = 1
		}
	}
	unwatch := context.AfterFunc(ctx, func() { atomic.StoreInt32(call.stop, 1) })
	defer unwatch()

	// Run.
	returnCode := C.inferplan_highs_solve(call.problem, call.answer)
	runtime.KeepAlive(model)
	if call.callbacks.panicValue != nil {
		return nil, fmt.Errorf("%w: %v", errCallback, call.callbacks.panicValue)
	}
	if returnCode != 0 {
		return nil, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&call.answer.error[0]))
	}
	return call.readResult(), nil
}

// newCall returns a call for a model. The caller must unpin its memory. A call holds the problem and the answer in C's
// layout, with their memory pinned, so that Go does not move it while C++ uses it.
func newCall(model *milp.Model, options *milp.Options, alternative fallback) *highsCall {
	call := &highsCall{model: model, mip: model.NumIntegers() > 0, stop: new(int32)}
	call.pinner.Pin(call.stop)
	call.setModel()
	call.setOptions(options)
	call.setFallback(alternative)
	call.setAnswer()
	return call
}

// setModel fills in the model in the layout of HiGHS: costs and bounds by column (variable), bounds by row, and the
// coefficients column by column. All lists of numbers are parts of one allocation.
func (c *highsCall) setModel() {
	numVars, numRows := c.model.NumVars(), c.model.NumRows()
	columns := c.model.Columns()
	floats := make([]float64, 3*numVars+2*numRows)
	cost, lower, upper := floats[:numVars], floats[numVars:2*numVars], floats[2*numVars:3*numVars]
	rowLower, rowUpper := floats[3*numVars:3*numVars+numRows], floats[3*numVars+numRows:]
	var integrality []int32
	if c.mip {
		integrality = make([]int32, numVars)
	}

	// Variables and rows.
	for j := range numVars {
		variable := milp.Var(j)
		cost[j] = c.model.Obj(variable)
		lower[j], upper[j] = c.model.Bounds(variable)
		if c.mip && c.model.IsInteger(variable) {
			integrality[j] = 1
		}
	}
	for i := range numRows {
		rowLower[i], rowUpper[i] = c.model.RowBounds(milp.Row(i))
	}

	// The problem, with all memory pinned.
	c.problem = &C.inferplan_highs_problem{
		num_col: C.int32_t(numVars), num_row: C.int32_t(numRows), num_nz: C.int32_t(len(columns.Index)),
		offset: C.double(c.model.Offset()),
		cost:   pinDoubles(&c.pinner, cost), lo: pinDoubles(&c.pinner, lower), hi: pinDoubles(&c.pinner, upper),
		row_lo: pinDoubles(&c.pinner, rowLower), row_hi: pinDoubles(&c.pinner, rowUpper),
		a_start: pinInts(&c.pinner, columns.Start), a_index: pinInts(&c.pinner, columns.Index), a_value: pinDoubles(&c.pinner, columns.Value),
		integrality: pinInts(&c.pinner, integrality),
		stop:        (*C.int32_t)(unsafe.Pointer(c.stop)),
	}
	if c.model.Sense() == milp.Maximize {
		c.problem.maximize = 1
	}
}

// setOptions fills in the options, with the start (of a mixed-integer program) or the basis (of a linear one). An effort
// of -1 leaves HiGHS's default for heuristics; 0, for a negative option, turns them off.
func (c *highsCall) setOptions(options *milp.Options) {
	c.problem.rel_gap, c.problem.abs_gap = C.double(options.Gap), defaultAbsGap
	if options.AbsGap > 0 {
		c.problem.abs_gap = C.double(options.AbsGap)
	}
	c.problem.time_limit = C.double(options.TimeLimit.Seconds())
	c.problem.max_nodes, c.problem.max_iterations, c.problem.max_stall = C.int64_t(options.MaxNodes), C.int64_t(options.MaxIterations), C.int64_t(options.MaxStall)
	c.problem.seed = C.int32_t(options.Seed)
	switch {
	case options.HeuristicEffort > 0:
		c.problem.heuristic_effort = C.double(options.HeuristicEffort)
	case options.HeuristicEffort == 0:
		c.problem.heuristic_effort = -1
	}
	if !options.NoPresolve {
		c.problem.presolve = 1
	}
	if c.mip && options.Start != nil {
		setStart(c.problem, &c.pinner, options.Start)
	}
	if !c.mip && options.Basis != nil {
		colBasis, rowBasis := extendBasis(c.model, options.Basis)
		c.problem.basis_col, c.problem.basis_row = pinInts(&c.pinner, colBasis), pinInts(&c.pinner, rowBasis)
	}
}

// setFallback fills in the settings of a fallback.
func (c *highsCall) setFallback(alternative fallback) {
	flag := func(on bool) C.int32_t {
		if on {
			return 1
		}
		return 0
	}
	c.problem.unscaled, c.problem.primal, c.problem.interior = flag(alternative.unscaled), flag(alternative.primalSimplex), flag(alternative.interiorPoint)
	c.problem.tolerance = C.double(alternative.tolerance)
}

// setAnswer allocates and pins the memory for the answer, which HiGHS fills in: the point, the duals, and the basis of
// the variables and then of the rows.
func (c *highsCall) setAnswer() {
	numVars, numRows := c.model.NumVars(), c.model.NumRows()
	values := make([]float64, 2*numVars+numRows)
	c.x, c.colDual, c.rowDual = values[:numVars:numVars], values[numVars:2*numVars:2*numVars], values[2*numVars:]
	c.basis = make([]int32, numVars+numRows)
	c.answer = &C.inferplan_highs_answer{
		col_value: pinDoubles(&c.pinner, c.x), col_dual: pinDoubles(&c.pinner, c.colDual), row_dual: pinDoubles(&c.pinner, c.rowDual),
		col_basis: pinInts(&c.pinner, c.basis[:numVars]), row_basis: pinInts(&c.pinner, c.basis[numVars:]),
	}
}

// cpuTime returns the CPU time that a run took.
func cpuTime(answer *C.inferplan_highs_answer) time.Duration {
	return time.Duration(float64(answer.cpu_seconds) * float64(time.Second))
}

// readResult returns the answer of the run in Go's terms. Its lists are those that HiGHS filled in; each is nil if HiGHS
// has none. Duals are taken only from an optimum.
func (c *highsCall) readResult() *runResult {
	result := &runResult{
		mip: c.mip, modelStatus: int(c.answer.model_status), stopReason: c.answer.stopped, reachedTarget: c.callbacks.reachedTarget,
		objective: float64(c.answer.objective), bound: float64(c.answer.bound),
		stats: milp.Stats{
			Nodes: int64(c.answer.nodes), Iterations: int64(c.answer.iterations), Incumbents: c.callbacks.incumbentCount,
			CPU: cpuTime(c.answer),
		},
	}
	if c.answer.has_x != 0 {
		result.x = c.x
	}
	if c.answer.has_dual != 0 && result.modelStatus == modelOptimal {
		result.colDual, result.rowDual = c.colDual, c.rowDual
	}
	if c.answer.has_basis != 0 {
		result.basis = readBasis(c.basis, c.model.NumVars())
	}
	return result
}

// setStart passes a solution to start from: all of it or, if some entries are NaN (left open), a sparse list of the
// others, which HiGHS completes.
func setStart(problem *C.inferplan_highs_problem, pin *runtime.Pinner, start []float64) {
	var indexes []int32
	var values []float64
	for varIndex, entry := range start {
		if !math.IsNaN(entry) {
			indexes, values = append(indexes, int32(varIndex)), append(values, entry)
		}
	}
	if len(indexes) == len(start) {
		problem.start = pinDoubles(pin, values)
		return
	}
	problem.num_start = C.int32_t(len(indexes))
	problem.start_index, problem.start_value = pinInts(pin, indexes), pinDoubles(pin, values)
}

// extendBasis extends a basis to the model's size. Variables added since are nonbasic and rows added since are basic, so
// there are as many basic ones as rows. A nonbasic variable is at a finite bound, or at zero without one.
func extendBasis(model *milp.Model, basis *milp.Basis) (varStatus, rowStatus []int32) {
	varStatus, rowStatus = make([]int32, model.NumVars()), make([]int32, model.NumRows())
	for varIndex := range varStatus {
		if varIndex < len(basis.Vars) {
			varStatus[varIndex] = int32(basis.Vars[varIndex])
			continue
		}
		switch lower, upper := model.Bounds(milp.Var(varIndex)); {
		case !math.IsInf(lower, 0):
			varStatus[varIndex] = int32(milp.AtLower)
		case !math.IsInf(upper, 0):
			varStatus[varIndex] = int32(milp.AtUpper)
		default:
			varStatus[varIndex] = int32(milp.AtZero)
		}
	}
	for i := range rowStatus {
		rowStatus[i] = int32(milp.Basic)
		if i < len(basis.Rows) {
			rowStatus[i] = int32(basis.Rows[i])
		}
	}
	return varStatus, rowStatus
}

// readBasis returns HiGHS's basis. status has the statuses of nc variables and then those of the rows, in the numbers of
// milp.BasisStatus.
func readBasis(status []int32, numVars int) *milp.Basis {
	basis := &milp.Basis{Vars: make([]milp.BasisStatus, numVars), Rows: make([]milp.BasisStatus, len(status)-numVars)}
	for varIndex := range basis.Vars {
		basis.Vars[varIndex] = milp.BasisStatus(status[varIndex])
	}
	for i := range basis.Rows {
		basis.Rows[i] = milp.BasisStatus(status[numVars+i])
	}
	return basis
}

// pinDoubles pins a slice and returns the address of its first element, or nil if it is empty.
func pinDoubles(pin *runtime.Pinner, list []float64) *C.double { return (*C.double)(pinned(pin, list)) }

// pinInts is pinDoubles for integers.
func pinInts(pin *runtime.Pinner, list []int32) *C.int32_t { return (*C.int32_t)(pinned(pin, list)) }

// pinned pins a slice and returns the address of its first element, or nil if it is empty.
func pinned[T any](pin *runtime.Pinner, list []T) unsafe.Pointer {
	if len(list) == 0 {
		return nil
	}
	pin.Pin(&list[0])
	return unsafe.Pointer(&list[0])
}
