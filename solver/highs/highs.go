//go:build cgo

package highs

/*
#cgo CPPFLAGS: -I${SRCDIR}/../../third_party/highs/prefix/include/highs
#cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra
#cgo LDFLAGS: -L${SRCDIR}/../../third_party/highs/prefix/lib -lhighs -lm -lpthread
#include "shim.h"
*/
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

// Version returns the solver's name and version, as a plan file states it.
func Version() string { return "highs " + C.GoString(C.inferplan_highs_version()) }

// Available returns nil: HiGHS is linked in.
func Available() error { return nil }

// HiGHS's model statuses that a solve can end with (HighsModelStatus of highs_c_api.h).
const (
	modelPresolveError         = 3
	modelSolveError            = 4
	modelPostsolveError        = 5
	modelOptimal               = 7
	modelInfeasible            = 8
	modelUnboundedOrInfeasible = 9
	modelUnbounded             = 10
	modelTimeLimit             = 13
	modelIterationLimit        = 14
	modelUnknown               = 15
	modelSolutionLimit         = 16
	modelInterrupt             = 17
)

const defaultAbsGap = 1e-6

// Solve implements milp.Solver.
func (s Solver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := m.ValidateOptions(&o); err != nil {
		return nil, err
	}
	if k := m.Scaling(); k != nil {
		sol, err := s.Solve(ctx, k.Model, k.Options(o))
		if err != nil {
			return nil, err
		}
		return k.Solution(sol), nil
	}
	if ctx.Err() != nil {
		return milp.NewSolution(milp.Interrupted), nil
	}
	if m.NumVars() == 0 {
		return solveEmpty(m), nil
	}
	r, err := runTwice(ctx, m, &o)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", m.Name, err)
	}
	status, err := s.status(ctx, m, &o, r)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", m.Name, err)
	}
	sol := milp.NewSolution(status)
	sol.Stats = r.stats
	if status == milp.Infeasible || status == milp.Unbounded {
		return sol, nil
	}
	if r.mip {
		if !math.IsInf(r.bound, 0) {
			sol.Bound = r.bound
		}
	} else {
		if status == milp.Optimal {
			sol.Bound = r.objective
		}
		if r.basis != nil {
			sol.Basis = r.basis
		}
		if r.rowDual != nil {
			sol.RowDuals, sol.ReducedCosts = r.rowDual, r.colDual
		}
	}
	if r.x == nil {
		return sol, nil
	}
	if err := m.Finish(ctx, s, o, sol, r.x); err != nil {
		return nil, err
	}
	if !r.mip && status == milp.Optimal {
		sol.Bound, sol.Gap = sol.Value, 0
	}
	return sol, nil
}

// status translates HiGHS's model status, with a second solve where it leaves open which of two it is.
func (s Solver) status(ctx context.Context, m *milp.Model, o *milp.Options, r *result) (milp.Status, error) {
	switch r.modelStatus {
	case modelOptimal:
		if !r.mip || o.Gap == 0 && o.AbsGap == 0 || math.Abs(r.bound-r.objective) <= defaultAbsGap ||
			math.Abs(r.bound-r.objective) <= 1e-9*math.Abs(r.objective) {
			return milp.Optimal, nil
		}
		return milp.Gap, nil
	case modelInfeasible:
		return milp.Infeasible, nil
	case modelUnbounded, modelUnboundedOrInfeasible:
		if r.modelStatus == modelUnbounded && !r.mip {
			return milp.Unbounded, nil
		}
		// Without an objective the model is only infeasible or feasible; a feasible one is the unbounded one. (A
		// mixed-integer program with rational data whose relaxation is unbounded has no limit itself, if feasible.)
		f := m.Clone()
		f.Name = m.Name + " (feasibility)"
		for v := range f.NumVars() {
			f.SetObj(milp.Var(v), 0)
		}
		again, err := s.Solve(ctx, f, milp.Options{MaxNodes: o.MaxNodes, MaxIterations: o.MaxIterations, TimeLimit: o.TimeLimit, Seed: o.Seed})
		if err != nil {
			return 0, err
		}
		switch {
		case again.Feasible():
			return milp.Unbounded, nil
		case again.Status == milp.Optimal:
			return 0, errors.New("the model without its objective was solved, but gave no solution")
		}
		return again.Status, nil
	case modelTimeLimit:
		return milp.TimeLimit, nil
	case modelIterationLimit, modelSolutionLimit:
		return milp.WorkLimit, nil
	case modelInterrupt:
		if r.stopped == C.INFERPLAN_STOP_WORK {
			return milp.WorkLimit, nil
		}
		return milp.Interrupted, nil
	}
	return 0, fmt.Errorf("the solver ended without a verdict (HiGHS model status %d)", r.modelStatus)
}

