// Package turn is a plan in execution: a policy, which one goroutine at a time turns to
// (package loop), and what carries out its decisions.
//
// # Words
//
// A Job is a client's request; each of its samples is a request of the policy, in a slot
// of the ledger. Tasks of requests run in a Batch, hop by hop, on devices. A Backend
// executes on its devices and answers with News, which a round takes from the inbox. An
// Answer makes the answers of requests from what batches give. A round hands all that has
// come to the policy and carries out what it decides: whoever brings something runs one,
// unless somebody is at it.
//
// # Rooms above
//
// What answers and executes is in rooms of its own (Kinds), which do not know each other:
// they meet the Core only by Answer and Backend, and it knows none of them.
//
// # Files
//
//	core.go       a plan in execution, from its start to its end
//	round.go      the inbox, rounds, events that follow from actions
//	actions.go    what the policy decides
//	requests.go   jobs and requests in the ledger
//	job.go        a client's request; refusal.go: the errors that clients see
//	batch.go      what the policy dispatched, until it ends
//	answer.go     how requests become answers; the direct way
//	backend.go    what executes
//	model.go      what is served, with class.go and buckets.go
//	options.go    how any plan is served; policies.go: by which policy
//	stats.go      what happened, with metrics.go
//	recorder.go   how long it took; servicefile.go: the file of that
package turn
