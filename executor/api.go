package executor

import "inferplan/executor/turn"

// What callers say and are told of plans in execution.
type (
	Options        = turn.Options
	CPUPlace       = turn.CPUPlace
	InstanceServer = turn.InstanceServer
	ModelAdapter   = turn.ModelAdapter
	Service        = turn.Service
)

// Errors that callers tell apart with errors.Is, see package turn.
var (
	ErrPlan          = turn.ErrPlan
	ErrSimulatedOnly = turn.ErrSimulatedOnly
	ErrClosed        = turn.ErrClosed
	ErrSwitched      = turn.ErrSwitched
	ErrModelHash     = turn.ErrModelHash
)

// ReadService reads the times that Service.WriteFile wrote.
func ReadService(path string) (*Service, error) { return turn.ReadService(path) }
