package executor

import (
	"context"

	"inferplan/executor/text"
	"inferplan/executor/turn"
)

// What callers say and are told of plans in execution.
type (
	Options        = turn.Options
	CPUPlace       = turn.CPUPlace
	InstanceServer = turn.InstanceServer
	ModelAdapter   = turn.ModelAdapter
	Service        = turn.Service
	QueueOptions   = text.QueueOptions
	AgentOptions   = text.AgentOptions
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

// ServeAgent serves the instances of some servers until ctx ends, as another process plans.
func ServeAgent(ctx context.Context, o AgentOptions) error { return text.ServeAgent(ctx, o) }

// CheckAdapters refuses adapters that contradict each other.
func CheckAdapters(list []ModelAdapter) error { return text.CheckAdapters(list) }
