package executor

import (
	"slices"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// kindsServed returns the answers and backends of all kinds of plans. This is the only list of them.
func kindsServed(o *Options) *turn.Factories {
	return &turn.Factories{
		Answerers:      []func(c *turn.Core, plan *formats.Plan) (turn.Answerer, error){o.CascadeOptions.Answer, o.TaskOptions.Answer, text.TextAnswersOf},
		Backends:       slices.Concat(testBackends, []func(c *turn.Core) (turn.Backend, []int32){o.Instances, o.Generators}),
		DefaultBackend: o.Backend,
	}
}

// testBackends are the backends of kinds that only tests have.
var testBackends []func(c *turn.Core) (b turn.Backend, devices []int32)
