package gear

import (
	"time"

	"inferplan/policy"
)

// queue of a model on a device, chained through the requests.
type queue struct {
	head, tail int32
	length     int32
}

// send puts a request into the queue of its stage, on the replica whose turn it
// is: smooth weighted round robin. It returns the device. Where every replica
// is down, the request skips the stage; where none is left it is answered with
// what it has, or dropped.
func (p *Policy) send(now time.Duration, slot int32, out *policy.Actions) int32 {
	r := &p.requests[slot]
	for {
		s := &p.stages[p.first[r.gear]+r.stage]
		if i := p.turn(s); i >= 0 {
			d := s.devices[i]
			p.push(now, slot, d*int32(len(p.t.Pipelines))+s.pipelines[i])
			return d
		}
		if s.last {
			break
		}
		r.stage++
	}
	if r.answered {
		p.complete(slot, out)
	} else {
		p.drop(slot, policy.ReasonWorkerLost, out)
	}
	return none
}

// turn gives the replica whose turn it is at a stage; negative: none.
func (p *Policy) turn(s *stage) int {
	current := p.current[s.current : int(s.current)+len(s.weights)]
	best, total := -1, 0.0
	for i, w := range s.weights {
		if p.devices[s.devices[i]].down || w <= 0 {
			continue
		}
		current[i] += w
		total += w
		if best < 0 || current[i] > current[best] {
			best = i
		}
	}
	if best >= 0 {
		current[best] -= total
		return best
	}
	for i, d := range s.devices { // only replicas without a share are left
		if !p.devices[d].down {
			return i
		}
	}
	return -1
}

func (p *Policy) push(now time.Duration, slot, at int32) {
	q, r := &p.queues[at], &p.requests[slot]
	r.queue, r.prev, r.next, r.entered = at, q.tail, none, now
	if q.tail != none {
		p.requests[q.tail].next = slot
	} else {
		q.head = slot
	}
	q.tail = slot
	q.length++
}

func (p *Policy) remove(slot int32) {
	r := &p.requests[slot]
	q := &p.queues[r.queue]
	if r.prev != none {
		p.requests[r.prev].next = r.next
	} else {
		q.head = r.next
	}
	if r.next != none {
		p.requests[r.next].prev = r.prev
	} else {
		q.tail = r.prev
	}
	q.length--
	r.queue = none
}

// serveIdle looks at all devices that do nothing.
func (p *Policy) serveIdle(now time.Duration, out *policy.Actions) {
	for d := range p.devices {
		if dev := &p.devices[d]; !dev.busy && !dev.down {
			p.serve(now, int32(d), out)
		}
	}
}

// serve gives an idle device its longest ready queue. Where none is ready it
// asks to be woken when the first one will be flushed.
func (p *Policy) serve(now time.Duration, d int32, out *policy.Actions) {
	pipelines := int32(len(p.t.Pipelines))
	best, longest, flush := none, int32(0), time.Duration(-1)
	for m := range pipelines {
		q := &p.queues[d*pipelines+m]
		if q.length == 0 {
			continue
		}
		if due := p.requests[q.head].entered + p.opt.Flush; q.length < p.minQ[m] && due > now {
			if flush < 0 || due < flush {
				flush = due
			}
		} else if q.length > longest {
			best, longest = m, q.length
		}
	}
	if best != none {
		p.dispatch(now, d, best, out)
	} else if flush >= 0 && (p.flushAt < 0 || flush < p.flushAt) {
		p.flushAt = flush
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: flushTag, At: flush})
	}
}

func (p *Policy) dispatch(now time.Duration, d, pipeline int32, out *policy.Actions) {
	pl := &p.t.Pipelines[pipeline]
	q := &p.queues[d*int32(len(p.t.Pipelines))+pipeline]
	size := min(q.length, pl.Batch)
	first := int32(len(out.Reqs))
	for range size {
		slot := q.head
		p.remove(slot)
		out.Reqs = append(out.Reqs, slot)
	}
	copy(p.running[d*p.most:], out.Reqs[first:])
	p.devices[d].busy, p.devices[d].size = true, size
	out.Hops = append(out.Hops, policy.Hop{Stage: pl.FirstStage, Device: d, Uplink: none, Downlink: none,
		XferStart: now, XferEnd: now, Start: now, End: now + p.t.Infer(pipeline, size)})
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: pl.Model, Batch: d, Size: size, Device: d,
		ReqFirst: first, HopFirst: int32(len(out.Hops)) - 1, HopCount: 1})
}
