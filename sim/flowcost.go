package sim

import (
	"inferplan/policy"
	flows "inferplan/policy/flow"
	gears "inferplan/policy/gear"
)

// Costs of requests. The policy looks among all devices for the next batch. That of workflows plans what devices
// will do with every task; language models run iteration by iteration.
var (
	plainCost    = cost{1, 1. / 2000}
	workflowCost = cost{16, 1. / 20}
	languageCost = cost{8, 1. / 20}
)

// How many times fewer requests runs of workflows have, and the devices from which on those of cascades do.
const (
	workflowsFewer = 4
	manyDevices    = 250
)

// Fewer returns how many times fewer requests a run of tables has, to test what they sustain, than one of those of
// which a request takes little. Those of language models are not fewer: too few answers would be long.
func Fewer(t *policy.Tables) float64 {
	switch {
	case gears.Of(t) != nil:
		return FewerOn(len(t.Devices))
	case costOf(t) == workflowCost:
		return workflowsFewer
	}
	return 1
}

// FewerOn returns the same of a cascade on so many devices, of which each has its turn with every request.
func FewerOn(devices int) float64 { return max(1, float64(devices)/manyDevices) }

// costOf returns what a request of a plan takes.
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
