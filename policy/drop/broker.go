package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// broker is the Request Broker (PARD §4): it assigns tasks to workers and forms their batches.
type broker struct {
	variant       *Variant
	tasks         *flow.TaskTable
	dropTest      dropTest
	workers       *workerFleet
	planner       *planner
	hopelessWatch hopelessWatch
	retry         retryEstimate
	busyWorkers   int               // workers that run a batch
	toResend      []flow.QueueEntry // tasks of a lost worker, or of a batch without a result
	revealedTasks time.Duration     // for Variant.ArrivalOrder: number of tasks revealed so far
}

// enqueueTask handles a task that was revealed: it counts its arrival, and assigns it to a worker of its module.
func (b *broker) enqueueTask(now time.Duration, ev *policy.Event, out *policy.Actions) {
	b.planner.arrivals[ev.Service]++
	e := b.tasks.AddTask(now, ev)
	b.planner.pathShares.recordFollower(ev)
	b.hopelessWatch.watchTask(e, &b.tasks.Requests[e.Req], ev.Service, out)
	if b.variant.ArrivalOrder {
		b.revealedTasks++
		e.Key = b.revealedTasks
	}
	b.assignTask(now, ev.Service, e, out)
}

// finishBatch handles the end of a worker's batch: it learns from its time and its outcomes, and starts the next
// batch on the device.
func (b *broker) finishBatch(now time.Duration, w *worker, out *policy.Actions) {
	b.markIdle(w)
	b.workers.recordBatchTime(now, w)
	b.hopelessWatch.setStates(w.runningBatch, taskOver)
	b.planner.pathShares.learnFromBatch(b.tasks, w.runningBatch)
	b.serveDevice(now, w, out)
}

// markIdle records that a worker's batch no longer runs.
func (b *broker) markIdle(w *worker) {
	w.isRunning = false
	b.workers.devices[w.device].runningWorker = -1
	b.busyWorkers--
}

// serveDevice starts a batch on a free device. If modules take turns on the device, the worker (a module on a
// device) whose oldest task has the earliest deadline runs; otherwise the given worker does. If nothing can start,
// the device stays idle.
func (b *broker) serveDevice(now time.Duration, w *worker, out *policy.Actions) {
	if !b.workers.takesTurns(w) {
		b.startBatch(now, w, out)
		return
	}
	workers := b.workers.workersOn(w.device)
	for b.workers.runningWorker(w.device) == nil {
		mostUrgent, minDeadline := (*worker)(nil), farFuture
		for i := range workers {
			if deadline := b.oldestDeadline(&workers[i]); deadline < minDeadline {
				mostUrgent, minDeadline = &workers[i], deadline
			}
		}
		if mostUrgent == nil {
			b.workers.updateStarts(w)
			return
		}
		b.startBatch(now, mostUrgent, out) // if all its tasks were dropped, the device is still free
	}
}

// oldestDeadline returns the deadline of the oldest task that waits for a worker, in the forming batch, the queue,
// or set aside, in this order. Tasks of dropped requests are removed first. If none waits, it returns farFuture.
func (b *broker) oldestDeadline(w *worker) time.Duration {
	w.dropUnwanted(b.tasks)
	for w.queue.len() > 0 && !b.tasks.IsWanted(w.queue.min()) {
		w.queue.popMin()
	}
	var e *flow.QueueEntry
	switch {
	case len(w.formingBatch) > 0:
		e = &w.formingBatch[0]
	case w.queue.len() > 0:
		e = w.queue.min()
	case w.setAside.len() > 0:
		e = w.setAside.max()
	default:
		return farFuture
	}
	return b.tasks.Requests[e.Req].Deadline
}

// dropRequest drops a request because of a task, which is -1 at the entry. The action says when to send it again.
func (b *broker) dropRequest(now time.Duration, req, task int32, reason policy.DropReason, out *policy.Actions) {
	retryAt := now + b.retry.retryAfter(now, &b.tasks.Requests[req])
	b.tasks.CloseRequest(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Task: task, Reason: reason, At: retryAt})
}

// assignTask assigns a newly revealed task to a worker (a module on a device) of its module. If there is none, the
// request is dropped.
func (b *broker) assignTask(now time.Duration, m int32, e flow.QueueEntry, out *policy.Actions) {
	w := b.workers.nextWorker(m)
	if w == nil {
		b.dropRequest(now, e.Req, e.Task, policy.ReasonWorkerLost, out)
		return
	}

	// An idle device starts at once. Otherwise the task enters the forming batch if it is next, or the queue.
	switch {
	case b.workers.runningWorker(w.device) == nil:
		w.batchEndsAt = now
		if b.tryEnterBatch(now, now, w, &e, out) {
			b.startBatch(now, w, out)
		}
		return
	case w.waitingTasks() == 0 && w.hasRoom() && !b.workers.takesTurns(w):
		if !b.tryEnterBatch(now, max(w.batchEndsAt, now), w, &e, out) {
			return
		}
	default:
		w.queue.push(e)
		w.proof.addTask(e.Key)
	}
	b.workers.updateStarts(w)
}

