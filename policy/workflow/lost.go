package workflow

import (
	"time"

	"inferplan/policy"
)

// handleBatchReturned requeues the tasks of a batch that returned without a result, and places them again.
func (p *Policy) returned(now int64, ev *policy.Event, out *policy.Actions) {
	place := p.fleet.places[ev.Device]
	if policy.Return(ev.Value) == policy.ReturnNotLoaded {
		d := &p.devices[place]
		if n := p.fleet.services[d.service].network; d.loaded[n] {
			d.loaded[n] = false
			p.copies[n]--
			d.taken -= p.fleet.bytes[n]
		}
	}
	p.again = p.again[:0]
	if id := p.sequences().of(ev.Batch); id >= 0 {
		p.sequences().leave(place, id, now)
		p.waitAgain(id)
	} else {
		p.takeBack(place)
	}
	p.replan(now, out)
}

// requeueTask makes a task that was in a batch wait again, without a place.
func (p *Policy) waitAgain(id int32) {
	k := &p.tasks[id]
	p.door.move(k, -1)
	k.state, k.asked, k.arrived, k.coming = known, -1, -1, false
	if k.req < 0 {
		p.release(id)
	} else {
		p.again = append(p.again, k.req)
	}
}

// requeueBatch makes all tasks of a device's batch wait again.
func (p *Policy) takeBack(place int32) {
	d := &p.devices[place]
	for _, id := range d.batch {
		p.waitAgain(id)
	}
	if d.busy {
		p.running--
	}
	d.batch, d.busy, d.dirty = d.batch[:0], false, true
	p.touchDevice(place)
}

// handleWorkerLost requeues all tasks of a lost device, and places them again.
func (p *Policy) lost(now int64, place int32, out *policy.Actions) {
	d := &p.devices[place]
	p.again = p.again[:0]

	// Abort what runs.
	switch q := p.sequences(); {
	case d.busy && q.is(d.service):
		for len(d.batch) > 0 {
			id := d.batch[0]
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: p.tasks[id].generation.batch, Device: p.fleet.ids[place]})
			q.leave(place, id, now)
			p.waitAgain(id)
		}
	case d.busy:
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: place, Device: p.fleet.ids[place]})
		p.takeBack(place)
	}

	// Take the queue away.
	for _, id := range d.queue {
		k := &p.tasks[id]
		k.state, k.asked, k.arrived = known, -1, -1
		if k.req >= 0 {
			p.again = append(p.again, k.req)
		}
	}
	d.queue, d.down = d.queue[:0], true
	p.restart(place)

	// Inputs that were at the device, or on their way to it, are no longer there.
	for _, req := range p.again {
		for _, id := range p.requests[req].tasks {
			if k := &p.tasks[id]; k.asked == place || k.arrived == place {
				k.asked, k.arrived = -1, -1
			}
		}
	}
	if p.route != nil {
		p.route.Lost(place)
	}
	p.replan(now, out)
}

// handleWorkerBack places tasks that found no device, now that a device has come back.
func (p *Policy) back(now int64, place int32, out *policy.Actions) {
	p.devices[place].down = false
	p.restart(place)
	p.touchDevice(place)
	p.again = p.again[:0]
	for r := range p.requests {
		if p.stranded(&p.requests[r]) {
			p.again = append(p.again, int32(r))
		}
	}
	p.replan(now, out)
}

// strandedTag is the tag of the timer for requests that no device can serve.
const strandTag = 1

// hasUnplacedTask returns true if a request is open and one of its revealed tasks has no place.
func (p *Policy) stranded(q *request) bool {
	for _, id := range q.tasks {
		if q.open && p.tasks[id].state == known {
			return true
		}
	}
	return false
}

// awaitDevice keeps requests that no device can serve waiting until their deadlines, and then drops them.
func (p *Policy) strand(now int64, out *policy.Actions) {
	next := never
	for r := range p.requests {
		q := &p.requests[r]
		if q.expect > 0 || !p.stranded(q) {
			continue
		}
		if q.deadline <= now {
			p.drop(now, int32(r), policy.ReasonWorkerLost, out)
			continue
		}
		next = min(next, q.deadline)
	}
	if next < never {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: strandTag, At: time.Duration(next)})
	}
}

// dropRequest ends a request without an answer.
func (p *Policy) drop(now int64, req int32, why policy.Reason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: why})
	if q := &p.requests[req]; q.admitted && why == policy.ReasonDeadline {
		p.door.judge(now, q, true)
	}
	p.close(now, req)
}

// replanRequests places the unplaced tasks of the requests in toReplan.
func (p *Policy) replan(now int64, out *policy.Actions) {
	for _, req := range p.again {
		q := &p.requests[req]
		if !q.open || q.expect > 0 {
			continue
		}
		if !p.placement.resume(now, q, out) {
			p.strand(now, out)
		}
	}
}
