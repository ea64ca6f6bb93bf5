package executor

import (
	"context"

	"inferplan/engine/worker"
	"inferplan/executor/cascade"
	"inferplan/executor/tasks"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/executor/workers"
)

// Options say how a plan is served. The zero value serves with real models
// from the folder "models".
type Options struct {
	CoreOptions
	WorkerOptions
	CascadeOptions
	TaskOptions
	InstanceOptions
}

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() {
	o.CoreOptions.SetDefaults()
	o.WorkerOptions.SetDefaults()
	o.CascadeOptions.SetDefaults()
	o.TaskOptions.SetDefaults()
	o.InstanceOptions.SetDefaults()
}

// What callers say and are told of plans in execution.
type (
	CoreOptions     = turn.Options
	WorkerOptions   = workers.Options
	CascadeOptions  = cascade.Options
	TaskOptions     = tasks.Options
	InstanceOptions = text.Options

	CPUPlace       = workers.CPUPlace
	InstanceServer = text.InstanceServer
	ModelAdapter   = text.ModelAdapter
	Service        = turn.Service
	AgentOptions   = text.AgentOptions
)

// Errors that callers tell apart with errors.Is, see package turn.
var (
	ErrPlan          = turn.ErrPlan
	ErrSimulatedOnly = turn.ErrSimulatedOnly
	ErrModelHash     = worker.ErrHash
)

// ReadService reads the times that Service.WriteFile wrote.
func ReadService(path string) (*Service, error) { return turn.ReadService(path) }

// ServeAgent serves the instances of some servers until ctx ends, as another process plans.
func ServeAgent(ctx context.Context, o AgentOptions) error { return text.ServeAgent(ctx, o) }

// CheckAdapters refuses adapters that contradict each other.
func CheckAdapters(list []ModelAdapter) error { return text.CheckAdapters(list) }
