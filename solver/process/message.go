package process

import (
	"time"

	"inferplan/solver/milp"
)

// solveOrder is a message to the process that asks for a solve.
type solveOrder struct {
	Model               *milp.Tables
	Options             milp.Options // without its functions
	Incumbent, Progress bool         // whether the caller has these callbacks
}

// solveReport is a message from the process. One with neither an incumbent nor progress ends the solve.
type solveReport struct {
	Incumbent *milp.Incumbent
	Progress  *milp.Progress
	Solution  *milp.Solution // nil if the solve failed
	Error     string
	Fault     bool          // the error wraps milp.ErrFault
	CPU       time.Duration // CPU time of the process since its last report
}

// remoteError is the error of a solve in the process.
type remoteError struct {
	text  string
	fault bool
}

// Error returns the text of the error.
func (e *remoteError) Error() string { return e.text }

// Is reports whether target is milp.ErrFault and the error wraps it in the process.
func (e *remoteError) Is(target error) bool { return e.fault && target == milp.ErrFault }
