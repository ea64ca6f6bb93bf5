// Package worker runs blocks in a process of their own, one per device or
// virtual share, and is both sides of that process: Serve inside it, Process
// in the parent that started it.
//
// A process of its own keeps a fault in an engine away from the front end,
// lets the parent kill what hangs, and gives each device a thread that nothing
// else uses.
//
// # How a run goes
//
// Tensors never travel on the control socket. The parent creates one Segment
// (a sealed memfd) per worker and hands its descriptor to that worker and to
// the workers that read its outputs. The segment is divided into slots; the
// parent alone decides who uses which slot (SlotPool), because it alone knows
// when the last reader is done. A Run command names where the input lies (any
// attached segment and an offset) and where the output goes (an offset of the
// worker's own segment). So a tensor that the next stage's worker needs is
// read where the first one's engine wrote it, without a copy; inside one
// process the two are the same mapping.
//
// The worker's main goroutine owns one operating-system thread, pinned to the
// device's CPUs. It reads a command, runs it, answers, and reads again:
// commands queue up in the socket, so runs are first-in first-out and a
// following run starts without waiting for the parent.
//
// # Control protocol, version 1
//
// A stream socket carries frames: an 8-byte header and a payload of at most
// MaxFrame bytes. All integers are little endian.
//
//	offset size
//	0      4    length of the payload
//	4      1    type
//	5      1    protocol version (1)
//	6      2    zero
//
// The frames of the hot path have fixed binary payloads; the others carry a
// strict JSON document.
//
//	type         direction  payload
//	hello    1   to worker  JSON Hello: engine, device, CPUs
//	welcome  2   to parent  JSON Welcome: process, engine, device
//	load     3   to worker  JSON StageSpec: one block range
//	loaded   4   to parent  JSON Loaded: its tensors and what loading cost
//	segment  5   to worker  JSON SegmentSpec, with the descriptor (SCM_RIGHTS)
//	prepare  6   to worker  JSON Layout: the slots of one stage; bind and warm up
//	ready    7   to parent  JSON Ready: answers segment, prepare and unload
//	run      8   to worker  40 bytes: run 8, stage 4, batch 4, segment 4, flags 4, in 8, out 8
//	result   9   to parent  48 bytes: run 8, stage 4, code 4, start 8, end 8, cpu 8, total 8; then text
//	unload   10  to worker  JSON Unload: one stage
//	shutdown 13  to worker  empty: finish what came before and exit
//	share    21  both       JSON DeviceSpec: memory of a GPU beside a segment, and its handle for others
//	probe    22  both       JSON Probe, with a descriptor where bytes go along; answered by a JSON engine.Timing
//	error    14  to parent  JSON Failure: a set-up step failed
//	keep     23  to worker  JSON Keep, with the descriptor of memory for the model: cut a stage
//	kept     24  to parent  JSON Kept: its tensors, and what is in that memory
//	swap     25  to worker  JSON Swap: bring stages to the device, or take them away
//	swapped  26  to parent  JSON Swapped: how that went
//
// A run's flags: bit 0, the input lies in the device's memory beside the segment;
// bit 1, the output goes there. Offsets are the same as in the segment.
//
// Result times are nanoseconds of CLOCK_MONOTONIC, which all processes of a
// machine share; cpu is the CPU time of the run's thread inside the engine
// (of the whole process where the device has several threads) and total is
// the CPU time of the worker process so far. The difference of the two sums
// is what the worker itself costs.
//
// Whoever reads end-of-file ends: the worker exits when its parent is gone,
// the parent learns at once when the worker was killed.
//
// # Swapping
//
// A worker whose device cannot hold all of its stages swaps them. Set-up then has
// keep frames in place of load frames: the worker cuts every stage out of its
// model's file and leaves the result in memory of the host, where a [Cache] keeps
// it for all workers of the machine, up to a number of bytes. A swap loads stages
// from there, with the slots that the parent has cut for them out of the segment,
// or frees what they had. It runs on a thread beside the loop, one at a time, and
// answers when it is done: batches of other stages go on meanwhile. The worker
// refuses what would go beyond the memory of its device (Hello.Memory), by the
// bytes that the parent says. What has no room in the cache is read from its file.
//
// While a swap is under way, the loop waits for commands as Go programs usually
// do, because loading needs the garbage collector.
//
// # Measuring
//
// CUDA's Multi-Process Service divides a GPU between processes, not between
// threads, so profiling 1/v of it takes v workers that run at the same time. An
// [Engine] is everything that engine.Engine offers, executed in such a worker by
// probe frames. Blocks are cut by the parent, and their tensors lie on the device.
// Models and tensors go over in shared memory while a block is set up; a timed
// loop (RunN) is one frame each way and is measured inside the process.
//
// # Other hosts
//
// A host offers its devices to a server over TCP ([Join]); the server keeps the
// connections in a [Lobby] and starts workers on them that look like its own:
// Lobby.Start gives a Process whose control socket a goroutine answers, which
// sends inputs out of shared memory and puts outputs into it. At the other end
// an agent does the same around a worker process of that host.
//
// The connection carries the frames above, and these:
//
//	type         direction  payload
//	challenge 15 to worker  JSON: a nonce
//	offer     16 to server  JSON: host, device, a nonce, HMAC-SHA256 of all by the token
//	proof     17 to worker  JSON: the server's HMAC
//	push      18 to worker  a run whose in is the number of bytes of input, which follow
//	done      19 to server  8 bytes: the number of bytes of output; a result; the output
//	beat      20 both       the server's clock 8; the worker's clock 8 in the answer
//
// segment and shutdown do not cross: memory is each end's own,
// and a connection that ends, or is silent for too long, ends the worker. Times
// in results are brought to the server's clock by the beats with the shortest
// round trip. The token is never sent, but what follows the handshake is only
// as safe as the network, or as TLS makes it: the Lobby's listener then has a
// certificate, its own (Certificate) or one of an authority, and the host trusts
// the one by its pin (PinnedTLS) and the other as usual (JoinConfig.TLS).
package worker
