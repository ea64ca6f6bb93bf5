// Package workers is the backend of worker processes (engine/worker): a process per
// device, with a queue in front of each and tensors in shared memory.
//
// # What devices hold
//
// Where the plan gives a device memory to account for, its networks come and go:
// the policy's loads and unloads are orders, which the worker carries out one after
// the other beside its batches (home.go). A network that goes is first run to its
// end; one that comes has slots cut for it out of the worker's segment (arena.go),
// fewer where there is little room. An order that cannot be done is answered with
// a Return: memory or segment that is full, a load that failed. A worker whose load
// does not end is killed. A worker that is started again holds what the plan says
// for the start. Models come out of the host's memory (worker.Cache), which all
// workers of this machine fill before the first request; hosts that join have one
// of their own.
//
// # Files
//
//	options.go    where devices are, and how workers run
//	workers.go    the backend: results, losses, workers that hang
//	device.go     the queue in front of a worker, and the copies into its memory
//	run.go        a stage of a batch on a device, and its slots
//	home.go       what a device holds whose networks come and go
//	arena.go      ranges of its segment
//	supervise.go  the life of a worker process; assume.go: without starting one
//	place.go      the plan's devices and stages on this machine
//	tier.go       ways of tensors to the next stage; memory.go: those in a GPU's memory
//	copiers.go    copies side by side
//	execution.go  how the plan says that a device executes
//	use.go        what devices did
package workers
