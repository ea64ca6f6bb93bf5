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

// Available returns nil, because this build has HiGHS linked in.
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

// defaultAbsGap is HiGHS's own absolute gap, in units of the objective.
const defaultAbsGap = 1e-6

// Solve implements milp.Solver with HiGHS in this process. It checks the model and the options, scales the model if its
// coefficients need it (and then calls itself for the scaled one), solves, and returns the status with as much as is
// known: bound, basis, duals, and the point with its integers rounded. If ctx is cancelled, the status is Interrupted.
// An error means wrong input, a callback that panicked, or a fault of HiGHS (milp.ErrFault).
func (s Solver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	// Check the input. Scale the model if solvers would not accept its coefficients.
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := m.ValidateOptions(&o); err != nil {
		return nil, err
	}
	if scaling := m.Scaling(); scaling != nil {
		sol, err := s.Solve(ctx, scaling.Model, scaling.Options(o))
		if err != nil {
			return nil, err
		}
		return scaling.Solution(sol), nil
	}
	if ctx.Err() != nil {
		return milp.NewSolution(milp.Interrupted), nil
	}
	if m.NumVars() == 0 {
		return solveEmpty(m), nil
	}

	// Solve, and translate the status.
	r, err := solveWithStart(ctx, m, &o)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", m.Name, err)
	}
	status, err := s.solveStatus(ctx, m, &o, r)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", m.Name, err)
	}

	// Bound, basis and duals. A mixed-integer program (r.mip) has a bound only; a linear one is its own bound when optimal.
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

	// The point, with integers rounded.
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

// solveStatus translates the model status with which HiGHS ended a run. If that leaves two statuses possible, a second
// solve without the objective decides. If HiGHS has no verdict and that solve finds a solution, it replaces r.x, drops
// the basis and the bound (NaN), and the status is WorkLimit. If even that gives no verdict, it returns an error that
// wraps milp.ErrFault.
func (s Solver) solveStatus(ctx context.Context, m *milp.Model, o *milp.Options, r *runResult) (milp.Status, error) {
	switch r.modelStatus {
	case modelOptimal:
		// HiGHS also calls a solve optimal that ended at the gap of the options.
		distance := math.Abs(r.bound - r.objective)
		if !r.mip || o.Gap == 0 && o.AbsGap == 0 || distance <= defaultAbsGap || distance <= 1e-9*math.Abs(r.objective) {
			return milp.Optimal, nil
		}
		return milp.Gap, nil
	case modelInfeasible:
		return milp.Infeasible, nil
	case modelUnbounded, modelUnboundedOrInfeasible:
		if r.modelStatus == modelUnbounded && !r.mip {
			return milp.Unbounded, nil
		}
		// HiGHS does not say which of both. If the model is feasible without its objective, it is unbounded. (A mixed-integer
		// program with rational data whose relaxation is unbounded has no limit itself, if feasible.)
		feasibility, err := s.solveFeasibility(ctx, m, o)
		if err != nil {
			return 0, err
		}
		switch {
		case feasibility.Feasible():
			return milp.Unbounded, nil
		case feasibility.Status == milp.Optimal:
			return 0, fmt.Errorf("%w: the model without its objective was solved, but gave no solution", milp.ErrFault)
		}
		return feasibility.Status, nil
	case modelTimeLimit:
		return milp.TimeLimit, nil
	case modelIterationLimit, modelSolutionLimit:
		return milp.WorkLimit, nil
	case modelInterrupt:
		switch {
		case r.reachedTarget:
			return milp.Gap, nil
		case r.stopReason == C.INFERPLAN_STOP_WORK:
			return milp.WorkLimit, nil
		}
		return milp.Interrupted, nil
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		if hasObjective(m) {
			feasibility, err := s.solveFeasibility(ctx, m, o)
			if err != nil {
				return 0, err
			}
			if feasibility.Feasible() { // a solution exists, but no bound is known
				r.x, r.basis, r.bound = feasibility.X, nil, math.NaN()
				return milp.WorkLimit, nil
			}
			return feasibility.Status, nil
		}
	}
	return 0, fmt.Errorf("%w: it ended without a verdict (HiGHS model status %d)", milp.ErrFault, r.modelStatus)
}

