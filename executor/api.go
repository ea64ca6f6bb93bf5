package executor

import (
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

// The options of the parts of an executor, by names that differ.
type (
	CoreOptions     = turn.Options
	WorkerOptions   = workers.Options
	CascadeOptions  = cascade.Options
	TaskOptions     = tasks.Options
	InstanceOptions = text.Options
)
