package milp

import (
	"context"
	"time"
)

// Solver solves models. It never changes the model, and several solves may run at once.
//
// A model without a solution is no error: look at Solution.Status. Errors are for invalid models and options
// and for a solver that failed or is missing. When ctx ends, Solve returns soon with Status Interrupted and the
// best solution so far.
type Solver interface {
	Solve(ctx context.Context, m *Model, o Options) (*Solution, error)
}

// Options steer one solve. The zero value proves optimality, without limits.
type Options struct {
	// Gap is the relative gap, |bound - value| / |value|, at which a mixed-integer solve may stop; 0 proves.
	Gap float64
	// AbsGap is the absolute gap at which it may stop; 0 is 1e-6.
	AbsGap float64
	// Enough is an objective, at least or, when minimising, at most so good, at which a mixed-integer solve
	// stops with status Gap; NaN or 0: none.
	Enough float64

	// MaxNodes limits the branch-and-bound nodes, MaxIterations the simplex iterations (of a mixed-integer
	// solve: the sum over its linear programs, looked at between them). 0 is no limit. They stop at the same
	// point every time, unlike TimeLimit, which is a safety net.
	MaxNodes      int64
	MaxIterations int64
	TimeLimit     time.Duration
	// MaxStall limits the nodes of a mixed-integer solve since its last better solution, once it has one. 0 is no limit.
	MaxStall int64

	// Seed of the solver's random choices.
	Seed int32
	// HeuristicEffort is the share of the work spent on heuristics; 0 is the solver's default, below 0 is none.
	HeuristicEffort float64
	// NoPresolve leaves the model as it is.
	NoPresolve bool

	// Start is a solution to start a mixed-integer solve from: one value per variable. NaN leaves a variable
	// open; the solver then completes the start by a small search.
	Start []float64
	// Basis is a basis to start a linear solve from, as an earlier Solution gave it. It may be shorter than the model:
	// variables and rows added since are nonbasic at a bound and basic.
	Basis *Basis

	// Incumbent is called for every improved solution of a mixed-integer solve, Progress about
	// ten times per CPU second. Both are
	// called from the solving goroutine, and must return soon. X is theirs to keep.
	Incumbent func(Incumbent)
	Progress  func(Progress)
}

// Incumbent is an improved solution.
type Incumbent struct {
	Value float64
	Bound float64 // best bound known at this time
	X     []float64
	CPU   time.Duration // CPU time of the solve so far
	Nodes int64
}

// Progress is the state of a running mixed-integer solve.
type Progress struct {
	Value, Bound, Gap float64 // Value is infinite while there is no solution
	Nodes             int64
	Iterations        int64
	CPU               time.Duration
}

// BasisStatus is the state of a variable or row in a simplex basis.
type BasisStatus int8

// The states of a variable or row. A row's state is that of its slack.
const (
	AtLower BasisStatus = iota
	Basic
	AtUpper
	AtZero // free and nonbasic
	Nonbasic
)

// Basis is a simplex basis.
type Basis struct {
	Vars, Rows []BasisStatus
}