// solveFeasibility solves the model without its objective, so that the status says only whether it is feasible. It has
// the limits and the seed of the options, but no gap, start or callbacks.
func (s Solver) solveFeasibility(ctx context.Context, m *milp.Model, o *milp.Options) (*milp.Solution, error) {
	return s.Solve(ctx, m.WithoutObjective(), milp.Options{MaxNodes: o.MaxNodes, MaxIterations: o.MaxIterations, TimeLimit: o.TimeLimit, Seed: o.Seed})
}

// solveEmpty returns the solution of a model without variables, which HiGHS does not accept: every row sums to 0, so the
// model is infeasible if the bounds of a row exclude 0, and else its value is the offset of the objective.
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

// solveUntilVerdict solves until there is a verdict. It guards against faults of HiGHS's presolve, which in 1.10.0
// can call a feasible mixed-integer program infeasible, end in an error, or return a point that is no solution
// (its issue 2388 and similar ones; the brute-force test finds small cases within seconds). In these three cases
// the model is solved again without presolve. If that run has no verdict, the fallbacks (other settings of HiGHS) are
// tried one after the other. If the first run called the model infeasible, that stands unless a later run has a
// solution. A panic in a callback of the caller (errCallback) is no fault of HiGHS: no further run is made, and without
// a first result it is returned.
func solveUntilVerdict(ctx context.Context, m *milp.Model, o *milp.Options) (*runResult, error) {
	// The first run. It stands if it is above suspicion, or has a verdict and was without presolve anyway.
	first, err := runOnce(ctx, m, o, fallback{})
	if errors.Is(err, errCallback) {
		return nil, err
	}
	if err == nil {
		aboveSuspicion, withoutPresolve := !needsSecondRun(m, first), o.NoPresolve && hasVerdict(first)
		if aboveSuspicion || withoutPresolve {
			return first, nil
		}
	}

	// A second run without presolve.
	unpresolved := *o
	unpresolved.NoPresolve = true
	if first != nil && first.modelStatus == modelInfeasible {
		// A large model may be infeasible in a way that only presolve finds quickly, so the second run is limited.
		unpresolved.MaxNodes = tighterLimit(o.MaxNodes, confirmNodes)
		unpresolved.MaxIterations = tighterLimit(o.MaxIterations, confirmIterations)
	}

	second, secondErr := runOnce(ctx, m, &unpresolved, fallback{})

	// The fallbacks, while there is no verdict. Each takes the place of the second run, unless it fails by a fault of HiGHS.
	for _, fallback := range fallbacks {
		if errors.Is(secondErr, errCallback) || secondErr == nil && hasVerdict(second) {
			break
		}
		if other, err := runOnce(ctx, m, &unpresolved, fallback); err == nil || errors.Is(err, errCallback) {
			second, secondErr = other, err
		}
	}

	// Combine both runs: their work adds up. If the second run failed, the first stands. A first verdict of infeasible
	// stands, too, unless the second run has a solution.
	if first != nil {
		if secondErr != nil {
			return first, nil
		}
		second.stats.Add(first.stats)
		if first.modelStatus == modelInfeasible && second.x == nil {
			first.stats = second.stats
			return first, nil
		}
	}
	return second, secondErr
}

// Limits on the work that confirms that a model is infeasible.
const (
	confirmNodes      = 500
	confirmIterations = 50_000
)

// tighterLimit returns the smaller of two limits. 0 means no limit.
func tighterLimit(a, b int64) int64 {
	if a == 0 || b < a {
		return b
	}
	return a
}

// hasObjective reports whether any variable has an objective coefficient.
func hasObjective(m *milp.Model) bool {
	for v := range m.NumVars() {
		if m.Obj(milp.Var(v)) != 0 {
			return true
		}
	}
	return false
}

// hasVerdict reports whether HiGHS ended with a verdict on the model, or at a limit.
func hasVerdict(r *runResult) bool {
	switch r.modelStatus {
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		return false
	}
	return true
}

// needsSecondRun reports whether a result may be one of the faults that solveUntilVerdict guards against: an infeasible
// mixed-integer program, a point that is no solution by our own check (neither rounded nor as it is), or no verdict.
func needsSecondRun(m *milp.Model, r *runResult) bool {
	switch r.modelStatus {
	case modelInfeasible:
		return r.mip
	case modelOptimal:
		return r.x == nil || !m.Check(m.Round(r.x)).OK() && !m.Check(r.x).OK()
	}
	return !hasVerdict(r)
}
