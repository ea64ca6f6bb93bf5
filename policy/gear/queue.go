package gear

import (
	"math/bits"
	"slices"
	"time"

	"inferplan/policy"
)

// requestQueue is the queue of a chain, linked through the requests.
type requestQueue struct {
	head, tail int32
	length     int32
}

// enqueue puts a request into the queue of its stage, on the replica whose turn it is (smooth weighted round
// robin), and returns the replica's first device. If every replica is lost, the request skips the stage. If no
// stage is left, it is completed with the answer that it has, or dropped, and enqueue returns noIndex.
func (p *Policy) enqueue(now time.Duration, slot int32, out *policy.Actions) int32 {
	r := &p.requests[slot]
	for {
		s := &p.stages[p.firstStage[r.gear]+r.stage]
		if i := p.nextReplica(s); i >= 0 {
			p.pushRequest(now, slot, s.chains[i])
			if p.refusals != nil {
				p.refusals.addWaiting(r, p.firstStage[r.gear]+r.stage)
			}
			return p.fleet.firstDevice(s.chains[i])
		}
		if s.isLast {
			break
		}
		r.stage++
	}
	if r.hasAnswer {
		p.completeRequest(slot, out)
	} else {
		p.dropRequest(slot, policy.ReasonWorkerLost, out)
	}
	return noIndex
}

// nextReplica returns the replica whose turn it is at a stage of a gear, as an index into its chains. Each replica
// gets its share of the requests, evenly spread (smooth weighted round robin). If every replica is lost, it returns
// -1.
func (p *Policy) nextReplica(s *gearStage) int {
	weights := s.weights
	if len(weights) == 1 && weights[0] > 0 && p.lostDevices == 0 {
		return 0 // a single replica
	}

	// Every replica gains its weight, and the one with the highest is chosen and loses the sum.
	current := p.currentWeights[s.weightIndex:][:len(weights)]
	bestReplica, highestWeight, total := -1, 0.0, 0.0
	for i, w := range weights {
		if w <= 0 || p.lostDevices > 0 && p.fleet.chains[s.chains[i]].lostDevices > 0 {
			continue
		}
		weight := current[i] + w
		current[i] = weight
		total += w
		if bestReplica < 0 || weight > highestWeight {
			bestReplica, highestWeight = i, weight
		}
	}
	if bestReplica >= 0 {
		current[bestReplica] -= total
		return bestReplica
	}

	// Only replicas without a share are left.
	for i, c := range s.chains {
		if p.fleet.chains[c].lostDevices == 0 {
			return i
		}
	}
	return -1
}

// pushRequest appends a request to the queue of a chain, and notes that the first device of the chain has a queue
// to serve.
func (p *Policy) pushRequest(now time.Duration, slot, chain int32) {
	q, r := &p.fleet.queues[chain], &p.requests[slot]
	r.queue, r.prevInQueue, r.nextInQueue, r.enqueuedAt = chain, q.tail, noIndex, now
	if q.tail != noIndex {
		p.requests[q.tail].nextInQueue = slot
	} else {
		q.head = slot
	}
	q.tail = slot
	q.length++
	d := p.fleet.firstDevice(chain)
	p.fleet.devicesWithQueue[d/64] |= 1 << (d % 64)
}

// popInto takes the first requests of a queue, as many as list is long, writes their slots into list, and returns
// tasks with them appended. The queue is linked through the requests and must have as many.
func (q *requestQueue) popInto(requests []requestState, list, tasks []int32) []int32 {
	slot := q.head
	for i := range list {
		list[i], tasks = slot, append(tasks, slot)
		r := &requests[slot]
		r.queue, slot = noIndex, r.nextInQueue
	}
	if q.head = slot; slot == noIndex {
		q.tail = noIndex
	} else {
		requests[slot].prevInQueue = noIndex
	}
	q.length -= int32(len(list))
	return tasks
}

