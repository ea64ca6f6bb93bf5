package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// broker is the Request Broker (PARD §4): it assigns tasks to workers and forms their batches.
type broker struct {
	*Variant
	book  *flow.Book
	judge judge
	fleet *fleet
	plan  *planner
	watch watch
	again again
	busy  int           // workers that run a batch
	left  []flow.Entry  // tasks of a lost worker, or of a batch without a result
	came  time.Duration // for Variant.ArrivalOrder: number of tasks revealed so far
}

// enqueueTask adds a revealed task and assigns it to a worker.
func (b *broker) reveal(now time.Duration, ev *policy.Event, out *policy.Actions) {
	b.plan.came[ev.Service]++
	e := b.book.Reveal(now, ev)
	b.plan.ways.follows(ev)
	b.watch.reveal(e, &b.book.Requests[e.Req], ev.Service, out)
	if b.InOrder {
		b.came++
		e.Key = b.came
	}
	b.send(now, ev.Service, e, out)
}

// finishBatch handles the end of a worker's batch, and starts the next one on the device.
func (b *broker) finished(now time.Duration, w *worker, out *policy.Actions) {
	b.idle(w)
	b.fleet.ended(now, w)
	b.watch.note(w.current, over)
	b.plan.ways.ended(b.book, w.current)
	b.next(now, w, out)
}

// markIdle records that a worker's batch no longer runs.
func (b *broker) idle(w *worker) {
	w.running = false
	b.fleet.devices[w.device].running = -1
	b.busy--
}

// serveDevice starts a batch on a free device. If modules take turns on the device, the worker whose oldest task has the
// earliest deadline runs; otherwise the given worker does.
func (b *broker) next(now time.Duration, w *worker, out *policy.Actions) {
	if !b.fleet.takesTurns(w) {
		b.serve(now, w, out)
		return
	}
	list := b.fleet.on(w.device)
	for b.fleet.runs(w.device) == nil {
		first, least := (*worker)(nil), never
		for i := range list {
			if at := b.urgent(&list[i]); at < least {
				first, least = &list[i], at
			}
		}
		if first == nil {
			b.fleet.moved(w)
			return
		}
		b.serve(now, first, out) // if all its tasks were dropped, the device is still free
	}
}

// oldestDeadline returns the deadline of the oldest task that waits for a worker. If none waits, it returns farFuture.
func (b *broker) urgent(w *worker) time.Duration {
	w.forget(b.book)
	for w.queue.len() > 0 && !b.book.Wanted(w.queue.min()) {
		w.queue.popMin()
	}
	var e *flow.Entry
	switch {
	case len(w.forming) > 0:
		e = &w.forming[0]
	case w.queue.len() > 0:
		e = w.queue.min()
	case w.aside.len() > 0:
		e = w.aside.max()
	default:
		return never
	}
	return b.book.Requests[e.Req].Deadline
}

// dropRequest drops a request because of a task, which is -1 at the entry. The action says when to send it again.
func (b *broker) drop(now time.Duration, req, task int32, why policy.Reason, out *policy.Actions) {
	at := now + b.again.in(now, &b.book.Requests[req])
	b.book.Close(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Task: task, Reason: why, At: at})
}

// assignTask assigns a task to a worker of its module. If there is none, the request is dropped.
func (b *broker) send(now time.Duration, m int32, e flow.Entry, out *policy.Actions) {
	w := b.fleet.takes(m)
	if w == nil {
		b.drop(now, e.Req, e.Task, policy.ReasonWorkerLost, out)
		return
	}

	// An idle device starts at once. Otherwise the task enters the forming batch if it is next, or the queue.
	switch {
	case b.fleet.runs(w.device) == nil:
		w.end = now
		if b.enter(now, now, w, &e, out) {
			b.serve(now, w, out)
		}
		return
	case w.waiting() == 0 && w.room() && !b.fleet.takesTurns(w):
		if !b.enter(now, max(w.end, now), w, &e, out) {
			return
		}
	default:
		w.queue.push(e)
		w.proof.add(e.Key)
	}
	b.fleet.moved(w)
}

