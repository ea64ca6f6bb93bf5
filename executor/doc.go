// Package executor serves a plan. It interprets the decisions of a policy.Policy in real time, as package sim does in
// virtual time.
//
// Vocabulary:
//
//   - Core: a plan in execution (turn.Core). Reload starts a second core beside the first.
//   - Round: one pass over the inbox of a core, in which the policy decides. The goroutine that runs it has the
//     core's turn (package loop).
//   - Event: what is put into the inbox: an arrival, a result, a loss.
//   - Backend: what executes batches: worker processes, instances of language models (turn.Backend).
//   - Answerer: what turns the results of batches into responses, by the kind of the plan (turn.Answerer).
//   - Room: a package, or a file, that belongs to one kind of plan.
//   - Late: finished after the deadline. Late results are still returned to the client.
//
// # How a request goes
//
// A transport (executor/oip) calls Executor.Infer on its own goroutine. Infer puts the request into the inbox of the
// plan's core. If no goroutine has the core's turn, it runs a round itself: it reports the arrival to the policy and
// carries out what the policy decides. Everybody else who posts an event does the same (package loop). For a
// dispatch, the core copies the batch's samples into a slot of the first stage's worker (engine/worker: a process per
// device, tensors in shared memory) and sends a 48-byte command. A reader goroutine receives the worker's result and
// posts it as a BatchFinished with actual times. The core then sends the command of the next stage, which names the
// place of the first stage's output, or it copies the last stage's output to the requests and wakes their goroutines.
//
// If the next device is slow or gone, the outputs of a stage are not read. The stage then runs ahead until its slots
// are full, and waits. Nothing is dropped for that reason.
//
// A client request of n samples counts as n requests of the policy, which may run in different batches. The client
// gets its answer when all of them have run, and is refused as soon as one of them is dropped.
//
// The deadline of a request is its arrival plus the model's SLO, or plus the request's own timeout if that is
// shorter. A plan promises nothing beyond its SLO, so a gRPC client's long default deadline must not switch the
// promise off.
//
// A real clock wakes late and real execution times vary, so a policy that plans batches to end exactly at their
// deadlines needs a guard. A plan that names none gets 2 ms and 10 % of the batch's device time (see PolicySpec).
//
// # What may fail
//
// A worker that dies is noticed by the end of file on its control socket. Its batches are lost. The policy gets
// WorkerLost, aborts what is affected and plans it again while deadlines allow. A supervisor restarts the worker,
// with growing pauses if it keeps dying, and the policy gets WorkerBack. Results of batches that were aborted
// meanwhile are ignored. A worker that hangs is killed and then treated the same way.
//
// Devices of other hosts (Options.Remote, Options.Lobby) are workers like all others. A host that is gone counts as
// workers that died, and they come back when the host joins again.
//
// Reload starts a second core beside the first, switches to it in one step and drains the first. No request is lost,
// and for a while both plans' workers are in memory. Drain refuses new requests, waits for the accepted ones, and
// answers the rest with the reason draining.
//
// # Rooms
//
// turn is the core. It knows the packages above it only by the interfaces Answerer and Backend, and kinds.go has the
// only list of them:
//
//	turn      jobs, the ledger, batches, rounds, what the policy decides
//	workers   backend: worker processes behind the plan's devices
//	cascade   answers of gear plans
//	tasks     answers of applications and workflows; programs: workflows as code
//	text      requests for text, instances of language models, agents
//
// Below them are loop (whose turn it is), oip (the protocol of tensors), completions and durable (the front end for
// text and its stores), calls (programs over HTTP), httplimit (the entrance of all servers), steps (computed between
// models), drift (whether another plan is due), live (the page of the server) and series (prefix and labels of metrics; the metrics are in turn/metrics.go and in the rooms). load sends requests to a server.
//
// # Files
//
// Order of reading: executor.go (Executor: requests in, answers out), compile.go (what is made of a plan before
// anything starts) and kinds.go (what answers and executes); serve.go (plan serve: listeners, TLS, signals);
// switch.go and planfile.go (from one plan to another); history.go and report.go (counts of all plans of the process,
// and the report), snapshot.go (the counters for the page); gearrates.go (rates for another gear plan); api.go (options).
//
// To follow a request through the code, read oip, Executor.Infer (executor.go), turn/round.go, turn/requests.go,
// loop, turn/actions.go (what the policy decides), workers/device.go (sends the command to the worker) and
// workers/workers.go (receives its result).
package executor
