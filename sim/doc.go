// Package sim runs a plan in virtual time: the same policy code that the executor
// runs, against models of devices, links and instances of language models. One
// event loop orders everything by time; hosts execute what the policy dispatches.
// The package also replicates runs over seeds and searches for the highest load
// that a plan sustains.
//
// The words of this package:
//
//   - Agenda: the events that are still to happen. Its entries carry a kind and an
//     order within their instant. The order is a number of its own, because what
//     happens within a host is no event of the policy.
//   - Host: executes the batches of some devices. One host models devices that run
//     batches of stages, and the links between them; another one models instances of
//     language models.
//   - Slot: the policy's number of a batch, a request or a task, used again later. The
//     serial number tells a batch from earlier ones of its slot.
//   - Fault epoch: how often a device has failed. Entries of an earlier one are void.
//   - Activity: what a batch does now: it waits, runs, or is transferred.
//   - Instance: a server of language models on a device. Network: weights that it runs.
//   - Hop: one stage of a batch on one device. A transfer lies between two hops. It
//     holds the uplink of the sending node and the downlink of the receiving node at
//     once, each first-in first-out.
//   - Ending: the rule by which the end of a batch answers its requests: directly,
//     by a cascade, by the last of several tasks, or by a language model's tokens.
//   - Truth: what only reality knows, such as how certain an answer is, which branch
//     a task takes, and how many tokens it makes.
//   - Service: the times that work takes.
//   - Session state: what a service keeps of a request on a device between tasks.
//   - Counted time: from the end of the warm-up to the end of the arrivals.
//   - Load factor: a multiple of the planned rates.
//
// The loop allocates nothing per event and does not log. A device runs one batch at
// a time, first-in first-out. Nothing is held back for a reserved start.
//
// The files follow in the order in which to read them.
//
// # The loop and its hosts
//
// The run: config.go (what a run is), loop.go, agenda.go, ledger.go (requests and
// tasks), actions.go (what the policy decides), replan.go, verify.go (invariants and
// the result). The heap is package kernel.
//
// Hosts: host.go (interface and batches), devices.go (with lost devices) and links.go, loader.go (networks
// that are loaded onto devices), llmengines.go with generations.go (language models of
// workflows), sessions.go (session states), then llmhost.go and swapper.go (instances;
// package llm runs their iterations).
//
// Endings: endings.go, gears.go (cascades), flow.go (several tasks) with flowtimes.go,
// tokens.go (language models). For plans of applications flowstats.go follows the
// requests, flowbound.go bounds how many could be answered in time, flowbranches.go draws
// branches, flowwork.go follows the devices of workflows, and flowreport.go writes the
// report.
//
// # The rest
//
// Around a run: service.go and slowdowns.go (times of work), recorded.go (arrivals of a
// trace), transfers.go (times between stages), trace.go (Chrome trace), replicate.go
// (several seeds) with pooling.go (their sum), budget.go and flowcost.go (the work of simulations), maxload.go (the
// highest load of all models), modelloads.go (the highest load of each model).
//
// The typical steps: compile the plan (package policies), make its policy (likewise)
// and a source (package arrivals; Scenario.Source does it for the plan's own rates),
// then call Run. Replicate and FindMaxLoad do these steps for every run that they need.
package sim
