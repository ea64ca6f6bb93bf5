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
type result struct {
	mip              bool
	modelStatus      int       // HighsModelStatus
	stopped          C.int32_t // which limit of the shim stopped the run
	enough           bool      // a solution reached Options.TargetValue
	objective, bound float64
	x                []float64 // nil if there is no solution
	rowDual, colDual []float64 // nil unless the model was solved to optimality and is linear
	basis            *milp.Basis
	stats            milp.Stats
}

// callbackState is the state of a running solve that its callbacks read and write.
type session struct {
	m          *milp.Model
	incumbent  func(milp.Incumbent)
	progress   func(milp.Progress)
	incumbents int
	enough     float64 // objective at which the run stops; 0 or NaN means none
	reached    bool    // a solution has reached the target
	stop       *int32  // set to 1 to stop the run
	panicked   any     // what a callback panicked with; nil if none did
}

// highsCall is one run of HiGHS, with its input and the memory that it writes its answer to.
type call struct {
	m      *milp.Model
	mip    bool
	pin    runtime.Pinner // keeps the memory that C++ reads and writes in place
	p      *C.inferplan_highs_problem
	a      *C.inferplan_highs_answer
	stop   *int32 // 1 tells the run to end soon
	events *session

	x, colDual, rowDual []float64
	basis               []int32
}

// fallback is another way to run HiGHS on a model. The zero value is HiGHS's own.
type rung struct {
	unscaled, primal, interior bool
	tolerance                  float64 // of feasibility; 0 means HiGHS's own, 1e-7
}

// fallbacks are tried in this order, after a run without presolve, on a model for which HiGHS has no verdict.
var ladder = []rung{{unscaled: true}, {tolerance: 1e-9}, {primal: true}, {interior: true}, {tolerance: 1e-6}, {unscaled: true, primal: true, tolerance: 1e-6}}

// runOnce runs HiGHS on a model. It returns an error that wraps errCallback if a callback panics, and one that
// wraps milp.ErrFault if C++ fails.
func run(ctx context.Context, m *milp.Model, o *milp.Options, way rung) (*result, error) {
	c := newCall(m, o, way)
	defer c.pin.Unpin()

	// Pass the callbacks through a handle. The context sets the stop flag.
	c.events = &session{m: m, incumbent: o.Incumbent, progress: o.Progress, enough: o.Enough, stop: c.stop}
	if c.mip {
		h := cgo.NewHandle(c.events)
		defer h.Delete()
		c.p.handle = C.uintptr_t(h)
		if o.Progress != nil {
			c.p.progress = 1
		}
	}
	defer context.AfterFunc(ctx, func() { atomic.StoreInt32(c.stop, 1) })()

	// Run.
	rc := C.inferplan_highs_solve(c.p, c.a)
	runtime.KeepAlive(m)
	if c.events.panicked != nil {
		return nil, fmt.Errorf("%w: %v", errCallback, c.events.panicked)
	}
	if rc != 0 {
		return nil, fmt.Errorf("%w: %s", milp.ErrFault, C.GoString(&c.a.error[0]))
	}
	return c.result(), nil
}

// newCall returns a call for a model. The caller must unpin its memory.
func newCall(m *milp.Model, o *milp.Options, way rung) *call {
	c := &call{m: m, mip: m.NumIntegers() > 0, stop: new(int32)}
	c.pin.Pin(c.stop)
	c.setModel()
	c.setOptions(o)
	c.setWay(way)
	c.setAnswer()
	return c
}

// setModel fills in the model in the layout of HiGHS.
func (c *call) setModel() {
	nc, nr := c.m.NumVars(), c.m.NumRows()
	cols := c.m.Columns()
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
		cost[j] = c.m.Obj(v)
		lo[j], hi[j] = c.m.Bounds(v)
		if c.mip && c.m.IsInteger(v) {
			integrality[j] = 1
		}
	}
	for i := range nr {
		rowLo[i], rowHi[i] = c.m.RowBounds(milp.Row(i))
	}

	// The problem, with all memory pinned.
	c.p = &C.inferplan_highs_problem{
		num_col: C.int32_t(nc), num_row: C.int32_t(nr), num_nz: C.int32_t(len(cols.Index)),
		offset: C.double(c.m.Offset()),
		cost:   doubles(&c.pin, cost), lo: doubles(&c.pin, lo), hi: doubles(&c.pin, hi),
		row_lo: doubles(&c.pin, rowLo), row_hi: doubles(&c.pin, rowHi),
		a_start: ints(&c.pin, cols.Start), a_index: ints(&c.pin, cols.Index), a_value: doubles(&c.pin, cols.Value),
		integrality: ints(&c.pin, integrality),
		stop:        (*C.int32_t)(unsafe.Pointer(c.stop)),
	}
	if c.m.Sense() == milp.Maximize {
		c.p.maximize = 1
	}
}

