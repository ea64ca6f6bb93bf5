package milp

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrFault is wrapped by the error of a solver that failed on a model: it gave no verdict, or it broke off.
var ErrFault = errors.New("the solver failed")

// FaultTolerant is a solver that lets a search go on if another solver fails on a model. The model is then solved
// again without presolve and basis. If that fails, too, a mixed-integer program ends with Status WorkLimit and
// without a solution. A linear program interrupts the search, whose caller keeps what was found. It may be used by
// several goroutines at once.
type FaultTolerant struct {
	solver    Solver
	interrupt context.CancelCauseFunc
	mu        sync.Mutex
	faults    []error
}

// NewFaultTolerant returns a solver over another one, for a search that interrupt ends.
func NewFaultTolerant(solver Solver, interrupt context.CancelCauseFunc) *FaultTolerant {
	return &FaultTolerant{solver: solver, interrupt: interrupt}
}

// Solve implements Solver. If the solver fails (ErrFault), the failure is recorded, and the model is solved again
// without presolve and basis. If that fails, too, a mixed-integer program has status WorkLimit and no solution; for a
// linear program the search is interrupted and the status is Interrupted.
func (s *FaultTolerant) Solve(ctx context.Context, model *Model, options Options) (*Solution, error) {
	if s.solver == nil {
		return nil, errors.New("there is no solver")
	}
	solution, err := s.solver.Solve(ctx, model, options)
	if !errors.Is(err, ErrFault) || ctx.Err() != nil {
		return solution, err
	}
	s.addFault(err)
	retryOptions := options
	retryOptions.Basis, retryOptions.NoPresolve = nil, true
	solution, err = s.solver.Solve(ctx, model, retryOptions)
	if !errors.Is(err, ErrFault) || ctx.Err() != nil {
		return solution, err
	}
	if model.NumIntegers() > 0 {
		return NewSolution(WorkLimit), nil
	}
	s.interrupt(fmt.Errorf("%w: %w", context.Canceled, err))
	return NewSolution(Interrupted), nil
}

// addFault records an error.
func (s *FaultTolerant) addFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, err)
}

// Faults returns the errors of all failed solves, in the order in which these ended.
func (s *FaultTolerant) Faults() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}
