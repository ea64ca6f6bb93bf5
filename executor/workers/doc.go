// Package workers is the backend of worker processes (engine/worker): a process per device, with a queue in front of
// each and tensors in shared memory.
//
// Vocabulary, beside package turn:
//
//   - Run: one stage of a batch on one device. In flight: sent to the worker.
//   - Segment: the shared memory of a worker. Slot: the memory of one run of a stage in it. Arena: its free ranges.
//   - Tier: the way by which a tensor comes to the next stage.
//   - Resident network: a network that a device holds at the start. Swap: a load or unload of a network at run time.
//   - Generation: the number of a device's process. Events of earlier ones are ignored.
//
// # What devices hold
//
// If the plan gives a device a memory size, its networks come and go: the policy's loads and unloads are orders, which
// the worker carries out one after the other beside its batches (networks.go). A network is unloaded once its batches
// have ended. For a network that is loaded, slots are cut out of the worker's segment (arena.go), fewer if there is
// little space. An order that cannot be carried out is answered with a ReturnReason: memory or segment is full, or a
// load failed. A worker whose load does not end is killed. A worker that is started again holds what the plan says for
// the start. Models come from the host's memory (worker.Cache), which all workers of this machine fill before the
// first request; hosts that join have a cache of their own.
//
// # Files
//
//	options.go    where devices are, and how workers run
//	workers.go    the backend: results, losses, workers that hang
//	device.go     the queue in front of a worker, and the copies into its memory
//	run.go        a stage of a batch on a device, and its slots
//	networks.go   the networks of a device on which they come and go
//	arena.go      free ranges of its segment
//	supervise.go  starts, prepares and restarts worker processes; assume.go: without starting one
//	place.go      the plan's devices and stages on this machine
//	tier.go       ways of tensors to the next stage; memory.go: those in a GPU's memory
//	copiers.go    helpers that copy samples in parallel
//	execution.go  how the plan says that a device executes
//	use.go        the use of devices
package workers
