package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// broker is the Request Broker (PARD §4): it assigns tasks to workers and forms their batches. A worker is a module
// on a device.
type broker struct {
	variant        *Variant
	tasks          *flow.TaskTable
	dropTest       dropTest
	workers        *workerFleet
	planner        *planner
	hopelessWatch  hopelessWatch
	retry          retryEstimate
	runningBatches int               // workers that run a batch now
	toResend       []flow.QueueEntry // tasks of a lost worker, or of a batch without a result
	revealedTasks  time.Duration     // for Variant.ArrivalOrder: number of tasks revealed so far
}

// enqueueTask handles the event TaskRevealed (a task's inputs have ended): it counts the task's arrival at the module,
// records which branch its request took, watches for the time when it becomes hopeless (late even if every module ran it
// alone), and assigns it to a worker of its module.
func (b *broker) enqueueTask(now time.Duration, ev *policy.Event, out *policy.Actions) {
	b.planner.arrivals[ev.Service]++
	entry := b.tasks.AddTask(now, ev)
	b.planner.pathShares.recordFollower(ev)
	b.hopelessWatch.watchTask(entry, &b.tasks.Requests[entry.Req], ev.Service, out)

	// Queues are ordered by the key, which is the deadline. A variant may serve in the order of reveal instead.
	if b.variant.ArrivalOrder {
		b.revealedTasks++
		entry.Key = b.revealedTasks
	}
	b.assignTask(now, ev.Service, entry, out)
}

// finishBatch handles the end of a worker's batch: it learns from its time and from the outcomes of its tasks, and
// starts the next batch on the device.
func (b *broker) finishBatch(now time.Duration, idleWorker *worker, out *policy.Actions) {
	b.markIdle(idleWorker)
	b.workers.recordBatchTime(now, idleWorker)
	b.hopelessWatch.setStates(idleWorker.runningBatch, taskOver)
	b.planner.pathShares.learnFromBatch(b.tasks, idleWorker.runningBatch)
	b.serveDevice(now, idleWorker, out)
}

// markIdle records that a worker's batch no longer runs, so that its device is free.
func (b *broker) markIdle(worker *worker) {
	worker.isRunning = false
	b.workers.devices[worker.device].runningWorker = -1
	b.runningBatches--
}

// serveDevice starts a batch on a free device. If modules take turns on the device, the worker (a module on a device)
// whose oldest task has the earliest deadline starts; otherwise the given worker, the only one there. If nothing can
// start, the device stays idle. If all tasks that wait were dropped, the next worker tries.
func (b *broker) serveDevice(now time.Duration, idleWorker *worker, out *policy.Actions) {
	if !b.workers.takesTurns(idleWorker) {
		b.startBatch(now, idleWorker, out)
		return
	}

	// Modules take turns: start the worker whose oldest task is the most urgent.
	workers := b.workers.workersOn(idleWorker.device)
	for b.workers.runningWorker(idleWorker.device) == nil {
		mostUrgent, minDeadline := (*worker)(nil), farFuture
		for i := range workers {
			if deadline := b.oldestDeadline(&workers[i]); deadline < minDeadline {
				mostUrgent, minDeadline = &workers[i], deadline
			}
		}
		if mostUrgent == nil {
			// No task waits on the device.
			b.workers.updateStarts(idleWorker)
			return
		}
		b.startBatch(now, mostUrgent, out) // if all its tasks were dropped, the device is still free
	}
}

// oldestDeadline returns the deadline by which a worker is compared with others on its device: that of the first task of
// its forming batch. If that is empty, it is the earliest deadline of its queue, and if that is empty, too, the latest of
// the tasks set aside for lack of time. Tasks of closed requests are removed first. If none waits, it returns farFuture,
// which is later than any deadline.
func (b *broker) oldestDeadline(worker *worker) time.Duration {
	// Remove the tasks of closed requests in front.
	worker.dropUnwanted(b.tasks)
	for worker.queue.len() > 0 && !b.tasks.IsWanted(worker.queue.min()) {
		worker.queue.popMin()
	}

	// Take the first that waits.
	var entry *flow.QueueEntry
	switch {
	case len(worker.formingBatch) > 0:
		entry = &worker.formingBatch[0]
	case worker.queue.len() > 0:
		entry = worker.queue.min()
	case worker.setAside.len() > 0:
		entry = worker.setAside.max() // the one with the latest deadline comes back first (splitQueue)
	default:
		return farFuture
	}
	return b.tasks.Requests[entry.Req].Deadline
}

