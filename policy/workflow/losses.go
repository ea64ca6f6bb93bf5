package workflow

import (
	"time"

	"inferplan/policy"
)

// handleBatchReturned requeues the tasks of a batch that returned without a result, and places them again.
func (p *Policy) handleBatchReturned(now int64, ev *policy.Event, out *policy.Actions) {
	place := p.tables.placeOf[ev.Device]
	if policy.ReturnReason(ev.Value) == policy.ReturnNotLoaded {
		d := &p.devices[place]
		if n := p.tables.services[d.service].network; d.loaded[n] {
			d.loaded[n] = false
			p.copyCount[n]--
			d.usedBytes -= p.tables.bytes[n]
		}
	}
	p.toReplan = p.toReplan[:0]
	if id := p.languageModels().taskOfSlot(ev.Batch); id >= 0 {
		p.languageModels().endSequence(place, id, now)
		p.requeueTask(id)
	} else {
		p.requeueBatch(place)
	}
	p.replanRequests(now, out)
}

// requeueTask makes a task that was in a batch wait again, without a place.
func (p *Policy) requeueTask(id int32) {
	k := &p.tasks[id]
	p.admission.settleOwedTime(k, -1)
	k.state, k.inputsRequestedAt, k.inputsAt, k.stateInTransit = taskUnplaced, -1, -1, false
	if k.req < 0 {
		p.releaseTask(id)
	} else {
		p.toReplan = append(p.toReplan, k.req)
	}
}

// requeueBatch makes all tasks of a device's batch wait again.
func (p *Policy) requeueBatch(place int32) {
	d := &p.devices[place]
	for _, id := range d.batch {
		p.requeueTask(id)
	}
	if d.busy {
		p.busyDevices--
	}
	d.batch, d.busy, d.dirty = d.batch[:0], false, true
	p.touchDevice(place)
}

// handleWorkerLost requeues all tasks of a lost device, and places them again.
func (p *Policy) handleWorkerLost(now int64, place int32, out *policy.Actions) {
	d := &p.devices[place]
	p.toReplan = p.toReplan[:0]

	// Abort what runs.
	switch q := p.languageModels(); {
	case d.busy && q.isLanguageModel(d.service):
		for len(d.batch) > 0 {
			id := d.batch[0]
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: p.tasks[id].sequence.batchSlot, Device: p.tables.deviceAt[place]})
			q.endSequence(place, id, now)
			p.requeueTask(id)
		}
	case d.busy:
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: place, Device: p.tables.deviceAt[place]})
		p.requeueBatch(place)
	}

	// Take the queue away.
	for _, id := range d.queue {
		k := &p.tasks[id]
		k.state, k.inputsRequestedAt, k.inputsAt = taskUnplaced, -1, -1
		if k.req >= 0 {
			p.toReplan = append(p.toReplan, k.req)
		}
	}
	d.queue, d.down = d.queue[:0], true
	p.resetDevice(place)

	// Inputs that were at the device, or on their way to it, are no longer there.
	for _, req := range p.toReplan {
		for _, id := range p.requests[req].revealedTasks {
			if k := &p.tasks[id]; k.inputsRequestedAt == place || k.inputsAt == place {
				k.inputsRequestedAt, k.inputsAt = -1, -1
			}
		}
	}
	if p.routing != nil {
		p.routing.DeviceLost(place)
	}
	p.replanRequests(now, out)
}

// handleWorkerBack places tasks that found no device, now that a device has come back.
func (p *Policy) handleWorkerBack(now int64, place int32, out *policy.Actions) {
	p.devices[place].down = false
	p.resetDevice(place)
	p.touchDevice(place)
	p.toReplan = p.toReplan[:0]
	for r := range p.requests {
		if p.hasUnplacedTask(&p.requests[r]) {
			p.toReplan = append(p.toReplan, int32(r))
		}
	}
	p.replanRequests(now, out)
}

// strandedTag is the tag of the timer for requests that no device can serve.
const strandedTag = 1

// hasUnplacedTask returns true if a request is open and one of its revealed tasks has no place.
func (p *Policy) hasUnplacedTask(q *request) bool {
	for _, id := range q.revealedTasks {
		if q.isOpen && p.tasks[id].state == taskUnplaced {
			return true
		}
	}
	return false
}

// awaitDevice keeps requests that no device can serve waiting until their deadlines, and then drops them.
func (p *Policy) awaitDevice(now int64, out *policy.Actions) {
	nextDeadline := farFuture
	for r := range p.requests {
		q := &p.requests[r]
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

// dropRequest ends a request without an answer.
func (p *Policy) dropRequest(now int64, req int32, reason policy.DropReason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: reason})
	if q := &p.requests[req]; q.admitted && reason == policy.ReasonDeadline {
		p.admission.adjustShare(now, q, true)
	}
	p.closeRequest(now, req)
}

// replanRequests places the unplaced tasks of the requests in toReplan.
func (p *Policy) replanRequests(now int64, out *policy.Actions) {
	for _, req := range p.toReplan {
		q := &p.requests[req]
		if !q.isOpen || q.unrevealedTasks > 0 {
			continue
		}
		if !p.placer.placeUnplaced(now, q, out) {
			p.awaitDevice(now, out)
		}
	}
}