// solveEmpty settles a model without variables, which HiGHS does not take.
func solveEmpty(m *milp.Model) *milp.Solution {
	for i := range m.NumRows() {
		if lo, hi := m.RowBounds(milp.Row(i)); lo > 0 || hi < 0 {
			return milp.NewSolution(milp.Infeasible)
		}
	}
	sol := milp.NewSolution(milp.Optimal)
	sol.X, sol.Rounded = []float64{}, true
	sol.Value, sol.Bound, sol.Gap = m.Offset(), m.Offset(), 0
	sol.RowDuals, sol.ReducedCosts = make([]float64, m.NumRows()), []float64{}
	return sol
}

// runTwice guards against faults of HiGHS's presolve, which in 1.10.0 can call a feasible mixed-integer program
// infeasible, or end in an error, or hand back a point that is no solution (its issue 2388 and others like it; the
// brute-force test finds small cases within seconds). In these three cases the model is solved again as it is,
// without presolve. A second run that ends at a limit leaves the verdict of the first.
func runTwice(ctx context.Context, m *milp.Model, o *milp.Options) (*result, error) {
	r, err := run(ctx, m, o)
	if o.NoPresolve || errors.Is(err, errCallback) || err == nil && !doubtful(m, r) {
		return r, err
	}
	plain := *o
	plain.NoPresolve = true
	if r != nil && r.modelStatus == modelInfeasible {
		// A large model may be infeasible in a way that only presolve sees soon.
		plain.MaxNodes = tighter(o.MaxNodes, confirmNodes)
		plain.MaxIterations = tighter(o.MaxIterations, confirmIterations)
	}
	again, againErr := run(ctx, m, &plain)
	if r != nil {
		if againErr != nil {
			return r, nil
		}
		again.stats.Nodes += r.stats.Nodes
		again.stats.Iterations += r.stats.Iterations
		again.stats.Incumbents += r.stats.Incumbents
		again.stats.CPU += r.stats.CPU
		if r.modelStatus == modelInfeasible && again.x == nil {
			r.stats = again.stats
			return r, nil
		}
	}
	return again, againErr
}

// The work spent on confirming that a model is infeasible.
const (
	confirmNodes      = 500
	confirmIterations = 50_000
)

// tighter returns the smaller of two limits, of which 0 is none.
func tighter(a, b int64) int64 {
	if a == 0 || b < a {
		return b
	}
	return a
}

// doubtful reports whether a result needs a second look.
func doubtful(m *milp.Model, r *result) bool {
	switch r.modelStatus {
	case modelInfeasible:
		return r.mip
	case modelOptimal:
		return r.x == nil || !m.Check(m.Round(r.x)).OK() && !m.Check(r.x).OK()
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		return true
	}
	return false
}

// errCallback marks the panic of a callback.
var errCallback = errors.New("an incumbent or progress callback panicked")

// result is what one run of HiGHS gave.
type result struct {
	mip              bool
	modelStatus      int
	stopped          C.int32_t
	objective, bound float64
	x                []float64 // nil: none
	rowDual, colDual []float64
	basis            *milp.Basis
	stats            milp.Stats
}

// session is what the events of a running solve need.
type session struct {
	m          *milp.Model
	incumbent  func(milp.Incumbent)
	progress   func(milp.Progress)
	incumbents int
	stop       *int32
	panicked   any
}