// dropRequest closes a request and appends the action that drops it for a reason. task is the task that could not be
// served, or -1 if the request is dropped when it arrives or by its client. The action tells the client from when on it
// is worth sending the request again.
func (b *broker) dropRequest(now time.Duration, req, task int32, reason policy.DropReason, out *policy.Actions) {
	retryAt := now + b.retry.retryAfter(now, &b.tasks.Requests[req])
	b.tasks.CloseRequest(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Task: task, Reason: reason, At: retryAt})
}

// assignTask assigns a revealed task of a module to a worker (the module on a device). An idle device starts it at
// once. Otherwise it enters the worker's forming batch (the next one), or its queue. If it would be late, it is dropped
// with its request (tryEnterBatch). If the module has no worker, the request is dropped. The entry is the task with its
// place in the order of a queue.
func (b *broker) assignTask(now time.Duration, module int32, entry flow.QueueEntry, out *policy.Actions) {
	worker := b.workers.nextWorker(module)
	if worker == nil {
		b.dropRequest(now, entry.Req, entry.Task, policy.ReasonWorkerLost, out)
		return
	}

	// An idle device starts at once: the batch that the task enters begins now. (startBatch calls updateStarts itself.) On
	// a busy device the task may enter the forming batch, which starts when the running one ends, if no other task waits
	// before it and the batch takes more. Where modules take turns on the device, the next batch forms only when its turn
	// comes, so the task queues.
	switch {
	case b.workers.runningWorker(worker.device) == nil:
		worker.batchEndsAt = now
		if b.tryEnterBatch(now, now, worker, &entry, out) {
			b.startBatch(now, worker, out)
		}
		return
	case worker.waitingTasks() == 0 && worker.hasRoom() && !b.workers.takesTurns(worker):
		start := max(worker.batchEndsAt, now)
		if isInTime := b.tryEnterBatch(now, start, worker, &entry, out); !isInTime {
			return // it was dropped, and the worker has the same work as before
		}
	default:
		worker.queue.push(entry)
		worker.proof.addTask(entry.Key) // the proof that the queue can be served in time may no longer hold
	}
	b.workers.updateStarts(worker)
}

// tryEnterBatch adds a task to a worker's forming batch (the next one), which starts at `start`, if the task passes the
// drop test (it would be in time also in the modules behind) or fits a smaller batch. Otherwise it drops the task's
// request and returns false.
func (b *broker) tryEnterBatch(now, start time.Duration, worker *worker, entry *flow.QueueEntry, out *policy.Actions) bool {
	task := &b.tasks.Tasks[entry.Task]
	if !b.dropTest.isInTime(now, start, worker, entry, task) && !b.dropTest.tryShrinkBatch(start, worker, entry) {
		b.dropRequest(now, entry.Req, entry.Task, policy.ReasonDeadline, out)
		return false
	}
	b.enterBatch(now, start, worker, entry, task)
	return true
}

// enterBatch adds a task to a worker's forming batch, which starts at `start`, without a test, and records how long
// it has queued and will wait for the start.
func (b *broker) enterBatch(now, start time.Duration, worker *worker, entry *flow.QueueEntry, task *flow.Task) {
	worker.formingBatch = append(worker.formingBatch, *entry)
	queueTime, batchWait := now-task.RevealedAt, start-now
	b.planner.recordEntry(worker.module, now, queueTime, batchWait)
}

