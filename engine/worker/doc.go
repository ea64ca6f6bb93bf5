// Package worker runs blocks in separate processes, one per device or share of a
// device. It implements both sides: Serve inside the worker process, Process in
// the parent that started it.
//
// A separate process keeps a fault in an engine away from the front end, lets the
// parent kill an engine that hangs, and gives each device a thread that nothing
// else uses.
//
// Vocabulary:
//
//   - Parent: the process that starts a worker: the server, or the profiler.
//   - Stage: a range of a model's blocks at a largest batch size, loaded under an ID.
//   - Segment: memory that processes share, in which tensors lie.
//   - Slot: a part of a segment for the input and output of one batch of a stage.
//   - Binding: a loaded block bound to the tensors of one batch size.
//   - Run: one execution of a stage on a batch. Its command is a [RunCommand].
//   - Swap: loading kept stages onto the device, or removing them, while others run.
//   - Host: another machine, whose devices join a server ([Join], [JoinServer]).
//   - Probe: a step of measuring a block in a worker (see [Engine]).
//
// In which order to read:
//
// Frames and messages: frame.go, message.go, swap.go. The worker's side:
// serve_linux.go, control_linux.go, stage_linux.go, stagetable.go, swap_linux.go, and the engines
// onnx.go and replay_linux.go. What a plan's stages load, and how they are cut out of files of models: planstages.go,
// cutter.go. The parent's side: process_linux.go, memory_linux.go, slots.go, cache_linux.go. Measuring: engine_linux.go,
// probe_linux.go. Other hosts: link.go, skew.go, joinserver_linux.go, joined_linux.go
// and relay_linux.go in the server; join_linux.go, joinagent_linux.go and
// joinswap_linux.go on the host; secrets.go on both.
//
// # How a run goes
//
// Tensors never travel on the control socket. The parent creates one Segment
// (a sealed memfd) per worker and passes its descriptor to that worker and to
// the workers that read its outputs. The segment is divided into slots. Only the
// parent decides which batch uses which slot (SlotPool), because only the parent
// knows when the last reader is done. A RunCommand says where the input lies (any
// attached segment and an offset) and where the output is written (an offset of
// the worker's own segment). So the worker of the next stage reads a tensor where
// the engine of the first wrote it, without a copy. Inside one process the two
// are the same mapping.
//
// The worker's main goroutine owns one operating-system thread, pinned to the
// device's CPUs. It reads a command, runs it, answers, and reads again:
// commands queue up in the socket, so runs are first-in first-out and the next
// run starts without waiting for the parent.
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
//	loaded   4   to parent  JSON LoadedStage: its tensors, bytes and time of loading
//	segment  5   to worker  JSON SegmentSpec, with the descriptor (SCM_RIGHTS)
//	prepare  6   to worker  JSON Layout: the slots of one stage; bind and warm up
//	ready    7   to parent  JSON ReadyReply: answers segment and prepare
//	run      8   to worker  40 bytes: run 8, stage 4, batch 4, segment 4, flags 4, in 8, out 8
//	result   9   to parent  48 bytes: run 8, stage 4, code 4, start 8, end 8, cpu 8, total 8; then text
//	shutdown 13  to worker  empty: finish what came before and exit
//	share    21  both       JSON DeviceSpec: memory of a GPU beside a segment, and its handle for others
//	probe    22  both       JSON Probe, with a descriptor where bytes go along; answered by a JSON engine.Timing
//	error    14  to parent  JSON Failure: a set-up step failed
//	keep     23  to worker  JSON KeepRequest, with the descriptor of memory for the model: cut a stage
//	kept     24  to parent  JSON KeptStage: its tensors, and the model in that memory
//	swap     25  to worker  JSON Swap: load stages onto the device, or remove them
//	swapped  26  to parent  JSON SwapResult
//
// A run's flags: bit 0, the input lies in the device's memory beside the segment;
// bit 1, the output goes there. Offsets are the same as in the segment.
//
// Result times are nanoseconds of CLOCK_MONOTONIC, which all processes of a
// machine share; cpu is the CPU time of the run's thread inside the engine
// (of the whole process where the device has several threads) and total is
// the CPU time of the worker process so far. The difference of the two sums
// is the CPU time of the worker itself.
//
// Each side ends when it reads end-of-file: the worker exits when its parent has
// ended, and the parent learns at once that the worker was killed.
//
// # Swapping
//
// A worker whose device cannot hold all of its stages swaps them. Set-up then has
// keep frames in place of load frames: the worker cuts every stage out of its
// model's file and leaves the result in memory of the host. A [Cache] keeps it
// there for all workers of the machine, up to a number of bytes. A swap loads
// stages from there into slots that the parent has chosen, or frees the stages.
// It runs on a thread beside the loop, one at a time, and is answered when it is
// done. Batches of other stages run meanwhile. The worker refuses a swap that
// would exceed the memory of its device (Hello.Memory), by the bytes that the
// parent states. A stage that does not fit into the cache is read from its file.
//
// While a swap is under way, the loop waits for commands as Go programs usually
// do, because loading needs the garbage collector.
//
// # Measuring
//
// CUDA's Multi-Process Service divides a GPU between processes, not between
// threads, so profiling 1/v of it takes v workers that run at the same time. An
// [Engine] implements engine.Engine in such a worker by probe frames. The parent
// cuts the blocks, and their tensors lie on the device. While a block is set up,
// models and tensors are exchanged in shared memory. A timed loop (RunN) is one
// frame each way and is measured inside the process.
//
// # Other hosts
//
// A host offers its devices to a server over TCP ([Join]). The server keeps the
// connections in a [JoinServer] and starts workers on them that look like its own:
// JoinServer.Start returns a Process whose control socket a goroutine answers. It
// sends inputs from shared memory and stores outputs there. At the other end an
// agent does the same around a worker process of that host.
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
// segment and shutdown frames are not sent between hosts: each end has its own
// memory, and a connection that ends, or is silent for too long, ends the worker.
// Times in results are converted to the server's clock, whose difference from the
// host's is bounded by beats and runs. The token is never sent. The frames after
// the handshake are only as safe as the network, unless TLS protects them: the
// JoinServer's listener then has a certificate. If it is self-signed
// (Certificate), the host trusts it by its pin (PinnedTLS); if it is of an
// authority, as usual (JoinConfig.TLS).
package worker
