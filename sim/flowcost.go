package sim

import (
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// Costs of requests. The policy looks among all devices for the next batch. That of workflows plans what devices
// will do with every task; language models run iteration by iteration.
var (
	plainCost    = cost{1, 1. / 2000}
	workflowCost = cost{4, 1. / 20}
	languageCost = cost{8, 1. / 20}
)

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
