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
	plainCost    = requestCost{1, 1. / 2000}
	workflowCost = requestCost{16, 1. / 20}
	languageCost = requestCost{8, 1. / 20}
)

// Divisors of the number of requests: that of workflows, and the number of devices from which
// on cascades have one.
const (
	workflowDivisor = 4
	cascadeDevices  = 250
)

// RequestDivisor returns by how much a test of the load that a plan sustains divides its number of requests, because
// each costs much to simulate: more for cascades on many devices, and for workflows. Requests to language models are
// never divided: among fewer requests, too few would have long answers.
func RequestDivisor(tables *policy.Tables) float64 {
	switch {
	case gears.TablesOf(tables) != nil:
		return CascadeRequestDivisor(len(tables.Devices))
	case requestCostOf(tables) == workflowCost:
		return workflowDivisor
	}
	return 1
}

// CascadeRequestDivisor returns what RequestDivisor returns for a cascade on a number of devices: all of them take
// part in every request.
func CascadeRequestDivisor(devices int) float64 { return max(1, float64(devices)/cascadeDevices) }

// requestCostOf returns about what it costs to simulate a request of a plan, more for workflows and language models.
// Budgets of simulations are counted by it.
func requestCostOf(tables *policy.Tables) requestCost {
	workflows := flows.WorkflowTablesOf(tables)
	switch {
	case workflows == nil:
		return plainCost
	case len(workflows.LanguageModels) > 0:
		return languageCost
	}
	return workflowCost
}
