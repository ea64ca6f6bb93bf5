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
func (s Solver) Solve(ctx context.Context, model *milp.Model, options milp.Options) (*milp.Solution, error) {
	// Check the input. Scale the model if solvers would not accept its coefficients.
	if err := model.Validate(); err != nil {
		return nil, err
	}
	if err := model.ValidateOptions(&options); err != nil {
		return nil, err
	}
	if scaling := model.Scaling(); scaling != nil {
		solution, err := s.Solve(ctx, scaling.Model, scaling.Options(options))
		if err != nil {
			return nil, err
		}
		return scaling.Solution(solution), nil
	}
	if ctx.Err() != nil {
		return milp.NewSolution(milp.Interrupted), nil
	}
	if model.NumVars() == 0 {
		return solveEmpty(model), nil
	}

	// Solve, and translate the status.
	result, err := solveWithStart(ctx, model, &options)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", model.Name, err)
	}
	status, err := s.solveStatus(ctx, model, &options, result)
	if err != nil {
		return nil, fmt.Errorf("highs: model %q: %w", model.Name, err)
	}

	// Bound, basis and duals. A mixed-integer program (r.mip) has a bound only; a linear one is its own bound when optimal.
	solution := milp.NewSolution(status)
	solution.Stats = result.stats
	if status == milp.Infeasible || status == milp.Unbounded {
		return solution, nil
	}
	if result.mip {
		if !math.IsInf(result.bound, 0) {
			solution.Bound = result.bound
		}
	} else {
		if status == milp.Optimal {
			solution.Bound = result.objective
		}
		if result.basis != nil {
			solution.Basis = result.basis
		}
		if result.rowDual != nil {
			solution.RowDuals, solution.ReducedCosts = result.rowDual, result.colDual
		}
	}

	// The point, with integers rounded.
	if result.x == nil {
		return solution, nil
	}
	if err := model.Finish(ctx, s, options, solution, result.x); err != nil {
		return nil, err
	}
	if !result.mip && status == milp.Optimal {
		solution.Bound, solution.Gap = solution.Value, 0
	}
	return solution, nil
}

// solveStatus translates the model status with which HiGHS ended a run. If that leaves two statuses possible, a second
// solve without the objective decides. If HiGHS has no verdict and that solve finds a solution, it replaces r.x, drops
// the basis and the bound (NaN), and the status is WorkLimit. If even that gives no verdict, it returns an error that
// wraps milp.ErrFault.
func (s Solver) solveStatus(ctx context.Context, model *milp.Model, options *milp.Options, result *runResult) (milp.Status, error) {
	switch result.modelStatus {
	case modelOptimal:
		// HiGHS also calls a solve optimal that ended at the gap of the options.
		distance := math.Abs(result.bound - result.objective)
		if !result.mip || options.Gap == 0 && options.AbsGap == 0 || distance <= defaultAbsGap || distance <= 1e-9*math.Abs(result.objective) {
			return milp.Optimal, nil
		}
		return milp.Gap, nil
	case modelInfeasible:
		return milp.Infeasible, nil
	case modelUnbounded, modelUnboundedOrInfeasible:
		if result.modelStatus == modelUnbounded && !result.mip {
			return milp.Unbounded, nil
		}
		// HiGHS does not say which of both. If the model is feasible without its objective, it is unbounded. (A mixed-integer
		// program with rational data whose relaxation is unbounded has no limit itself, if feasible.)
		feasibility, err := s.solveFeasibility(ctx, model, options)
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
		case result.reachedTarget:
			return milp.Gap, nil
		case result.stopReason == C.INFERPLAN_STOP_WORK:
			return milp.WorkLimit, nil
		}
		return milp.Interrupted, nil
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		if hasObjective(model) {
			feasibility, err := s.solveFeasibility(ctx, model, options)
			if err != nil {
				return 0, err
			}
			if feasibility.Feasible() { // a solution exists, but no bound is known
				result.x, result.basis, result.bound = feasibility.X, nil, math.NaN()
				return milp.WorkLimit, nil
			}
			return feasibility.Status, nil
		}
	}
	return 0, fmt.Errorf("%w: it ended without a verdict (HiGHS model status %d)", milp.ErrFault, result.modelStatus)
}

