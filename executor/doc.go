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
// # What executes
//
// The core knows devices by their backend (turn/backend.go): what takes batches, loads
// and places for a device and answers with events. Worker processes are one. A
// round never waits for a backend, which leaves its news in the inbox.
//
// # What devices hold
//
// Where the plan gives a device memory to account for, its networks come and go:
// the policy's loads and unloads are orders, which the worker carries out one after
// the other beside its batches (workers/home.go). A network that goes is first run to its
// end; one that comes has slots cut for it out of the worker's segment (workers/arena.go),
// fewer where there is little room. An order that cannot be done is answered with
// a Return: memory or segment that is full, a load that failed. A worker whose load
// does not end is killed. A worker that is started again holds what the plan says
// for the start. Models come out of the host's memory (worker.Cache), which all
// workers of this machine fill before the first request; hosts that join have one
// of their own.
//
// # Files
//
// A request goes through executor.go (Infer), turn/round.go (inbox and rounds),
// turn/requests.go (jobs and requests), the loop, turn/actions.go (what the policy decides)
// and workers/device.go, which sends the worker its command. turn/batch.go and turn/job.go are the
// records behind them, turn/core.go what a plan in execution holds. turn/answer.go is how
// requests become answers, cascade/gears.go that of gear plans with cascade/gearmetrics.go and
// gearrates.go. tasks/flow.go is that of plans whose requests have
// several tasks: a policy.Control says which, and tasks/store.go has the tasks and what
// they make until nobody reads it any more. tasks/flowsteps.go has what clients see of
// applications and what is done between their models (package steps),
// tasks/flowmetrics.go the series of modules. tasks/flowsegments.go has what clients see of
// workflows, tasks/flowconditions.go the values that lead their requests, programs/programs.go workflows
// as code over HTTP (executor/calls) and tasks/tensorjson.go their tensors.
//
// Plans of queues ask for text: queues.go has the requests between the front end
// (package completions) and the core, queuetext.go the text of one, queueanswer.go how it
// ends, queueserve.go starts it all, queuemetrics.go and queuepage.go show it,
// queuelearn.go holds it against what was planned. agents.go is the backend of instances,
// agent.go one of them, agentstream.go its runs, agentwatch.go what it knows of its server.
//
// generators.go is the backend of the devices that run a language model for modules of
// applications, generator.go one of them; serverwatch.go looks after the servers of both.
//
// What an agent does at its servers is behind the interface hand (agenthand.go,
// agentwrite.go): in this process, or in that of plan agent. There agentprocess.go takes
// orders and agentrun.go has requests answered; agentaway.go is the hand that sends the
// orders, and agentwire.go what is sent. The store carries both. Of the processes that
// share it one plans (queueplan.go).
//
// workers/workers.go is the backend of worker processes and what becomes of their runs,
// workers/device.go the queue in front of a worker and the copies into its memory, with the
// help of workers/copiers.go; workers/home.go is what a device holds; workers/tier.go has the ways by which
// tensors get to the next stage, workers/memory.go what stays in a GPU's memory between stages;
// compile.go what is made of a plan before anything starts, workers/supervise.go a worker's life; workers/place.go maps the plan's devices to this machine.
//
// turn/model.go, turn/class.go and turn/buckets.go are what is served, turn/options.go and turn/policies.go how;
// switch.go changes plans; package drift says when another plan is due; serve.go puts
// servers, signals and metrics around it; turn/metrics.go, turn/stats.go and
// report.go tell what happened, turn/recorder.go and turn/servicefile.go how long it took.
package executor
