package main

import (
	"context"
	"errors"
	"fmt"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/planner"
	"inferplan/profiler"
	"inferplan/solver/milp"
)

// Exit codes. They are part of the command line's contract.
const (
	exitDone        = 0
	exitGate        = 1 // a gate failed, or diff found differences
	exitUsage       = 2 // bad usage or input
	exitInfeasible  = 3
	exitInterrupted = 4 // or --require-gap was missed; the best plan so far was written
	exitEnvironment = 5 // environment or internal failure
)

// exitMeanings has when plan ends with each exit code, in their order.
var exitMeanings = []string{
	exitDone:        "The command did what was asked. solve wrote a feasible plan, whatever its gap.",
	exitGate:        "A gate failed (check, report --fail-if), diff or replay found differences, or rescue lost a part of the file.",
	exitUsage:       "A flag, a document or a model is wrong. Nothing was written.",
	exitInfeasible:  "No plan keeps what was asked. The message has the reason and the nearest feasible SLO, load and number of devices.",
	exitInterrupted: "Ctrl-C or SIGTERM stopped the work, or the plan missed --require-gap. The best result so far was written.",
	exitEnvironment: "The environment failed, such as a full disk, or the program has a fault.",
}

// exitError is an error with an exit code. If its message is empty, nothing is printed any more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// exitCode returns the exit code of an error. An error without a code of its own gets one by its type: a bad document
// or model is usage (2), and what is left is the environment (5).
func exitCode(err error) int {
	var coded *exitError
	var bad *document.Error
	var wrongUsage *usage.Error
	var infeasible *planner.InfeasibleError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &infeasible):
		return exitInfeasible
	case errors.As(err, &bad), errors.As(err, &wrongUsage):
		return exitUsage
	case errors.Is(err, engine.ErrModel), errors.Is(err, graph.ErrModel), errors.Is(err, profiler.ErrInput),
		errors.Is(err, engine.ErrShape), errors.Is(err, engine.ErrNoDevice),
		errors.Is(err, milp.ErrInvalid): // figures that differ by so much that a solver rounds some to nothing
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitEnvironment
	}
}