func run(ctx context.Context, m *milp.Model, o *milp.Options) (*result, error) {
	nc, nr := m.NumVars(), m.NumRows()
	mip := m.NumIntegers() > 0
	cols := m.Columns()

	floats := make([]float64, 3*nc+2*nr)
	cost, lo, hi := floats[:nc], floats[nc:2*nc], floats[2*nc:3*nc]
	rowLo, rowHi := floats[3*nc:3*nc+nr], floats[3*nc+nr:]
	var integrality []int32
	if mip {
		integrality = make([]int32, nc)
	}
	for j := range nc {
		v := milp.Var(j)
		cost[j] = m.Obj(v)
		lo[j], hi[j] = m.Bounds(v)
		if mip && m.IsInteger(v) {
			integrality[j] = 1
		}
	}
	for i := range nr {
		rowLo[i], rowHi[i] = m.RowBounds(milp.Row(i))
	}

	var pin runtime.Pinner
	defer pin.Unpin()
	stop := new(int32)
	pin.Pin(stop)
	p := &C.inferplan_highs_problem{
		num_col: C.int32_t(nc), num_row: C.int32_t(nr), num_nz: C.int32_t(len(cols.Index)),
		offset: C.double(m.Offset()),
		cost:   doubles(&pin, cost), lo: doubles(&pin, lo), hi: doubles(&pin, hi),
		row_lo: doubles(&pin, rowLo), row_hi: doubles(&pin, rowHi),
		a_start: ints(&pin, cols.Start), a_index: ints(&pin, cols.Index), a_value: doubles(&pin, cols.Value),
		integrality:      ints(&pin, integrality),
		rel_gap:          C.double(o.Gap),
		abs_gap:          defaultAbsGap,
		time_limit:       C.double(o.TimeLimit.Seconds()),
		heuristic_effort: -1,
		max_nodes:        C.int64_t(o.MaxNodes),
		max_iterations:   C.int64_t(o.MaxIterations),
		seed:             C.int32_t(o.Seed),
		presolve:         1,
		stop:             (*C.int32_t)(unsafe.Pointer(stop)),
	}
	if m.Sense() == milp.Maximize {
		p.maximize = 1
	}
	if o.AbsGap > 0 {
		p.abs_gap = C.double(o.AbsGap)
	}
	switch {
	case o.HeuristicEffort > 0:
		p.heuristic_effort = C.double(o.HeuristicEffort)
	case o.HeuristicEffort < 0:
		p.heuristic_effort = 0
	}
	if o.NoPresolve {
		p.presolve = 0
	}
	if mip && o.Start != nil {
		setStart(p, &pin, o.Start)
	}
	if !mip && o.Basis != nil {
		colBasis, rowBasis := basisIn(m, o.Basis)
		p.basis_col, p.basis_row = ints(&pin, colBasis), ints(&pin, rowBasis)
	}

	ses := &session{m: m, incumbent: o.Incumbent, progress: o.Progress, stop: stop}
	if mip {
		h := cgo.NewHandle(ses)
		defer h.Delete()
		p.handle = C.uintptr_t(h)
		if o.Progress != nil {
			p.progress = 1
		}
	}
	defer context.AfterFunc(ctx, func() { atomic.StoreInt32(stop, 1) })()

	out := make([]float64, 2*nc+nr)
	x, colDual, rowDual := out[:nc:nc], out[nc:2*nc:2*nc], out[2*nc:]
	basis := make([]int32, nc+nr)
	a := &C.inferplan_highs_answer{
		col_value: doubles(&pin, x), col_dual: doubles(&pin, colDual), row_dual: doubles(&pin, rowDual),
		col_basis: ints(&pin, basis[:nc]), row_basis: ints(&pin, basis[nc:]),
	}
	rc := C.inferplan_highs_solve(p, a)
	runtime.KeepAlive(m)
	if ses.panicked != nil {
		return nil, fmt.Errorf("%w: %v", errCallback, ses.panicked)
	}
	if rc != 0 {
		return nil, errors.New(C.GoString(&a.error[0]))
	}

	r := &result{
		mip: mip, modelStatus: int(a.model_status), stopped: a.stopped,
		objective: float64(a.objective), bound: float64(a.bound),
		stats: milp.Stats{
			Nodes: int64(a.nodes), Iterations: int64(a.iterations), Incumbents: ses.incumbents,
			CPU: time.Duration(float64(a.cpu_seconds) * float64(time.Second)),
		},
	}
	if a.has_x != 0 {
		r.x = x
	}
	if a.has_dual != 0 && r.modelStatus == modelOptimal {
		r.colDual, r.rowDual = colDual, rowDual
	}
	if a.has_basis != 0 {
		r.basis = basisOut(basis, nc)
	}
	return r, nil
}

// setStart passes a whole start, or the given entries of one with holes.
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

// basisIn extends a basis to the model's size: what was added since is nonbasic (variables) or basic (rows), so
// that the basic ones stay as many as the rows.
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

func doubles(pin *runtime.Pinner, s []float64) *C.double {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.double)(unsafe.Pointer(&s[0]))
}

func ints(pin *runtime.Pinner, s []int32) *C.int32_t {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.int32_t)(unsafe.Pointer(&s[0]))
}