// tryEnterBatch adds a task to a worker's forming batch, which starts at `start`, if it passes the drop test or fits a
// smaller batch. Otherwise it drops the request and returns false.
func (b *broker) enter(now, start time.Duration, w *worker, e *flow.Entry, out *policy.Actions) bool {
	t := &b.book.Tasks[e.Task]
	if !b.judge.keep(now, start, w, e, t) && !b.judge.squeeze(start, w, e) {
		b.drop(now, e.Req, e.Task, policy.ReasonDeadline, out)
		return false
	}
	b.admit(now, start, w, e, t)
	return true
}

// enterBatch adds a task to the forming batch without a test.
func (b *broker) admit(now, start time.Duration, w *worker, e *flow.Entry, t *flow.Task) {
	w.forming = append(w.forming, *e)
	queued, waits := now-t.Revealed, start-now
	b.plan.admitted(w.module, now, queued, waits)
}

// startBatch starts the forming batch of a worker whose device is free, and forms the next one.
func (b *broker) serve(now time.Duration, w *worker, out *policy.Actions) {
	// Form a batch until one is not empty.
	for {
		w.forget(b.book)
		if len(w.forming) > 0 {
			break
		}
		w.end = now
		if w.waiting() == 0 {
			b.fleet.moved(w)
			if !w.wanted && w.up {
				b.fleet.retire(w, out)
			}
			return
		}
		b.collect(now, now, w, out)
	}

	// Start it.
	n := len(w.forming)
	w.current, w.forming = w.forming, w.current[:0]
	w.limit = w.batch
	w.running, w.began, w.end = true, now, now+w.infer[n-1]
	b.fleet.devices[w.device].running = w.id
	b.busy++
	b.watch.note(w.current, running)
	first := int32(len(out.Tasks))
	for i := range w.current {
		out.Tasks = append(out.Tasks, w.current[i].Task)
	}
	if b.Began != nil {
		for i := range w.current {
			b.Began(w.module, w.end-b.book.Tasks[w.current[i].Task].Revealed)
		}
	}

	// Order the dispatch.
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: w.pipeline, Model: -1, Batch: w.device, Size: int32(n), Device: w.device,
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: w.stage, Device: w.device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: w.end})

	// Form the next batch now. If modules take turns, it forms when its turn comes.
	if w.waiting() > 0 && !b.fleet.takesTurns(w) {
		b.collect(now, w.end, w, out)
	}
	b.fleet.moved(w)
}

// formBatch fills the forming batch of a worker, which starts at `start`, from its queue.
func (b *broker) collect(now, start time.Duration, w *worker, out *policy.Actions) {
	switch {
	case b.Form != nil:
		b.Form(Batch{Now: now, Start: start, b: b, w: w, out: out})
		return
	case b.Feas && !b.NoAside && !b.judge.whole(w, start):
		b.spare(now, start, w, out)
		return
	}

	// Take tasks from the end of the queue that the order demands.
	high := b.judge.high(w, start)
	for w.queue.len() > 0 && w.room() {
		var e flow.Entry
		if high {
			e = w.queue.popMax()
		} else {
			e = w.queue.popMin()
		}
		if b.book.Wanted(&e) {
			b.enter(now, start, w, &e, out)
		}
	}

	// Keep the feasibility proof up to date.
	switch {
	case high:
		w.proof.void()
		b.purge(now, start, w, &w.queue, out)
	case !w.room():
		w.proof.from += w.every
	default:
		w.proof.void()
	}
}

// dropHopeless drops the requests of those tasks of a queue that could not be in time even alone in every batch that
// remains. With the highest budget first, or set aside, they would otherwise wait until the order changes.
func (b *broker) purge(now, start time.Duration, w *worker, queue *depq, out *policy.Actions) {
	for queue.len() > 0 {
		e := queue.min()
		if b.book.Wanted(e) {
			if !b.judge.hopeless(start, w, e) {
				return
			}
			b.drop(now, e.Req, e.Task, policy.ReasonDeadline, out)
		}
		queue.popMin()
	}
}
