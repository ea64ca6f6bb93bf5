// Package remote is an engine in another process: everything that
// engine.Engine offers, executed there, block by block.
//
// It exists for shares of a GPU. CUDA's Multi-Process Service divides a device
// between processes, not between threads, so profiling 1/v of a GPU takes v
// processes that work at the same time. [Start] starts one of them, [Main] is
// what runs inside, and the [Engine] in between hands every call over a socket.
// Models and tensors' contents cross the socket while a block is set up; a
// timed loop (Binding.RunN) crosses as two small messages around it and is
// measured inside the process, so that the socket is not in its numbers.
//
// This is not how plans are served: engine/worker is, whose tensors lie in
// shared memory and whose runs queue up without a round trip each.
//
// The process serves one caller, one call at a time, on one operating-system
// thread, pinned to the device's CPUs where the device is a set of CPUs. It ends
// when the socket is closed, so it never outlives its parent.
package remote
