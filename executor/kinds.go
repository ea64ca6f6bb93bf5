package executor

import "inferplan/formats"

// kindsServed is the only list of what answers requests and executes batches.
var kindsServed = kinds{
	answers:  []func(c *core, plan *formats.Plan) (answer, error){cascadeOf, flowOf, tokensOf},
	backends: []func(c *core) (b backend, devices []int32){agentsOf, generatorsOf},
	first:    newWorkers,
}

// workersOf is the first backend of a core, which every plan has.
func workersOf(c *core) *workers { return c.backends[0].(*workers) }
