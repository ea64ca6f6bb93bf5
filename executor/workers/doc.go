// Package workers is the backend of worker processes (engine/worker): a process per
// device, with a queue in front of each and tensors in shared memory.
//
// # What may fail
//
// A worker that dies is noticed by the end of its control socket. Its runs are gone; the
// policy hears WorkerLost, and a supervisor starts the worker again. A worker that hangs
// is killed and then treated the same. A run that fails fails its batch.
//
// # Files
//
//	workers.go    the backend: results, losses, workers that hang
//	device.go     the queue in front of a worker, and the copies into its memory
//	run.go        a stage of a batch on a device, and its slots
//	home.go       what a device holds whose networks come and go
//	arena.go      ranges of its segment
//	supervise.go  the life of a worker process; assume.go: without starting one
//	place.go      the plan's devices and stages on this machine
//	tier.go       ways of tensors to the next stage; memory.go: those in a GPU's memory
//	copiers.go    copies side by side
//	use.go        what devices did
package workers
