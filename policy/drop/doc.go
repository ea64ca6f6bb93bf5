// Package drop has the policies of pipelines under one deadline: PARD (EuroSys
// '26) and ours (feas). Others are variants of the two: bench/pard/readings has PARD's
// ablations, Nexus and Clipper++.
//
// A request that will miss its deadline steals from one that could make it. So a
// task is tested when it could enter a batch, with what the modules further down
// will take, and its request is dropped if it would be late.
//
//	options.go   the policies by name; parameters
//	variant.go   what baselines and ablations do otherwise
//	policy.go    the parts, and which of them an event concerns
//	broker.go    the Request Broker: who serves a task, when batches form
//	judge.go     the test, and whether a queue can be served in time
//	spare.go     who stands aside where not all can be served in time
//	proof.go     what is known of that from before
//	planner.go   the State Planner: what is known of other modules, each second
//	estimate.go  what is left to do behind a module
//	ways.go      which ways requests take, as seen so far
//	waits.go     distributions of waits for batches, their sums and quantiles
//	depq.go      the queues: a min-max heap
//	worker.go    a device with its batches and its queue
//	fleet.go     the workers of all modules, networks that come and go
//	starts.go    which worker can start a further task first
//	gate.go      admission at the entry
//	scale.go     how many workers are to serve
//	watch.go     requests without hope, refused while batches run
//	again.go     when asking again is worth it
//	pace.go      how long batches take, beside what the plan says
//	change.go    the broker where workers are lost and batches come back
//	seen.go      what only the policy knows of a run
//
// Handling an event allocates nothing once queues have grown, but for changes of
// the order, which are kept for the report.
package drop
