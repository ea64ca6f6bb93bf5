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
func runOnce(ctx context.Context, m *milp.Model, o *milp.Options, alternative fallback) (*runResult, error) {
	call := newCall(m, o, alternative)
	defer call.pinner.Unpin()

	// Pass the callbacks through a handle. The context sets the stop flag.
	call.callbacks = &callbackState{model: m, incumbent: o.Incumbent, progress: o.Progress, targetValue: o.TargetValue, stop: call.stop}
	if call.mip {
		h := cgo.NewHandle(call.callbacks)
		defer h.Delete()
		call.problem.handle = C.uintptr_t(h)
		if o.Progress != nil {
			call.problem.progress = 1
		}
	}
	unwatch := context.AfterFunc(ctx, func() { atomic.StoreInt32(call.stop, 1) })
	defer unwatch()

	// Run.
	rc := C.inferplan_highs_solve(call.problem, call.answer)
	runtime.KeepAlive(m)
	if call.callbacks.panicValue != nil {
		return nil, fmt.Errorf("%w: %v", errCallback, call.callbacks.panicValue)
	}
	if rc != 0 {
		return nil, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&call.answer.error[0]))
	}
	return call.readResult(), nil
}

// newCall returns a call for a model. The caller must unpin its memory. A call holds the problem and the answer in C's
// layout, with their memory pinned, so that Go does not move it while C++ uses it.
func newCall(m *milp.Model, o *milp.Options, alternative fallback) *highsCall {
	call := &highsCall{model: m, mip: m.NumIntegers() > 0, stop: new(int32)}
	call.pinner.Pin(call.stop)
	call.setModel()
	call.setOptions(o)
	call.setFallback(alternative)
	call.setAnswer()
	return call
}

// setModel fills in the model in the layout of HiGHS: costs and bounds by column (variable), bounds by row, and the
// coefficients column by column. All lists of numbers are parts of one allocation.
func (c *highsCall) setModel() {
	nc, nr := c.model.NumVars(), c.model.NumRows()
	cols := c.model.Columns()
	floats := make([]float64, 3*nc+2*nr)
	cost, lo, hi := floats[:nc], floats[nc:2*nc], floats[2*nc:3*nc]
	rowLo, rowHi := floats[3*nc:3*nc+nr], floats[3*nc+nr:]
	var integrality []int32
	if c.mip {
		integrality = make([]int32, nc)
	}

	// Variables and rows.
	for j := range nc {
		v := milp.Var(j)
		cost[j] = c.model.Obj(v)
		lo[j], hi[j] = c.model.Bounds(v)
		if c.mip && c.model.IsInteger(v) {
			integrality[j] = 1
		}
	}
	for i := range nr {
		rowLo[i], rowHi[i] = c.model.RowBounds(milp.Row(i))
	}

	// The problem, with all memory pinned.
	c.problem = &C.inferplan_highs_problem{
		num_col: C.int32_t(nc), num_row: C.int32_t(nr), num_nz: C.int32_t(len(cols.Index)),
		offset: C.double(c.model.Offset()),
		cost:   pinDoubles(&c.pinner, cost), lo: pinDoubles(&c.pinner, lo), hi: pinDoubles(&c.pinner, hi),
		row_lo: pinDoubles(&c.pinner, rowLo), row_hi: pinDoubles(&c.pinner, rowHi),
		a_start: pinInts(&c.pinner, cols.Start), a_index: pinInts(&c.pinner, cols.Index), a_value: pinDoubles(&c.pinner, cols.Value),
		integrality: pinInts(&c.pinner, integrality),
		stop:        (*C.int32_t)(unsafe.Pointer(c.stop)),
	}
	if c.model.Sense() == milp.Maximize {
		c.problem.maximize = 1
	}
}