// setOptions fills in the options, with the start or the basis.
func (c *call) setOptions(o *milp.Options) {
	c.p.rel_gap, c.p.abs_gap = C.double(o.Gap), defaultAbsGap
	if o.AbsGap > 0 {
		c.p.abs_gap = C.double(o.AbsGap)
	}
	c.p.time_limit = C.double(o.TimeLimit.Seconds())
	c.p.max_nodes, c.p.max_iterations, c.p.max_stall = C.int64_t(o.MaxNodes), C.int64_t(o.MaxIterations), C.int64_t(o.MaxStall)
	c.p.seed = C.int32_t(o.Seed)
	switch {
	case o.HeuristicEffort > 0:
		c.p.heuristic_effort = C.double(o.HeuristicEffort)
	case o.HeuristicEffort == 0:
		c.p.heuristic_effort = -1
	}
	if !o.NoPresolve {
		c.p.presolve = 1
	}
	if c.mip && o.Start != nil {
		setStart(c.p, &c.pin, o.Start)
	}
	if !c.mip && o.Basis != nil {
		colBasis, rowBasis := basisIn(c.m, o.Basis)
		c.p.basis_col, c.p.basis_row = ints(&c.pin, colBasis), ints(&c.pin, rowBasis)
	}
}

// setFallback fills in the settings of a fallback.
func (c *call) setWay(way rung) {
	flag := func(on bool) C.int32_t {
		if on {
			return 1
		}
		return 0
	}
	c.p.unscaled, c.p.primal, c.p.interior = flag(way.unscaled), flag(way.primal), flag(way.interior)
	c.p.tolerance = C.double(way.tolerance)
}

// setAnswer allocates the memory for the answer.
func (c *call) setAnswer() {
	nc, nr := c.m.NumVars(), c.m.NumRows()
	out := make([]float64, 2*nc+nr)
	c.x, c.colDual, c.rowDual = out[:nc:nc], out[nc:2*nc:2*nc], out[2*nc:]
	c.basis = make([]int32, nc+nr)
	c.a = &C.inferplan_highs_answer{
		col_value: doubles(&c.pin, c.x), col_dual: doubles(&c.pin, c.colDual), row_dual: doubles(&c.pin, c.rowDual),
		col_basis: ints(&c.pin, c.basis[:nc]), row_basis: ints(&c.pin, c.basis[nc:]),
	}
}

// cpuTime returns the CPU time that a run took.
func cpuTime(a *C.inferplan_highs_answer) time.Duration {
	return time.Duration(float64(a.cpu_seconds) * float64(time.Second))
}

// readResult returns the answer of the run.
func (c *call) result() *result {
	r := &result{
		mip: c.mip, modelStatus: int(c.a.model_status), stopped: c.a.stopped, enough: c.events.reached,
		objective: float64(c.a.objective), bound: float64(c.a.bound),
		stats: milp.Stats{
			Nodes: int64(c.a.nodes), Iterations: int64(c.a.iterations), Incumbents: c.events.incumbents,
			CPU: cpuTime(c.a),
		},
	}
	if c.a.has_x != 0 {
		r.x = c.x
	}
	if c.a.has_dual != 0 && r.modelStatus == modelOptimal {
		r.colDual, r.rowDual = c.colDual, c.rowDual
	}
	if c.a.has_basis != 0 {
		r.basis = basisOut(c.basis, c.m.NumVars())
	}
	return r
}

// setStart passes a start: all of it, or, if it has NaN entries, only the others.
func setStart(p *C.inferplan_highs_problem, pin *runtime.Pinner, start []float64) {
	var index []int32
	var value []float64
	for j, x := range start {
		if !math.IsNaN(x) {
			index, value = append(index, int32(j)), append(value, x)
		}
	}
	if len(index) == len(start) {
		p.start = doubles(pin, value)
		return
	}
	p.num_start = C.int32_t(len(index))
	p.start_index, p.start_value = ints(pin, index), doubles(pin, value)
}

// extendBasis extends a basis to the model's size. Variables added since are nonbasic and rows added since are
// basic, so there are as many basic ones as rows.
func basisIn(m *milp.Model, b *milp.Basis) (cols, rows []int32) {
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

// readBasis returns HiGHS's basis, of nc variables and then the rows.
func basisOut(status []int32, nc int) *milp.Basis {
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
func doubles(pin *runtime.Pinner, s []float64) *C.double {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.double)(unsafe.Pointer(&s[0]))
}

// pinInts is pinDoubles for integers.
func ints(pin *runtime.Pinner, s []int32) *C.int32_t {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.int32_t)(unsafe.Pointer(&s[0]))
}
