package milp

import (
	"context"
	"time"
)

// Solver solves models. It never changes the model, and several solves may run at once.
//
// A model without a solution is no error: look at Solution.Status. Errors are for invalid models and options, and
// for a solver that failed or is missing. If ctx ends, Solve returns soon with Status Interrupted and the best
// solution so far.
type Solver interface {
	Solve(ctx context.Context, m *Model, o Options) (*Solution, error)
}

// Options steer one solve. The zero value proves optimality, without limits.
type Options struct {
	// Gap is the relative gap, |bound - value| / |value|, at which a mixed-integer solve may stop. 0 means a
	// proof.
	Gap float64
	// AbsGap is the absolute gap at which it may stop. 0 means 1e-6.
	AbsGap float64
	// TargetValue is an objective value at which a mixed-integer solve stops with status Gap: when it is reached
	// or exceeded or, if the model minimises, reached or undercut. NaN or 0 means that there is none.
	TargetValue float64

	// MaxNodes limits the branch-and-bound nodes, MaxIterations the simplex iterations (in a mixed-integer solve
	// the sum over its linear programs, checked between them). 0 means no limit. They stop at the same point every
	// time, unlike TimeLimit, which is a safety net.
	MaxNodes      int64
	MaxIterations int64
	TimeLimit     time.Duration
	// MaxStall limits the nodes of a mixed-integer solve since its last better solution, once it has one. 0 means
	// no limit.
	MaxStall int64

	// Seed of the solver's random choices.
	Seed int32
	// HeuristicEffort is the share of the work that is spent on heuristics. 0 means the solver's default, and a
	// negative value none.
	HeuristicEffort float64
	// NoPresolve turns presolve off.
	NoPresolve bool

	// Start is a solution to start a mixed-integer solve from, with one value per variable. NaN leaves a variable
	// open, and the solver completes the start by a small search.
	Start []float64
	// Basis is a basis of an earlier Solution to start a linear solve from. It may be shorter than the model:
	// variables added since are nonbasic, and rows added since are basic.
	Basis *Basis

	// Incumbent is called for every improved solution of a mixed-integer solve, and Progress about ten times per
	// CPU second. Both are called from the solving goroutine and must return soon. They may keep X.
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
	Value, Bound, Gap float64 // Value is infinite until there is a solution
	Nodes             int64
	Iterations        int64
	CPU               time.Duration
}

// BasisStatus is the state of a variable or row in a simplex basis.
type BasisStatus int8

// The states of a variable or row. The state of a row is that of its slack variable.
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
