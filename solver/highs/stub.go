//go:build !cgo

package highs

import (
	"context"

	"inferplan/solver/milp"
)

// Version returns a text that says that there is no solver.
func Version() string { return "none (built without cgo)" }

// Available returns ErrUnavailable.
func Available() error { return ErrUnavailable }

// Solve returns ErrUnavailable.
func (Solver) Solve(context.Context, *milp.Model, milp.Options) (*milp.Solution, error) {
	return nil, ErrUnavailable
}