// removeFromQueue removes a request from the middle of its queue, when its client has gone away or its chain is
// lost.
func (p *Policy) removeFromQueue(slot int32) {
	r := &p.requests[slot]
	q := &p.fleet.queues[r.queue]
	if r.prevInQueue != noIndex {
		p.requests[r.prevInQueue].nextInQueue = r.nextInQueue
	} else {
		q.head = r.nextInQueue
	}
	if r.nextInQueue != noIndex {
		p.requests[r.nextInQueue].prevInQueue = r.prevInQueue
	} else {
		q.tail = r.prevInQueue
	}
	q.length--
	r.queue = noIndex
}

// serveIdle serves all idle devices for which requests may wait, after an event that may have freed one.
// devicesWithQueue is a set of bits; a device without requests is taken out of it here.
func (p *Policy) serveIdle(now time.Duration, out *policy.Actions) {
	for w, set := range p.fleet.devicesWithQueue {
		for ; set != 0; set &= set - 1 {
			d := int32(64*w + bits.TrailingZeros64(set))
			switch dev := &p.fleet.devices[d]; {
			case !slices.ContainsFunc(dev.startingChains, func(c int32) bool { return p.fleet.queues[c].length > 0 }):
				p.fleet.devicesWithQueue[w] &^= 1 << (d % 64)
			case dev.activeBatches == 0 && !dev.isLost:
				p.serveDevice(now, d, out)
			}
		}
	}
}

// serveDevice gives an idle device the first of its ready queues (see servedBefore). A queue is ready if it is long
// enough for the gear or its head has waited for the flush time. If none is, a timer is set for the first flush. A
// chain (the devices of a replica) that is full of batches waits until one has gone through.
func (p *Policy) serveDevice(now time.Duration, d int32, out *policy.Actions) {
	bestChain, nextFlush := noIndex, time.Duration(-1)

	// Find the queue to serve, and when the next one is flushed.
	for _, c := range p.fleet.devices[d].startingChains {
		q, ch := &p.fleet.queues[c], &p.fleet.chains[c]
		if q.length == 0 || ch.activeBatches == ch.maxBatches || ch.lostDevices > 0 {
			continue
		}
		if due := p.requests[q.head].enqueuedAt + p.options.Flush; q.length < p.minQueue[ch.pipeline] && due > now {
			if nextFlush < 0 || due < nextFlush {
				nextFlush = due
			}
		} else if bestChain == noIndex || p.servedBefore(c, bestChain) {
			bestChain = c
		}
	}

	// Send a batch, or ask for a wake.
	if bestChain != noIndex {
		p.dispatch(now, bestChain, out)
	} else if nextFlush >= 0 && (p.flushAt < 0 || nextFlush < p.flushAt) {
		p.flushAt = nextFlush
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: flushTag, At: nextFlush})
	}
}

// servedBefore reports whether an idle device serves the queue of a chain before that of another: the longer one,
// so that expensive models collect batches. While requests are refused, a queue that fills a batch comes before
// one that does not, and of two that fill one, the one whose head arrived earlier. The queue of the first model is
// then as long as the SLO allows, and requests that few others follow to a later model would be late before their
// queue is longer.
func (p *Policy) servedBefore(c, otherChain int32) bool {
	q, o := &p.fleet.queues[c], &p.fleet.queues[otherChain]
	if p.refusals == nil || !p.refusals.isRefusing() {
		return q.length > o.length
	}
	fillsBatch := q.length >= p.fleet.tables.Pipelines[p.fleet.chains[c].pipeline].Batch
	otherFull := o.length >= p.fleet.tables.Pipelines[p.fleet.chains[otherChain].pipeline].Batch
	switch {
	case fillsBatch != otherFull:
		return fillsBatch
	case fillsBatch:
		return p.requests[q.head].arrivedAt < p.requests[o.head].arrivedAt
	}
	return q.length > o.length
}
