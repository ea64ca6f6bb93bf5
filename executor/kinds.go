package executor

import (
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// kindsServed is the only list of what answers requests and executes batches.
func kindsServed(o *Options) *turn.Kinds {
	return &turn.Kinds{
		Answers:  []func(c *turn.Core, plan *formats.Plan) (turn.Answer, error){o.CascadeOptions.Answer, o.TaskOptions.Answer, text.TokensOf},
		Backends: append(moreBackends, o.Instances, o.Generators),
		First:    o.Backend,
	}
}

// moreBackends are those of kinds that tests alone have.
var moreBackends []func(c *turn.Core) (b turn.Backend, devices []int32)
