package process

import (
	"time"

	"inferplan/solver/milp"
)

// order is a message to the process: a solve.
type order struct {
	Model               *milp.Tables
	Options             milp.Options // without its functions
	Incumbent, Progress bool         // whether the caller hears of these
}

// report is a message from the process. One with neither an incumbent nor progress ends the solve.
type report struct {
	Incumbent *milp.Incumbent
	Progress  *milp.Progress
	Solution  *milp.Solution // nil: an error
	Error     string
	Fault     bool          // the error is a milp.ErrFault
	CPU       time.Duration // of the process since its last report
}

// remote is an error of a solve in the process.
type remote struct {
	text  string
	fault bool
}

func (e *remote) Error() string        { return e.text }
func (e *remote) Is(target error) bool { return e.fault && target == milp.ErrFault }