// tryEnterBatch adds a task to a worker's forming batch, which starts at `start`, if it passes the drop test or fits a
// smaller batch. Otherwise it drops the request and returns false.
func (b *broker) tryEnterBatch(now, start time.Duration, w *worker, e *flow.QueueEntry, out *policy.Actions) bool {
	t := &b.tasks.Tasks[e.Task]
	if !b.dropTest.passes(now, start, w, e, t) && !b.dropTest.fitsSmallerBatch(start, w, e) {
		b.dropRequest(now, e.Req, e.Task, policy.ReasonDeadline, out)
		return false
	}
	b.enterBatch(now, start, w, e, t)
	return true
}

// enterBatch adds a task to the forming batch without a test.
func (b *broker) enterBatch(now, start time.Duration, w *worker, e *flow.QueueEntry, t *flow.Task) {
	w.formingBatch = append(w.formingBatch, *e)
	queueTime, batchWait := now-t.RevealedAt, start-now
	b.planner.recordEntry(w.module, now, queueTime, batchWait)
}

// startBatch starts the forming batch of a worker whose device is free, and forms the next one while it runs. If
// every task that waits fails the test of its deadline, the worker becomes idle; one that is no longer wanted
// unloads its network.
func (b *broker) startBatch(now time.Duration, w *worker, out *policy.Actions) {
	// Form a batch until one is not empty.
	for {
		w.dropUnwanted(b.tasks)
		if len(w.formingBatch) > 0 {
			break
		}
		w.batchEndsAt = now
		if w.waitingTasks() == 0 {
			b.workers.updateStarts(w)
			if !w.isWanted && w.networkLoaded {
				b.workers.unloadWorker(w, out)
			}
			return
		}
		b.formBatch(now, now, w, out)
	}

	// Start it.
	n := len(w.formingBatch)
	w.runningBatch, w.formingBatch = w.formingBatch, w.runningBatch[:0]
	w.formingLimit = w.plannedBatch
	w.isRunning, w.startedAt, w.batchEndsAt = true, now, now+w.batchTimes[n-1]
	b.workers.devices[w.device].runningWorker = w.id
	b.busyWorkers++
	b.hopelessWatch.setStates(w.runningBatch, taskRunning)
	first := int32(len(out.Tasks))
	for i := range w.runningBatch {
		out.Tasks = append(out.Tasks, w.runningBatch[i].Task)
	}
	if b.variant.BatchStarted != nil {
		for i := range w.runningBatch {
			b.variant.BatchStarted(w.module, w.batchEndsAt-b.tasks.Tasks[w.runningBatch[i].Task].RevealedAt)
		}
	}

	// Order the dispatch.
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: w.pipeline, Model: -1, Batch: w.device, Size: int32(n), Device: w.device,
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: w.stage, Device: w.device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: w.batchEndsAt})

	// Form the next batch now. If modules take turns, it forms when its turn comes.
	if w.waitingTasks() > 0 && !b.workers.takesTurns(w) {
		b.formBatch(now, w.batchEndsAt, w, out)
	}
	b.workers.updateStarts(w)
}

// formBatch fills the forming batch (the next one) of a worker, which will start at `start`, from its queue: by
// lowest or highest budget first, the time left to the deadline. Each task is tested when it enters and its request
// dropped if it would be late. The proof is the result of an earlier count that the queue can be served in time.
func (b *broker) formBatch(now, start time.Duration, w *worker, out *policy.Actions) {
	switch {
	case b.variant.FormBatch != nil:
		b.variant.FormBatch(FormingBatch{Now: now, Start: start, broker: b, worker: w, out: out})
		return
	case b.variant.IsFeas && !b.variant.NeverSetAside && !b.dropTest.allFeasible(w, start):
		b.formPartialQueue(now, start, w, out)
		return
	}

	// Take tasks from the end of the queue that the order demands.
	highestFirst := b.dropTest.highestFirst(w, start)
	for w.queue.len() > 0 && w.hasRoom() {
		var e flow.QueueEntry
		if highestFirst {
			e = w.queue.popMax()
		} else {
			e = w.queue.popMin()
		}
		if b.tasks.IsWanted(&e) {
			b.tryEnterBatch(now, start, w, &e, out)
		}
	}

	// Keep the feasibility proof up to date.
	switch {
	case highestFirst:
		w.proof.invalidate()
		b.dropHopeless(now, start, w, &w.queue, out)
	case !w.hasRoom():
		w.proof.validUntil += w.batchInterval
	default:
		w.proof.invalidate()
	}
}

// dropHopeless drops the requests of those tasks of a queue that could not be in time even alone in every batch
// that remains. With the highest budget (time left) first, or set aside, they would otherwise wait until the order
// changes. It takes the lowest key first, and stops at the first task that is not hopeless.
func (b *broker) dropHopeless(now, start time.Duration, w *worker, queue *doubleEndedQueue, out *policy.Actions) {
	for queue.len() > 0 {
		e := queue.min()
		if b.tasks.IsWanted(e) {
			if !b.dropTest.hopeless(start, w, e) {
				return
			}
			b.dropRequest(now, e.Req, e.Task, policy.ReasonDeadline, out)
		}
		queue.popMin()
	}
}
