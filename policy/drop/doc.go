// Package drop has the policies of applications under one deadline: PARD (EuroSys '26) and ours (feas). A request that
// will miss its deadline takes time from one that could make it. So each task is tested when it could enter a batch,
// with an estimate for the modules downstream, and its request is dropped if it would be late.
//
// Vocabulary, beside docs/glossary.md:
//
//   - Worker: a module on a device. Workers of one device take turns.
//   - Budget: the time left to a deadline, less what is downstream. LBF and HBF: lowest and highest budget first.
//   - Downstream: the modules that a request has yet to pass after this one, and the estimated time for them.
//   - Forming batch: the next batch of a worker, while tasks can still enter it.
//   - Wait for a batch: from entering the forming batch until it starts. Queueing: from the reveal until entering.
//   - Set aside (feas): the oldest tasks for which there is no time, so that the others are in time.
//   - Cell: an application and one of its services, as an index.
//   - Outcome: which way a request takes at a branch. Hopeless: late even if each remaining module ran it alone.
//
// Variants are baselines and ablations: bench/pard/readings has PARD's ablations, Nexus and Clipper++.
//
// Order of reading:
//
//	options.go       the policies by name, and their parameters
//	variant.go       in what baselines and ablations differ
//	policy.go        the parts, and which of them handles which event
//	broker.go        the Request Broker: assigns tasks to workers, forms batches, drops what fails the test
//	droptest.go      the drop test, and whether a queue can be served in time
//	partialqueue.go  which tasks are set aside if not all can be served in time
//	proof.go         keeps the result of the last count of a queue
//	planner.go       the State Planner: estimates of the other modules, each second
//	estimate.go      the time downstream of a module
//	pathshares.go    learns which outcomes requests have at branches
//	entryload.go     the load of the modules, by the arrivals at the entry
//	waits.go         distributions of waits for batches, their sums and quantiles
//	minmaxheap.go    the queues: a min-max heap
//	worker.go        a module on a device, with its batches and its queue
//	fleet.go         the workers of all modules; loads and unloads
//	starttree.go     finds the worker with the earliest start
//	gate.go          admission at the entry
//	scale.go         the number of workers by demand
//	watch.go         drops hopeless requests while batches run
//	retry.go         when a refused request is worth sending again
//	speed.go         measured batch times over planned ones
//	losses.go        lost workers, and batches without a result
//	statistics.go    statistics of a run
//
// Handling an event allocates nothing once queues have grown, except for changes of the order, which are kept for the
// report.
package drop
