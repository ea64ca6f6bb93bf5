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

// Options are the options of an executor. The zero value serves real models from the folder "models".
type Options struct {
	CoreOptions
	WorkerOptions
	CascadeOptions
	TaskOptions
	InstanceOptions
}

// SetDefaults replaces zero values by the defaults.
func (o *Options) SetDefaults() {
	o.CoreOptions.SetDefaults()
	o.WorkerOptions.SetDefaults()
	o.CascadeOptions.SetDefaults()
	o.TaskOptions.SetDefaults()
	o.InstanceOptions.SetDefaults()
}

// Names of other packages that callers of the executor use.
type (
	CoreOptions     = turn.Options
	WorkerOptions   = workers.Options
	CascadeOptions  = cascade.Options
	TaskOptions     = tasks.Options
	InstanceOptions = text.Options

	CPUPlace       = workers.CPUPlace
	InstanceServer = text.InstanceServer
	ModelAdapter   = text.ModelAdapter
	Discovery      = text.Discovery
	ServerSource   = text.ServerSource
	ServerOffer    = text.ServerOffer
	Service        = turn.ServiceTimes
	AgentOptions   = text.AgentOptions
)

// Errors that callers distinguish with errors.Is, see package turn.
var (
	ErrPlan          = turn.ErrPlan
	ErrSimulatedOnly = turn.ErrSimulatedOnly
	ErrModelHash     = worker.ErrHash
)

// ReadService reads the service times that Service.WriteFile has written.
func ReadService(path string) (*Service, error) { return turn.ReadServiceTimes(path) }

// ServeAgent serves the instances of some servers until ctx ends, while another process plans.
func ServeAgent(ctx context.Context, o AgentOptions) error { return text.ServeAgent(ctx, o) }

// Functions that make the sources of a Discovery, see package text.
var (
	ParseServerOffer = text.ParseServerOffer
	NewServerFile    = text.NewServerFile
	NewServerName    = text.NewServerName
)

// CheckAdapters returns an error if adapters contradict each other.
func CheckAdapters(list []ModelAdapter) error { return text.CheckAdapters(list) }