// setOptions fills in the options, with the start (of a mixed-integer program) or the basis (of a linear one). An effort
// of -1 leaves HiGHS's default for heuristics; 0, for a negative option, turns them off.
func (c *highsCall) setOptions(o *milp.Options) {
	c.problem.rel_gap, c.problem.abs_gap = C.double(o.Gap), defaultAbsGap
	if o.AbsGap > 0 {
		c.problem.abs_gap = C.double(o.AbsGap)
	}
	c.problem.time_limit = C.double(o.TimeLimit.Seconds())
	c.problem.max_nodes, c.problem.max_iterations, c.problem.max_stall = C.int64_t(o.MaxNodes), C.int64_t(o.MaxIterations), C.int64_t(o.MaxStall)
	c.problem.seed = C.int32_t(o.Seed)
	switch {
	case o.HeuristicEffort > 0:
		c.problem.heuristic_effort = C.double(o.HeuristicEffort)
	case o.HeuristicEffort == 0:
		c.problem.heuristic_effort = -1
	}
	if !o.NoPresolve {
		c.problem.presolve = 1
	}
	if c.mip && o.Start != nil {
		setStart(c.problem, &c.pinner, o.Start)
	}
	if !c.mip && o.Basis != nil {
		colBasis, rowBasis := extendBasis(c.model, o.Basis)
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
	nc, nr := c.model.NumVars(), c.model.NumRows()
	values := make([]float64, 2*nc+nr)
	c.x, c.colDual, c.rowDual = values[:nc:nc], values[nc:2*nc:2*nc], values[2*nc:]
	c.basis = make([]int32, nc+nr)
	c.answer = &C.inferplan_highs_answer{
		col_value: pinDoubles(&c.pinner, c.x), col_dual: pinDoubles(&c.pinner, c.colDual), row_dual: pinDoubles(&c.pinner, c.rowDual),
		col_basis: pinInts(&c.pinner, c.basis[:nc]), row_basis: pinInts(&c.pinner, c.basis[nc:]),
	}
}

// cpuTime returns the CPU time that a run took.
func cpuTime(a *C.inferplan_highs_answer) time.Duration {
	return time.Duration(float64(a.cpu_seconds) * float64(time.Second))
}

// readResult returns the answer of the run in Go's terms. Its lists are those that HiGHS filled in; each is nil if HiGHS
// has none. Duals are taken only from an optimum.
func (c *highsCall) readResult() *runResult {
	r := &runResult{
		mip: c.mip, modelStatus: int(c.answer.model_status), stopReason: c.answer.stopped, reachedTarget: c.callbacks.reachedTarget,
		objective: float64(c.answer.objective), bound: float64(c.answer.bound),
		stats: milp.Stats{
			Nodes: int64(c.answer.nodes), Iterations: int64(c.answer.iterations), Incumbents: c.callbacks.incumbentCount,
			CPU: cpuTime(c.answer),
		},
	}
	if c.answer.has_x != 0 {
		r.x = c.x
	}
	if c.answer.has_dual != 0 && r.modelStatus == modelOptimal {
		r.colDual, r.rowDual = c.colDual, c.rowDual
	}
	if c.answer.has_basis != 0 {
		r.basis = readBasis(c.basis, c.model.NumVars())
	}
	return r
}

// setStart passes a solution to start from: all of it or, if some entries are NaN (left open), a sparse list of the
// others, which HiGHS completes.
func setStart(p *C.inferplan_highs_problem, pin *runtime.Pinner, start []float64) {
	var index []int32
	var value []float64
	for j, x := range start {
		if !math.IsNaN(x) {
			index, value = append(index, int32(j)), append(value, x)
		}
	}
	if len(index) == len(start) {
		p.start = pinDoubles(pin, value)
		return
	}
	p.num_start = C.int32_t(len(index))
	p.start_index, p.start_value = pinInts(pin, index), pinDoubles(pin, value)
}

// extendBasis extends a basis to the model's size. Variables added since are nonbasic and rows added since are basic, so
// there are as many basic ones as rows. A nonbasic variable is at a finite bound, or at zero without one.
func extendBasis(m *milp.Model, b *milp.Basis) (cols, rows []int32) {
	cols, rows = make([]int32, m.NumVars()), make([]int32, m.NumRows())
	for j := range cols {
		if j < len(b.Vars) {
			cols[j] = int32(b.Vars[j])
			continue
		}
		switch lo, hi := m.Bounds(milp.Var(j)); {
		case !math.IsInf(lo, 0):
			cols[j] = int32(milp.AtLower)
		case !math.IsInf(hi, 0):
			cols[j] = int32(milp.AtUpper)
		default:
			cols[j] = int32(milp.AtZero)
		}
	}
	for i := range rows {
		rows[i] = int32(milp.Basic)
		if i < len(b.Rows) {
			rows[i] = int32(b.Rows[i])
		}
	}
	return cols, rows
}

// readBasis returns HiGHS's basis. status has the statuses of nc variables and then those of the rows, in the numbers of
// milp.BasisStatus.
func readBasis(status []int32, nc int) *milp.Basis {
	b := &milp.Basis{Vars: make([]milp.BasisStatus, nc), Rows: make([]milp.BasisStatus, len(status)-nc)}
	for j := range b.Vars {
		b.Vars[j] = milp.BasisStatus(status[j])
	}
	for i := range b.Rows {
		b.Rows[i] = milp.BasisStatus(status[nc+i])
	}
	return b
}

// pinDoubles pins a slice and returns the address of its first element, or nil if it is empty.
func pinDoubles(pin *runtime.Pinner, s []float64) *C.double { return (*C.double)(pinned(pin, s)) }

// pinInts is pinDoubles for integers.
func pinInts(pin *runtime.Pinner, s []int32) *C.int32_t { return (*C.int32_t)(pinned(pin, s)) }

// pinned pins a slice and returns the address of its first element, or nil if it is empty.
func pinned[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return unsafe.Pointer(&s[0])
}
