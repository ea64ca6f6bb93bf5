package workflow

import (
	"time"

	"inferplan/policy"
)

// react brings the places of a request up to date with what was revealed. Where
// that is what was expected, tasks keep the places that they were expected at,
// unless all that waits is placed anew.
func (p *Policy) react(now int64, req int32, out *policy.Actions) {
	q := &p.requests[req]
	if !p.opt.Rebind && p.adopt(q, out) {
		return
	}
	p.forgetAhead(q)
	p.list = p.list[:0]
	for _, id := range q.tasks {
		if k := &p.tasks[id]; k.state == queued && p.opt.Rebind {
			p.unqueue(id)
		}
		if p.tasks[id].state == known {
			p.list = append(p.list, id)
		}
	}
	if p.opt.Predict && (!p.opt.Thrift || p.booked(now) < aheadFull) {
		p.expect(q)
	}
	p.place(now, req, out)
}

// adopt gives the tasks of the latest segment the places at which they were
// expected; false: they were not.
func (p *Policy) adopt(q *request, out *policy.Actions) bool {
	n := int(q.segment)
	if n > len(q.ahead) {
		return false
	}
	come := q.tasks[len(q.tasks)-n:]
	for i, id := range come {
		if p.tasks[id].token != p.tasks[q.ahead[i]].token || p.tasks[q.ahead[i]].state != queued {
			return false
		}
	}
	for i, id := range come {
		k, e := &p.tasks[id], &p.tasks[q.ahead[i]]
		k.place, k.state, k.key, k.end = e.place, queued, e.key, e.end
		d := &p.devices[k.place]
		d.queue[index(d.queue, q.ahead[i])] = id
		d.dirty = true
		for _, later := range q.ahead[i+1:] {
			for j, in := range p.tasks[later].inputs {
				if in == q.ahead[i] {
					p.tasks[later].inputs[j] = id
				}
			}
		}
		e.state = known
		p.release(q.ahead[i])
		p.touchDevice(k.place)
	}
	for _, id := range come {
		p.bind(id, out)
	}
	q.ahead = q.ahead[:copy(q.ahead, q.ahead[n:])]
	return true
}

// forgetAhead takes expected tasks out of the queues. Loads that they have caused
// go on.
func (p *Policy) forgetAhead(q *request) {
	for _, id := range q.ahead {
		if p.tasks[id].state == queued {
			p.unqueue(id)
		}
		p.release(id)
	}
	q.ahead = q.ahead[:0]
}

// unqueue takes a task out of its device's queue.
func (p *Policy) unqueue(id int32) {
	k := &p.tasks[id]
	p.devices[k.place].dequeue(id)
	k.state = known
	p.touchDevice(k.place)
}

// expect adds the tasks that the table expects.
func (p *Policy) expect(q *request) {
	p.tokens = p.table.Ahead(q.cursor, p.opt.Ahead-len(q.tasks), p.tokens[:0])
	for _, token := range p.tokens {
		t := p.table.Token(token)
		id := p.take(-1, -1, t.Service, workOf(t.Work))
		k := &p.tasks[id]
		k.token = token
		for _, back := range t.Inputs {
			in := int32(-1)
			if at := len(q.tasks) + len(q.ahead) - int(back); back > 0 && at >= 0 {
				if in = p.at(q, at); p.tasks[in].state != ended {
					k.pending++
				}
			}
			k.inputs = append(k.inputs, in)
		}
		q.ahead = append(q.ahead, id)
		p.list = append(p.list, id)
	}
}

// at is a task by its place among the revealed and expected ones.
func (p *Policy) at(q *request, i int) int32 {
	if i < len(q.tasks) {
		return q.tasks[i]
	}
	return q.ahead[i-len(q.tasks)]
}

// place gives the tasks of the list their devices.
func (p *Policy) place(now int64, req int32, out *policy.Actions) {
	if len(p.list) == 0 {
		return
	}
	if p.opt.Route != Earliest {
		for _, id := range p.list {
			to := p.routed(p.tasks[id].service)
			if to < 0 {
				p.strand(now, out)
				return
			}
			p.put(now, id, to, now, 0, out)
		}
		return
	}
	p.refresh(now)
	p.makeJob()
	x := &p.search
	x.run(now, &p.job)
	if x.best >= never {
		p.strand(now, out)
		return
	}
	for _, id := range p.list {
		i := p.jobAt[id]
		p.put(now, id, x.to[i], x.toEnd[i], x.tails[i], out)
	}
	if p.opt.ScaleOut {
		for _, id := range p.list {
			p.scaleOut(now, id, x.start[p.jobAt[id]], out)
		}
	}
}

