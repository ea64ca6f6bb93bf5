package gear

import (
	"math/bits"
	"slices"
	"time"

	"inferplan/policy"
)

// requestQueue is the queue of a chain, linked through the requests.
type queue struct {
	head, tail int32
	length     int32
}

// enqueue puts a request into the queue of its stage, on the replica whose turn it is (smooth weighted round
// robin), and returns the replica's first device. If every replica is lost, the request skips the stage. If no
// stage is left, it is completed with the answer that it has, or dropped, and enqueue returns noIndex.
func (p *Policy) send(now time.Duration, slot int32, out *policy.Actions) int32 {
	r := &p.requests[slot]
	for {
		s := &p.stages[p.first[r.gear]+r.stage]
		if i := p.turn(s); i >= 0 {
			p.push(now, slot, s.chains[i])
			if p.shed != nil {
				p.shed.comes(r, p.first[r.gear]+r.stage)
			}
			return p.startOf(s.chains[i])
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

// nextReplica returns the replica whose turn it is at a stage. If every replica is lost, it returns -1.
func (p *Policy) turn(s *stage) int {
	weights := s.weights
	if len(weights) == 1 && weights[0] > 0 && p.gone == 0 {
		return 0 // a single replica
	}

	// Every replica gains its weight, and the one with the highest is chosen and loses the sum.
	current := p.current[s.current:][:len(weights)]
	best, most, total := -1, 0.0, 0.0
	for i, w := range weights {
		if w <= 0 || p.gone > 0 && p.chains[s.chains[i]].lost > 0 {
			continue
		}
		now := current[i] + w
		current[i] = now
		total += w
		if best < 0 || now > most {
			best, most = i, now
		}
	}
	if best >= 0 {
		current[best] -= total
		return best
	}

	// Only replicas without a share are left.
	for i, c := range s.chains {
		if p.chains[c].lost == 0 {
			return i
		}
	}
	return -1
}

// pushRequest appends a request to the queue of a chain.
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
	d := p.startOf(at)
	p.queued[d/64] |= 1 << (d % 64)
}

// popInto fills a list with the first requests of a queue, and appends them to tasks.
func (q *queue) pop(requests []request, list, tasks []int32) []int32 {
	slot := q.head
	for i := range list {
		list[i], tasks = slot, append(tasks, slot)
		r := &requests[slot]
		r.queue, slot = none, r.next
	}
	if q.head = slot; slot == none {
		q.tail = none
	} else {
		requests[slot].prev = none
	}
	q.length -= int32(len(list))
	return tasks
}

// removeFromQueue removes a request from its queue.
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

// serveIdle serves all idle devices for which requests may wait.
func (p *Policy) serveIdle(now time.Duration, out *policy.Actions) {
	for w, set := range p.queued {
		for ; set != 0; set &= set - 1 {
			d := int32(64*w + bits.TrailingZeros64(set))
			switch dev := &p.devices[d]; {
			case !slices.ContainsFunc(dev.starts, func(c int32) bool { return p.queues[c].length > 0 }):
				p.queued[w] &^= 1 << (d % 64)
			case dev.work == 0 && !dev.down:
				p.serve(now, d, out)
			}
		}
	}
}

// serveDevice gives an idle device the first of its ready queues (see servedBefore). If none is ready, it asks to
// be woken when the first one is to be flushed. A chain that is full of batches waits until one has gone through.
func (p *Policy) serve(now time.Duration, d int32, out *policy.Actions) {
	best, flush := none, time.Duration(-1)

	// Find the queue to serve, and when the next one is flushed.
	for _, c := range p.devices[d].starts {
		q, ch := &p.queues[c], &p.chains[c]
		if q.length == 0 || ch.under == ch.most || ch.lost > 0 {
			continue
		}
		if due := p.requests[q.head].entered + p.opt.Flush; q.length < p.minQ[ch.pipeline] && due > now {
			if flush < 0 || due < flush {
				flush = due
			}
		} else if best == none || p.servedBefore(c, best) {
			best = c
		}
	}

	// Send a batch, or ask for a wake.
	if best != none {
		p.dispatch(now, best, out)
	} else if flush >= 0 && (p.flushAt < 0 || flush < p.flushAt) {
		p.flushAt = flush
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: flushTag, At: flush})
	}
}

// servedBefore reports whether an idle device serves the queue of a chain before that of another: the longer one,
// so that expensive models collect batches. While requests are refused, a queue that fills a batch comes before
// one that does not, and of two that fill one, the one whose head arrived earlier. The queue of the first model is
// then as long as the SLO allows, and requests that few others follow to a later model would be late before their
// queue is longer.
func (p *Policy) servedBefore(c, other int32) bool {
	q, o := &p.queues[c], &p.queues[other]
	if p.shed == nil || !p.shed.refusing() {
		return q.length > o.length
	}
	full := q.length >= p.t.Pipelines[p.chains[c].pipeline].Batch
	otherFull := o.length >= p.t.Pipelines[p.chains[other].pipeline].Batch
	switch {
	case full != otherFull:
		return full
	case full:
		return p.requests[q.head].arrived < p.requests[o.head].arrived
	}
	return q.length > o.length
}