// startBatch starts the forming batch of a worker (a module on a device) whose device is free, and forms the next one
// while it runs. If every task that waits fails the test of its deadline, the worker stays idle; one that is no longer
// wanted (scaling) unloads its network. It appends the dispatch, or the unload, to out. A batch's number is that of its
// device, which runs one at a time.
func (b *broker) startBatch(now time.Duration, worker *worker, out *policy.Actions) {
	// Form a batch until one is not empty: its requests may have ended meanwhile, or fail the test.
	for {
		worker.dropUnwanted(b.tasks)
		if len(worker.formingBatch) > 0 {
			break
		}
		worker.batchEndsAt = now
		if worker.waitingTasks() == 0 {
			b.workers.updateStarts(worker)
			if !worker.isWanted && worker.networkLoaded {
				b.workers.unloadWorker(worker, out)
			}
			return
		}
		b.formBatch(now, now, worker, out)
	}

	// Start it: the forming batch becomes the running one, and the list of the one that ended is used for the next.
	size := len(worker.formingBatch)
	worker.runningBatch, worker.formingBatch = worker.formingBatch, worker.runningBatch[:0]
	worker.formingLimit = worker.plannedBatch
	worker.isRunning, worker.startedAt, worker.batchEndsAt = true, now, now+worker.batchTimes[size-1]
	b.workers.devices[worker.device].runningWorker = worker.id
	b.runningBatches++
	b.hopelessWatch.setStates(worker.runningBatch, taskRunning)

	// List its tasks for the dispatch, and tell the variant, if it asks for that, how long each will have been here.
	firstTask := int32(len(out.Tasks))
	for i := range worker.runningBatch {
		out.Tasks = append(out.Tasks, worker.runningBatch[i].Task)
	}
	if b.variant.BatchStarted != nil {
		for i := range worker.runningBatch {
			b.variant.BatchStarted(worker.module, worker.batchEndsAt-b.tasks.Tasks[worker.runningBatch[i].Task].RevealedAt)
		}
	}

	// Order the dispatch.
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: worker.pipeline, Model: -1, Batch: worker.device, Size: int32(size), Device: worker.device,
		TaskFirst: firstTask, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: worker.stage, Device: worker.device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: worker.batchEndsAt})

	// Form the next batch now. If modules take turns, it forms when its turn comes.
	if worker.waitingTasks() > 0 && !b.workers.takesTurns(worker) {
		b.formBatch(now, worker.batchEndsAt, worker, out)
	}
	b.workers.updateStarts(worker) // when each worker of this device could start a further task
}

// formBatch fills the forming batch (the next one) of a worker, which will start at `start`, from its queue. A task's
// budget is the time left to its deadline; the queue is served from the lowest budget on, or from the highest. Each
// task is tested when it enters, and its request is dropped if it would be late. worker.proof keeps the result of the
// last count by which the queue can be served in time, so that it need not be counted again for each batch.
func (b *broker) formBatch(now, start time.Duration, worker *worker, out *policy.Actions) {
	// A variant (a baseline) may fill the batch. The policy feas, ours beside PARD, sets tasks aside, in a queue of their
	// own, if not all can be in time.
	switch {
	case b.variant.FormBatch != nil:
		b.variant.FormBatch(FormingBatch{Now: now, Start: start, broker: b, worker: worker, out: out})
		return
	case b.variant.IsFeas && !b.variant.NeverSetAside && !b.dropTest.canServeAll(worker, start):
		b.formPartialQueue(now, start, worker, out)
		return
	}

	// Take tasks from the end of the queue that the order demands.
	highestFirst := b.dropTest.highestFirst(worker, start)
	for worker.queue.len() > 0 && worker.hasRoom() {
		var entry flow.QueueEntry
		if highestFirst {
			entry = worker.queue.popMax()
		} else {
			entry = worker.queue.popMin()
		}
		if b.tasks.IsWanted(&entry) {
			b.tryEnterBatch(now, start, worker, &entry, out)
		}
	}

	// The proof says up to which start the tasks left in the queue can be served in time. A full batch of the lowest
	// budgets leaves the others as early as they were counted if the next batch starts one batch interval later, so that
	// the proof holds for that start. Otherwise a new count is needed. With the highest budget first, tasks at the low end
	// are not tested when a batch forms: drop those that cannot be in time any more.
	switch {
	case highestFirst:
		worker.proof.invalidate()
		b.dropHopeless(now, start, worker, &worker.queue, out)
	case !worker.hasRoom():
		worker.proof.validUntil += worker.batchInterval
	default:
		worker.proof.invalidate()
	}
}

// dropHopeless drops the requests of those tasks in one of a worker's queues that could not be in time even alone in
// every batch that remains, if the next batch starts at `start`. With the highest budget (time left) first, or set
// aside, they would otherwise wait until the order changes. It takes the lowest key (deadline) first, and stops at
// the first task that is not hopeless.
func (b *broker) dropHopeless(now, start time.Duration, worker *worker, queue *doubleEndedQueue, out *policy.Actions) {
	for queue.len() > 0 {
		entry := queue.min()
		if b.tasks.IsWanted(entry) {
			if !b.dropTest.isHopeless(start, worker, entry) {
				return
			}
			b.dropRequest(now, entry.Req, entry.Task, policy.ReasonDeadline, out)
		}
		queue.popMin()
	}
}
