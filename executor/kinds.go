package executor

import (
	"slices"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// kindsServed returns the answers and backends of all kinds of plans. This is the only list of them.
func kindsServed(o *Options) *turn.Kinds {
	return &turn.Kinds{
		Answers:  []func(c *turn.Core, plan *formats.Plan) (turn.Answer, error){o.CascadeOptions.Answer, o.TaskOptions.Answer, text.TokensOf},
		Backends: slices.Concat(moreBackends, []func(c *turn.Core) (turn.Backend, []int32){o.Instances, o.Generators}),
		First:    o.Backend,
	}
}

// testBackends are the backends of kinds that only tests have.
var moreBackends []func(c *turn.Core) (b turn.Backend, devices []int32)
