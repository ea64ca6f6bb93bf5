package sim

import (
	"inferplan/policy"
	flows "inferplan/policy/flow"
	gears "inferplan/policy/gear"
)

// Simulation costs of a request, in requests of a plan with few devices. The policy searches
// all devices for the next batch. The policy of workflows plans the devices of every task,
// and language models run iteration by iteration.
var (
	plainCost    = cost{1, 1. / 2000}
	workflowCost = cost{16, 1. / 20}
	languageCost = cost{8, 1. / 20}
)

// Divisors of the number of requests: that of workflows, and the number of devices from which
// on cascades have one.
const (
	workflowsFewer = 4
	manyDevices    = 250
)

// RequestDivisor returns by how much a test of what a plan sustains divides its number of
// requests, because each costs much. Those to language models are never divided: among fewer
// requests, too few would have long answers.
func Fewer(t *policy.Tables) float64 {
	switch {
	case gears.Of(t) != nil:
		return FewerOn(len(t.Devices))
	case costOf(t) == workflowCost:
		return workflowsFewer
	}
	return 1
}

// CascadeRequestDivisor returns the same for a cascade on a number of devices, all of which
// take part in every request.
func FewerOn(devices int) float64 { return max(1, float64(devices)/manyDevices) }

// requestCostOf returns the cost of a request of a plan.
func costOf(t *policy.Tables) cost {
	own := flows.WorkflowsOf(t)
	switch {
	case own == nil:
		return plainCost
	case len(own.Generations) > 0:
		return languageCost
	}
	return workflowCost
}
