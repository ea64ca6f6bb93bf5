// Package turn executes a plan: it calls the plan's policy, one goroutine at a time (package loop), and carries out its
// decisions through backends.
//
// # Words
//
//   - Job: a client's request. Each of its samples is a request of the policy, in a slot of the ledger.
//   - Batch: tasks of requests that run together, hop by hop, on devices. Service: what tasks ask for.
//   - Backend: executes batches on its devices, and posts events to the inbox.
//   - Answerer: turns what batches produce into the answers of requests.
//   - Turn: the right to call the policy. Round: one turn, in which everything that has arrived is told to the policy.
//     The goroutine that brings something runs a round itself, unless another one is at it.
//   - Bucket: a model for requests up to a length. Ticket: the number of a request to bring inputs to a device.
//
// # Rooms above
//
// Answerers and backends are in packages of their own (Factories), which do not know each other: they meet the Core only
// through the interfaces Answerer and Backend, and the Core knows none of them.
//
// # Files
//
//	core.go      a plan in execution, from its start to its end
//	round.go     the inbox, rounds, events that follow from actions
//	actions.go   carries out the policy's actions
//	requests.go  jobs and requests in the ledger; what is refused before the policy hears of it
//	job.go       a client's request; refusal.go: the errors that clients see
//	batch.go     batches, from their dispatch to their end
//	answer.go    the interface Answerer, and the direct one; pool.go: what it shows of plans of pools
//	backend.go   the interface Backend
//	model.go     served models, with servedmodels.go and buckets.go
//	options.go   options for all kinds of plans; policies.go: the policy that runs
//	stats.go     what happened; metrics.go: the Prometheus series, where a new one is added
//	recorder.go  the times of runs; servicefile.go: their file
package turn
