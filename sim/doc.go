// Package sim runs a plan in virtual time: the same policy code that the
// executor runs, against models of devices and links.
//
// One loop over an indexed heap (package kernel) keyed by time, kind of event
// and sequence number; typed events, no allocation per event, no logging. A
// device runs one batch at a time, first-in first-out; a transfer holds the
// uplink of the sending and the downlink of the receiving node at once, each
// first-in first-out. Nothing is held back for a reserved start.
//
// How the pieces fit: config.go says what a run is, service.go how long work
// takes, run.go holds the loop, machine.go the devices, links and the
// interpretation of actions, fault.go what loss and abort do, verify.go the
// invariants, trace.go the Chrome trace, replicate.go runs over several seeds
// and findmax.go the search for the highest load.
//
// The typical steps: Compile the plan (package policy), make its policy
// (package policies) and a source (package arrivals; PlanSource does it for the
// plan's own rates), then Run. Replicate and FindMaxLoad do these steps for
// every run that they need.
package sim
