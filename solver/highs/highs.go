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
	r, err := settled(ctx, m, &o)
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
		// A feasible model is the unbounded one. (A mixed-integer program with rational data whose relaxation is
		// unbounded has no limit itself, if feasible.)
		again, err := s.feasibility(ctx, m, o)
		if err != nil {
			return 0, err
		}
		switch {
		case again.Feasible():
			return milp.Unbounded, nil
		case again.Status == milp.Optimal:
			return 0, fmt.Errorf("%w: the model without its objective was solved, but gave no solution", milp.ErrFault)
		}
		return again.Status, nil
	case modelTimeLimit:
		return milp.TimeLimit, nil
	case modelIterationLimit, modelSolutionLimit:
		return milp.WorkLimit, nil
	case modelInterrupt:
		switch {
		case r.enough:
			return milp.Gap, nil
		case r.stopped == C.INFERPLAN_STOP_WORK:
			return milp.WorkLimit, nil
		}
		return milp.Interrupted, nil
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		if hasObjective(m) {
			again, err := s.feasibility(ctx, m, o)
			if err != nil {
				return 0, err
			}
			if again.Feasible() { // how good it can be is not known
				r.x, r.basis, r.bound = again.X, nil, math.NaN()
				return milp.WorkLimit, nil
			}
			return again.Status, nil
		}
	}
	return 0, fmt.Errorf("%w: it ended without a verdict (HiGHS model status %d)", milp.ErrFault, r.modelStatus)
}

// feasibility solves the model without its objective: then it is only infeasible or feasible.
func (s Solver) feasibility(ctx context.Context, m *milp.Model, o *milp.Options) (*milp.Solution, error) {
	f := m.Clone()
	f.Name = m.Name + " (feasibility)"
	for v := range f.NumVars() {
		f.SetObj(milp.Var(v), 0)
	}
	return s.Solve(ctx, f, milp.Options{MaxNodes: o.MaxNodes, MaxIterations: o.MaxIterations, TimeLimit: o.TimeLimit, Seed: o.Seed})
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

// decided solves until there is a verdict. It guards against faults of HiGHS's presolve, which in 1.10.0 can call a
// feasible mixed-integer program infeasible, or end in an error, or hand back a point that is no solution (its issue 2388
// and others like it; the brute-force test finds small cases within seconds). In these three cases the model is solved
// again as it is, without presolve. A second run that ends at a limit leaves the verdict of the first. What HiGHS calls
// unknown is solved in other ways, one after the other.
func decided(ctx context.Context, m *milp.Model, o *milp.Options) (*result, error) {
	r, err := run(ctx, m, o, rung{})
	if errors.Is(err, errCallback) || err == nil && !doubtful(m, r) || o.NoPresolve && err == nil && !undecided(r) {
		return r, err
	}
	plain := *o
	plain.NoPresolve = true
	if r != nil && r.modelStatus == modelInfeasible {
		// A large model may be infeasible in a way that only presolve sees soon.
		plain.MaxNodes = tighter(o.MaxNodes, confirmNodes)
		plain.MaxIterations = tighter(o.MaxIterations, confirmIterations)
	}
	again, againErr := run(ctx, m, &plain, rung{})
	for _, way := range ladder {
		if errors.Is(againErr, errCallback) || againErr == nil && !undecided(again) {
			break
		}
		if next, err := run(ctx, m, &plain, way); err == nil || errors.Is(err, errCallback) {
			again, againErr = next, err
		}
	}
	if r != nil {
		if againErr != nil {
			return r, nil
		}
		again.stats.Add(r.stats)
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

// hasObjective reports whether any variable counts.
func hasObjective(m *milp.Model) bool {
	for v := range m.NumVars() {
		if m.Obj(milp.Var(v)) != 0 {
			return true
		}
	}
	return false
}

// undecided reports whether HiGHS left the model without a verdict.
func undecided(r *result) bool {
	switch r.modelStatus {
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		return true
	}
	return false
}

// doubtful reports whether a result needs a second look.
func doubtful(m *milp.Model, r *result) bool {
	switch r.modelStatus {
	case modelInfeasible:
		return r.mip
	case modelOptimal:
		return r.x == nil || !m.Check(m.Round(r.x)).OK() && !m.Check(r.x).OK()
	}
	return undecided(r)
}