// makeJob writes the tasks of the list down as a job, with what they read.
func (p *Policy) makeJob() {
	p.job.reset()
	for len(p.jobAt) < len(p.tasks) {
		p.jobAt = append(p.jobAt, -1)
	}
	for _, id := range p.list {
		p.jobAt[id] = -1
		for _, in := range p.tasks[id].inputs {
			if in >= 0 {
				p.jobAt[in] = -1
			}
		}
	}
	for _, id := range p.list {
		for _, in := range p.tasks[id].inputs {
			if in < 0 || p.jobAt[in] >= 0 {
				continue
			}
			if u := &p.tasks[in]; u.place >= 0 && u.state != known {
				p.jobAt[in] = p.job.fix(u.service, u.place, u.end)
			}
		}
		k := &p.tasks[id]
		p.offsets = p.offsets[:0]
		for _, in := range k.inputs {
			at := int32(-1)
			if in >= 0 {
				at = p.jobAt[in]
			}
			p.offsets = append(p.offsets, at)
		}
		p.jobAt[id] = p.job.add(k.service, k.work, p.offsets...)
	}
}

// put places a task. behind is the least time from its end to that of its request.
func (p *Policy) put(now int64, id, place int32, end, behind int64, out *policy.Actions) {
	k := &p.tasks[id]
	k.place, k.end, k.state = place, end, queued
	p.seq++
	switch p.opt.Order {
	case Placed:
		k.key = p.seq
	case ByRequest:
		if k.req >= 0 {
			k.key = p.requests[k.req].deadline - behind
		} else {
			k.key = never
		}
	case ByCall:
		k.key = now + int64(p.opt.Slack*float64(p.fleet.cost(k.service, place, 1, k.work)))
	}
	p.devices[place].enqueue(p.tasks, id)
	p.touchDevice(place)
	if k.slot >= 0 {
		p.bind(id, out)
	}
}

// bind has what a placed task reads brought to its place.
func (p *Policy) bind(id int32, out *policy.Actions) {
	k := &p.tasks[id]
	if k.pending == 0 {
		p.settle(id, out)
	} else if p.apart(k) {
		p.ask(id, out)
	}
}

// returned has the tasks of a batch without a result placed anew.
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
	p.takeBack(place)
	p.replan(now, out)
}

// takeBack has the tasks of a device's batch wait again.
func (p *Policy) takeBack(place int32) {
	d := &p.devices[place]
	for _, id := range d.batch {
		k := &p.tasks[id]
		k.state, k.asked, k.arrived = known, -1, -1
		if k.req < 0 {
			p.release(id)
		} else {
			p.again = append(p.again, k.req)
		}
	}
	d.batch, d.busy, d.dirty = d.batch[:0], false, true
	p.touchDevice(place)
}

// lost has all that was on a device placed anew.
func (p *Policy) lost(now int64, place int32, out *policy.Actions) {
	d := &p.devices[place]
	p.again = p.again[:0]
	if d.busy {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: place, Device: p.fleet.ids[place]})
	}
	p.takeBack(place)
	for _, id := range d.queue {
		k := &p.tasks[id]
		k.state, k.asked, k.arrived = known, -1, -1
		if k.req >= 0 {
			p.again = append(p.again, k.req)
		}
	}
	d.queue, d.down = d.queue[:0], true
	p.restart(place)
	for _, req := range p.again {
		for _, id := range p.requests[req].tasks {
			if k := &p.tasks[id]; k.asked == place || k.arrived == place {
				k.asked, k.arrived = -1, -1
			}
		}
	}
	p.scale.lose(place)
	p.replan(now, out)
}

// back gives work to a device that is there again, where some has none.
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

// strandTag is that of the wake for requests that no device is left for.
const strandTag = 1

// stranded tells whether a task of a request has no device.
func (p *Policy) stranded(q *request) bool {
	for _, id := range q.tasks {
		if q.open && p.tasks[id].state == known {
			return true
		}
	}
	return false
}

// strand has requests that no device is left for wait for one up to their
// deadlines.
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

// drop ends a request without an answer.
func (p *Policy) drop(now int64, req int32, why policy.Reason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: why})
	p.close(now, req)
}

// replan places anew what has no place.
func (p *Policy) replan(now int64, out *policy.Actions) {
	for _, req := range p.again {
		q := &p.requests[req]
		if !q.open || q.expect > 0 {
			continue
		}
		p.forgetAhead(q)
		p.list = p.list[:0]
		for _, id := range q.tasks {
			if p.tasks[id].state == known {
				p.list = append(p.list, id)
			}
		}
		if len(p.list) > 0 {
			p.place(now, req, out)
		}
	}
}
