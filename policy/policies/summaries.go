package policies

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/balance"
	"inferplan/policy/drop"
	"inferplan/policy/gear"
	"inferplan/policy/reserve"
	"inferplan/policy/vqueue"
	"inferplan/policy/workflow"
)

// Summary is a policy in a line.
type Summary struct {
	Name string `json:"policy"`
	Text string `json:"text"`
}

// summaries describes the policies by name. Those of instruments have no text.
var summaries = map[string]string{
	reserve.Name:         "reserves time on every device and link of a pipeline before a batch starts, and shrinks batches that would be late",
	artifact.Name:        "dispatches as the simulator of PPipe's artifact does: a baseline",
	gear.Name:            "switches cascades by the rate of requests, and batches by what is waiting",
	drop.Default:         "drops the requests of a queue for which there is no time, so that the others are in time",
	"pard":               "PARD's rule: drops a request that will miss its deadline downstream",
	workflow.Default:     "DyOrc's prediction and placement of tasks, which admits what can be in time",
	"dyorc":              "DyOrc's prediction and placement of tasks, without admission",
	"greedy":             "places a task where it ends first, and predicts none: a baseline",
	"static":             "models stay on the devices that they begin on: a baseline",
	balance.Name:         "sends each request on to the least loaded instance, without a queue of its own",
	balance.PriorityName: "balances over servers that schedule by priority themselves",
	"edf":                "a queue in the order of deadlines",
	"fcfs":               "a queue in the order of arrival",
	vqueue.Name:          "QLM's virtual queues: request groups in the order with the fewest expected violations",
}

// Summaries returns the policies for plans with these tables, the default first.
func Summaries(tables *policy.Tables) []Summary {
	index := slices.IndexFunc(planKinds, func(k planKind) bool { return k.ownsTables(tables) })
	var list []Summary
	for _, name := range planKinds[max(0, index)].policyNames() {
		list = append(list, Summary{name, summaries[name]})
	}
	return list
}
