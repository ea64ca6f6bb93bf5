package milp

import (
	"context"
	"fmt"
	"math"
)

// NewSolution returns a solution without a point, with the reason that goes with the status.
func NewSolution(status Status) *Solution {
	nan := math.NaN()
	return &Solution{Status: status, StoppedBy: status.StoppedBy(), Value: nan, Bound: nan, Gap: nan}
}

// Finish is the last step of a Solver. It takes the point that the solver found, rounds its integer variables,
// checks it by this package's own arithmetic, and fills in X, Value, Gap, Feasibility and Rounded.
//
// If rounding violates a row, the integers are fixed at their rounded values, and the solver solves for the
// continuous variables again. If that has no solution either, X is the solver's point as it was, and Rounded is false.
func (m *Model) Finish(ctx context.Context, solver Solver, options Options, solution *Solution, point []float64) error {
	x, rounded, err := m.roundPoint(ctx, solver, options, point)
	if err != nil {
		return err
	}
	solution.X, solution.Rounded = x, rounded
	solution.Feasibility = m.Check(x)
	solution.Value = m.Value(x)
	// The bound cannot exclude the point: it is wrong by the solver's tolerance at most.
	if m.sense == Maximize && solution.Bound < solution.Value || m.sense == Minimize && solution.Bound > solution.Value {
		solution.Bound = solution.Value
	}
	solution.Gap = RelativeGap(m.sense, solution.Value, solution.Bound)
	return nil
}

// roundPoint returns the point that Finish stores: the solver's with its integers rounded if that is feasible, else the
// solution of the continuous variables at the rounded integers, else the solver's point as it was. rounded reports
// whether it is one of the first two. The solve goes on if ctx is cancelled meanwhile, because an interrupted search
// reports its best point, too.
func (m *Model) roundPoint(ctx context.Context, solver Solver, options Options, point []float64) (x []float64, rounded bool, err error) {
	x = m.Round(point)
	if m.Check(x).OK() {
		return x, true, nil
	}
	if m.NumIntegers() > 0 {
		continuous, err := solver.Solve(context.WithoutCancel(ctx), m.FixIntegers(x), Options{Seed: options.Seed, MaxIterations: options.MaxIterations, TimeLimit: options.TimeLimit})
		if err != nil {
			return nil, false, fmt.Errorf("solving for the continuous variables of %q at the rounded integers: %w", m.Name, err)
		}
		if continuous.Status == Optimal && m.Check(continuous.X).OK() {
			return continuous.X, true, nil
		}
	}
	return append([]float64(nil), point...), false, nil
}

// FixIntegers returns the linear program in which every integer variable is fixed at its rounded value in x.
func (m *Model) FixIntegers(x []float64) *Model {
	fixed := m.Clone()
	fixed.Name = m.Name + " (integers fixed)"
	for j := range fixed.vars {
		if v := &fixed.vars[j]; v.integer {
			rounded := math.Round(x[j])
			v.lo, v.hi, v.integer = rounded, rounded, false
		}
	}
	return fixed
}
