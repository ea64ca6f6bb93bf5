package executor

import (
	"inferplan/executor/cascade"
	"inferplan/executor/tasks"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/executor/workers"
	"inferplan/formats"
)

// kindsServed is the only list of what answers requests and executes batches.
var kindsServed = turn.Kinds{
	Answers:  []func(c *turn.Core, plan *formats.Plan) (turn.Answer, error){cascade.Of, tasks.Of, text.TokensOf},
	Backends: []func(c *turn.Core) (b turn.Backend, devices []int32){text.AgentsOf, text.GeneratorsOf},
	First:    workers.New,
}
