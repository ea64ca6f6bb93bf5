// Package executor serves a plan: it is the interpreter of policy.Policy that
// runs on the wall clock.
//
// # How a request goes
//
// A transport (executor/oip) calls Executor.Infer on its own goroutine. Infer
// puts the request into the inbox of the plan's core and, where nobody is at it,
// runs a round itself: it hands an Arrival to the policy and carries out what the
// policy answers. So do all others that bring news (package loop). For a Dispatch
// it copies the batch's samples into a slot of the first stage's worker
// (engine/worker: a process per device, tensors in shared memory) and sends a 48-byte command. The worker's result comes back
// through a reader goroutine as a BatchFinished with actual times; the core
// sends the next stage's command, which names the place where the first
// stage's output already lies, or copies the last stage's output to the
// requests and wakes their goroutines.
//
// A stage whose outputs nobody reads yet, because the next device is slow or
// gone, runs ahead until its slots are full and then waits; nothing is dropped
// for that.
//
// A client request of n samples counts as n requests of the policy, which may
// run in different batches; the client has its answer when all of them have
// run, and is refused as soon as one of them is dropped.
//
// The deadline of a request is its arrival plus the model's SLO, or plus the
// request's own timeout where that is shorter: a plan promises no more than
// its SLO, and a gRPC client's generous default deadline must not switch the
// promise off. A late result is answered all the same and counted as late.
//
// A real clock wakes late and real runs jitter, so a policy that plans batches
// to end exactly at their deadlines needs a guard: a plan that names none gets
// 2 ms and 10 % of the batch's device time (see PolicySpec).
//
// # What may fail
//
// A worker that dies is noticed by end-of-file on its control socket. Its runs
// are gone; the policy hears WorkerLost, aborts what is affected and plans it
// anew while deadlines allow; a supervisor restarts the worker (with growing
// pauses where it keeps dying) and the policy hears WorkerBack. Results of
// batches that were aborted meanwhile are ignored. A worker that hangs is
// killed and then treated the same.
//
// Devices of other hosts (Options.Remote, Options.Lobby) are workers like the
// rest: a host that is gone is a worker that died, and comes back when it joins
// again.
//
// Reload starts a second core beside the first, switches to it in one step and
// drains the first: no request is lost, and for a moment both plans' workers
// are in memory. Drain refuses what is new, waits for what is accepted and
// answers the rest with the reason draining.
//
// # Rooms
//
// turn is the core: a plan in execution. It knows the rooms above it by two interfaces,
// Answer and Backend, and kinds.go is the only list of them:
//
//	turn      jobs, the ledger, batches, rounds, what the policy decides
//	workers   worker processes behind the plan's devices
//	cascade   answers of gear plans
//	tasks     answers of applications and workflows; programs: workflows as code
//	text      requests for text, instances of language models, agents
//
// Below them: loop (whose turn it is), oip (the protocol of tensors), completions and
// durable (the front end for text and its stores), calls (programs over HTTP), httplimit
// (the door of all), steps (what is done between models), drift (whether another plan is
// due), series (names of metrics). load drives a server.
//
// A request goes through oip, Executor.Infer (executor.go), turn/round.go (inbox and
// rounds), turn/requests.go, the loop, turn/actions.go (what the policy decides),
// workers/device.go, which sends the worker its command, and workers/workers.go, which
// takes its result.
//
// # Files
//
//	serve.go      listeners, TLS, signals: plan serve
//	executor.go   Executor: requests in, answers out
//	compile.go    what is made of a plan before anything starts
//	kinds.go      what answers and executes
//	switch.go     from one plan to another; planfile.go: the file of the plan
//	history.go    counts of all plans that were in force; report.go: the report
//	gearrates.go  rates for another gear plan
//	api.go        options of all rooms, and names that callers use
package executor
