package workflow

import (
	"time"

	"inferplan/policy"
)

// handleBatchReturned puts the tasks of a batch that returned without a result back into the unplaced ones, and
// places them again. If it returned because the network was not there, the device is no longer taken to have it.
func (p *Policy) handleBatchReturned(now int64, ev *policy.Event, out *policy.Actions) {
	place := p.tables.placeOf[ev.Device]
	if policy.ReturnReason(ev.Value) == policy.ReturnNotLoaded {
		d := &p.cluster.devices[place]
		if n := p.tables.services[d.service].network; d.loaded[n] {
			d.loaded[n] = false
			p.cluster.copyCount[n]--
			d.usedBytes -= p.tables.bytes[n]
		}
	}
	p.toReplan = p.toReplan[:0]
	if id := p.sequences.taskOfSlot(ev.Batch); id >= 0 {
		p.sequences.endSequence(place, id, now)
		p.requeueTask(id)
	} else {
		p.requeueBatch(place)
	}
	p.replanRequests(now, out)
}

// requeueTask makes a task that was in a batch without a result unplaced again, and notes its request to be placed
// anew. If the request is gone, it releases the task.
func (p *Policy) requeueTask(id int32) {
	k := &p.book.tasks[id]
	p.admission.settleOwedTime(k, -1)
	k.state, k.inputsRequestedAt, k.inputsAt, k.stateInTransit = taskUnplaced, -1, -1, false
	if k.req < 0 {
		p.book.releaseTask(id)
	} else {
		p.toReplan = append(p.toReplan, k.req)
	}
}

// requeueBatch makes all tasks of a device's batch wait again.
func (p *Policy) requeueBatch(place int32) {
	d := &p.cluster.devices[place]
	for _, id := range d.batch {
		p.requeueTask(id)
	}
	if d.busy {
		p.cluster.busyDevices--
	}
	d.batch, d.busy, d.dirty = d.batch[:0], false, true
	p.cluster.touchDevice(place)
}

// handleWorkerLost is called when a device is lost. It aborts what runs there, takes all tasks out of its queue,
// forgets its networks and session states, and places the tasks again, on other devices.
func (p *Policy) handleWorkerLost(now int64, place int32, out *policy.Actions) {
	d := &p.cluster.devices[place]
	p.toReplan = p.toReplan[:0]

	// Abort what runs.
	switch {
	case d.busy && p.tables.isLanguageModel(d.service):
		for len(d.batch) > 0 {
			id := d.batch[0]
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: p.book.tasks[id].sequence.batchSlot, Device: p.tables.deviceAt[place]})
			p.sequences.endSequence(place, id, now)
			p.requeueTask(id)
		}
	case d.busy:
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: place, Device: p.tables.deviceAt[place]})
		p.requeueBatch(place)
	}

	// Take the queue away.
	for _, id := range d.queue {
		k := &p.book.tasks[id]
		k.state, k.inputsRequestedAt, k.inputsAt = taskUnplaced, -1, -1
		if k.req >= 0 {
			p.toReplan = append(p.toReplan, k.req)
		}
	}
	d.queue, d.down = d.queue[:0], true
	p.states.clearDevice(place)
	p.cluster.resetDevice(place)

	// Inputs that were at the device, or on their way to it, are no longer there.
	for _, req := range p.toReplan {
		for _, id := range p.book.requests[req].revealedTasks {
			if k := &p.book.tasks[id]; k.inputsRequestedAt == place || k.inputsAt == place {
				k.inputsRequestedAt, k.inputsAt = -1, -1
			}
		}
	}
	if p.cluster.routing != nil {
		p.cluster.routing.DeviceLost(place)
	}
	p.replanRequests(now, out)
}

// handleWorkerBack is called when a lost device comes back, with its resident networks and no session states.
// Requests with tasks that found no device are placed again.
func (p *Policy) handleWorkerBack(now int64, place int32, out *policy.Actions) {
	p.cluster.devices[place].down = false
	p.states.clearDevice(place)
	p.cluster.resetDevice(place)
	p.cluster.touchDevice(place)
	p.toReplan = p.toReplan[:0]
	for r := range p.book.requests {
		if p.hasUnplacedTask(&p.book.requests[r]) {
			p.toReplan = append(p.toReplan, int32(r))
		}
	}
	p.replanRequests(now, out)
}

// strandedTag is the tag of the timer for requests that no device can serve.
const strandedTag = 1

// hasUnplacedTask returns true if a request is open and one of its revealed tasks has no place, because no device
// could take it.
func (p *Policy) hasUnplacedTask(q *request) bool {
	for _, id := range q.revealedTasks {
		if q.isOpen && p.book.tasks[id].state == taskUnplaced {
			return true
		}
	}
	return false
}

// awaitDevice is called when requests have tasks that no device can run. It keeps them waiting, in case a device
// comes back, until their deadlines, and then drops them. The timer wakes it at the next deadline.
func (p *Policy) awaitDevice(now int64, out *policy.Actions) {
	nextDeadline := farFuture
	for r := range p.book.requests {
		q := &p.book.requests[r]
		if q.unrevealedTasks > 0 || !p.hasUnplacedTask(q) {
			continue
		}
		if q.deadline <= now {
			p.dropRequest(now, int32(r), policy.ReasonWorkerLost, out)
			continue
		}
		nextDeadline = min(nextDeadline, q.deadline)
	}
	if nextDeadline < farFuture {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: strandedTag, At: time.Duration(nextDeadline)})
	}
}

// dropRequest ends a request without an answer. One that was admitted and misses its deadline counts as late for
// the admission's share.
func (p *Policy) dropRequest(now int64, req int32, reason policy.DropReason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: reason})
	if q := &p.book.requests[req]; q.admitted && reason == policy.ReasonDeadline {
		p.admission.adjustShare(now, q, true)
	}
	p.closeRequest(now, req)
}

// replanRequests places the unplaced tasks of the requests in toReplan. Requests whose next segment is still being
// revealed are placed when that is complete.
func (p *Policy) replanRequests(now int64, out *policy.Actions) {
	for _, req := range p.toReplan {
		q := &p.book.requests[req]
		if !q.isOpen || q.unrevealedTasks > 0 {
			continue
		}
		if !p.placer.placeUnplaced(now, q, out) {
			p.awaitDevice(now, out)
		}
	}
}