// solveFeasibility solves the model without its objective, so that the status says only whether it is feasible. It has
// the limits and the seed of the options, but no gap, start or callbacks.
func (s Solver) solveFeasibility(ctx context.Context, model *milp.Model, options *milp.Options) (*milp.Solution, error) {
	return s.Solve(ctx, model.WithoutObjective(), milp.Options{MaxNodes: options.MaxNodes, MaxIterations: options.MaxIterations, TimeLimit: options.TimeLimit, Seed: options.Seed})
}

// solveEmpty returns the solution of a model without variables, which HiGHS does not accept: every row sums to 0, so the
// model is infeasible if the bounds of a row exclude 0, and else its value is the offset of the objective.
func solveEmpty(model *milp.Model) *milp.Solution {
	for i := range model.NumRows() {
		if lower, upper := model.RowBounds(milp.Row(i)); lower > 0 || upper < 0 {
			return milp.NewSolution(milp.Infeasible)
		}
	}
	solution := milp.NewSolution(milp.Optimal)
	solution.X, solution.Rounded = []float64{}, true
	solution.Value, solution.Bound, solution.Gap = model.Offset(), model.Offset(), 0
	solution.RowDuals, solution.ReducedCosts = make([]float64, model.NumRows()), []float64{}
	return solution
}

// solveUntilVerdict solves until there is a verdict. It guards against faults of HiGHS's presolve, which in 1.10.0
// can call a feasible mixed-integer program infeasible, end in an error, or return a point that is no solution
// (its issue 2388 and similar ones; the brute-force test finds small cases within seconds). In these three cases
// the model is solved again without presolve. If that run has no verdict, the fallbacks (other settings of HiGHS) are
// tried one after the other. If the first run called the model infeasible, that stands unless a later run has a
// solution. A panic in a callback of the caller (errCallback) is no fault of HiGHS: no further run is made, and without
// a first result it is returned.
func solveUntilVerdict(ctx context.Context, model *milp.Model, options *milp.Options) (*runResult, error) {
	// The first run. It stands if it is above suspicion, or has a verdict and was without presolve anyway.
	first, err := runOnce(ctx, model, options, fallback{})
	if errors.Is(err, errCallback) {
		return nil, err
	}
	if err == nil {
		aboveSuspicion, withoutPresolve := !needsSecondRun(model, first), options.NoPresolve && hasVerdict(first)
		if aboveSuspicion || withoutPresolve {
			return first, nil
		}
	}

	// A second run without presolve.
	unpresolved := *options
	unpresolved.NoPresolve = true
	if first != nil && first.modelStatus == modelInfeasible {
		// A large model may be infeasible in a way that only presolve finds quickly, so the second run is limited.
		unpresolved.MaxNodes = tighterLimit(options.MaxNodes, confirmNodes)
		unpresolved.MaxIterations = tighterLimit(options.MaxIterations, confirmIterations)
	}

	second, secondErr := runOnce(ctx, model, &unpresolved, fallback{})

	// The fallbacks, while there is no verdict. Each takes the place of the second run, unless it fails by a fault of HiGHS.
	for _, fallback := range fallbacks {
		if errors.Is(secondErr, errCallback) || secondErr == nil && hasVerdict(second) {
			break
		}
		if other, err := runOnce(ctx, model, &unpresolved, fallback); err == nil || errors.Is(err, errCallback) {
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
func tighterLimit(first, second int64) int64 {
	if first == 0 || second < first {
		return second
	}
	return first
}

// hasObjective reports whether any variable has an objective coefficient.
func hasObjective(model *milp.Model) bool {
	for varIndex := range model.NumVars() {
		if model.Obj(milp.Var(varIndex)) != 0 {
			return true
		}
	}
	return false
}

// hasVerdict reports whether HiGHS ended with a verdict on the model, or at a limit.
func hasVerdict(result *runResult) bool {
	switch result.modelStatus {
	case modelUnknown, modelSolveError, modelPresolveError, modelPostsolveError:
		return false
	}
	return true
}

// needsSecondRun reports whether a result may be one of the faults that solveUntilVerdict guards against: an infeasible
// mixed-integer program, a point that is no solution by our own check (neither rounded nor as it is), or no verdict.
func needsSecondRun(model *milp.Model, result *runResult) bool {
	switch result.modelStatus {
	case modelInfeasible:
		return result.mip
	case modelOptimal:
		return result.x == nil || !model.Check(model.Round(result.x)).OK() && !model.Check(result.x).OK()
	}
	return !hasVerdict(result)
}
