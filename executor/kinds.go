package executor

import (
	"slices"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// kindsServed lists what answers requests and executes batches. Nothing else does.
func kindsServed(o *Options) *turn.Kinds {
	return &turn.Kinds{
		Answers:  []func(c *turn.Core, plan *formats.Plan) (turn.Answer, error){o.CascadeOptions.Answer, o.TaskOptions.Answer, text.TokensOf},
		Backends: slices.Concat(moreBackends, []func(c *turn.Core) (turn.Backend, []int32){o.Instances, o.Generators}),
		First:    o.Backend,
	}
}

// moreBackends are of the kinds that only tests have.
var moreBackends []func(c *turn.Core) (b turn.Backend, devices []int32)
