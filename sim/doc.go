// Package sim runs a plan in virtual time: the same policy code that the
// executor runs, against models of devices and links.
//
// One loop over an indexed heap (package kernel) keyed by time, kind of event
// and sequence number; typed events, no allocation per event, no logging. A
// device runs one batch at a time, first-in first-out; a transfer holds the
// uplink of the sending and the downlink of the receiving node at once, each
// first-in first-out. Nothing is held back for a reserved start.
//
// # The loop and its hosts
//
// The loop knows arrivals, the policy with its timers and searches, requests and
// tasks, and the order of all that happens (loop.go, agenda.go, ledger.go,
// actions.go, replan.go). It asks a host, per device, to execute (host.go). One
// host models devices that run batches of stages and the links between them
// (devices.go, links.go), loads networks (loads.go), and runs the iterations of
// language models of workflows (engines.go, generated.go). Another one models
// instances of language models: package llm runs their iterations, servers.go
// takes and evicts requests, swaps.go changes what an instance runs. What an entry of the heap
// is to its host and its order in the instant are two numbers, so that what
// happens within a host has its place and is no event of the policy.
//
// An ending says what the end of a batch means to its requests, and a Truth says
// what only reality knows (endings.go). There is the direct ending, one for
// cascades (gears.go), one for requests of several tasks (flow.go), whose works and
// transfers take the times of flowtimes.go, and one for requests to language models,
// which judges each by the figure that its SLO is of (tokens.go). Package workflows
// has dynamic applications. Of plans of applications flowstats.go follows the
// requests, flowbound.go says what was possible, flowways.go draws branches and
// flowreport.go writes the report.
//
// # The rest
//
// config.go says what a run is, service.go how long work takes, recorded.go which
// arrivals a trace has, transfers.go how long tensors were under way, verify.go
// the invariants, trace.go the Chrome trace, replicate.go runs over several seeds,
// findmax.go the search for the highest load.
//
// The typical steps: Compile the plan (package policies), make its policy
// (likewise) and a source (package arrivals; Scenario.Source does it for the
// plan's own rates), then Run. Replicate and FindMaxLoad do these steps for
// every run that they need.
package sim
