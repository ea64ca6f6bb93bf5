// Package served has the state of a server that executes a plan: what it promised, what it answered in the last minute and
// since its start, how busy its devices are, and what happened last. The executor fills it in, package pages shows it to people,
// and programs get it as JSON.
//
//	state.go   State, with models, devices, samples of the last minutes and events
//	parts.go   Part, which each kind of plan has for itself, and its tables for people
//	pool.go, gear.go, flow.go, queue.go   the parts
package served
