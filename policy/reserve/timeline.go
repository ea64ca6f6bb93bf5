package reserve

import "time"

// farFuture is later than any other time. Sums of a few of it do not overflow.
const never = time.Duration(1) << 60

const (
	// Kinds of the reservations of a hop: on its device, and on both ends of the transfer into it.
	run = iota
	up
	down
	perHop
)

// resourceSummary has the figures of a resource that the search for a path reads. It is small and dense.
type span struct {
	tail      time.Duration // end of the last reservation; farFuture if the device is lost
	lastReady time.Duration // when the work of the last reservation is ready
	head      int32         // first and last reservation, or -1
	last      int32
}

// reservation is the use of a resource by one hop of a batch. Reservations belong to batch slots: those of slot b
// have the indexes [b*nodesPerBatch, (b+1)*nodesPerBatch), nodesPerHop of them for every hop.
type node struct {
	ready      time.Duration // when the work reaches the resource
	start      time.Duration
	dur        time.Duration
	prev, next int32 // neighbours in the resource's list, or -1
	res        int32 // resource; -1 if the hop uses none
	arrived    bool  // readyAt is the actual time
	started    bool  // start is the actual time
}

// end returns the end of the reservation.
func (n *node) end() time.Duration { return n.start + n.dur }

// timelines keeps the reservations true. Between events every start is the latest of the time at which the work is
// ready and the ends of what runs before it on the same resources, which is what first-in first-out gives.
type timelines struct {
	lanes
	work []int32 // reservations to settle
	// movedReservations has the reservations whose start or ready time changed while recordMoves was set.
	moved   []int32
	watched bool
	rebuilt bool // all orders were rebuilt
}

// initialize makes empty timelines of this many resources, for this many batch slots and hops.
func (t *timelines) init(resources, batches, hops int32) {
	t.hops, t.stride = hops, hops*perHop
	t.spans = make([]span, resources)
	t.floors = make([]time.Duration, resources)
	t.lost = make([]bool, resources)
	t.depths = make([]int32, resources)
	for i := range t.spans {
		t.spans[i] = span{head: -1, last: -1}
	}
	t.grow(batches)
	t.work, t.moved = make([]int32, 0, 64), make([]int32, 0, 64)
}

// recordMove records a changed reservation.
func (t *timelines) note(n int32) {
	if t.watched {
		t.moved = append(t.moved, n)
	}
}

// settleStart updates the start of a reservation. If it changed, it queues the reservations that depend on it: later work on the
// same resources, and the later hops of its batch.
func (t *timelines) settle(n int32) {
	if kind := n % perHop; kind != run {
		t.settleTransfer(n - kind)
		return
	}
	nd := &t.nodes[n]
	if nd.started || nd.res < 0 {
		return
	}
	start := max(nd.ready, t.freeBefore(n))
	if start == nd.start {
		return
	}
	nd.start = start
	t.note(n)
	t.follow(n)
}

// settleTransfer updates both ends of the transfer into the hop whose device reservation is n.
func (t *timelines) settleTransfer(n int32) {
	u, d := &t.nodes[n+up], &t.nodes[n+down]
	if u.res < 0 && d.res < 0 {
		return
	}
	start := max(u.ready, t.freeBefore(n+up), t.freeBefore(n+down))
	if start == u.start {
		return
	}
	u.start, d.start = start, start
	t.successor(n + up)
	t.successor(n + down)
	t.arrive(n, u.end())
}

// settleFollowers queues the reservations that depend on a changed device reservation.
func (t *timelines) follow(n int32) {
	t.successor(n)
	if !t.final[n/perHop] {
		t.sendNext(n, t.nodes[n].end())
	}
}

// queueSuccessor queues the reservation that runs after n on its resource.
func (t *timelines) successor(n int32) {
	nd := &t.nodes[n]
	if nd.res < 0 {
		return
	}
	if nd.next < 0 {
		t.setTail(nd.res)
		return
	}
	t.work = append(t.work, nd.next)
}

// setNextHopReady sets when the hop behind device reservation n is ready, if the batch has one.
func (t *timelines) sendNext(n int32, end time.Duration) {
	next := n + perHop
	if t.nodes[next].res < 0 {
		return
	}
	if t.nodes[next+up].res < 0 && t.nodes[next+down].res < 0 {
		t.arrive(next, end+t.delays[next/perHop])
		return
	}
	t.nodes[next+up].ready, t.nodes[next+down].ready = end, end
	t.note(next + up)
	t.note(next + down)
	t.touch(next + up)
	t.touch(next + down)
	t.work = append(t.work, next+up)
}

// queueWithSuccessor queues a reservation that was inserted into its list, and the one that is now behind it.
func (t *timelines) recheck(n int32) {
	t.work = append(t.work, n)
	if next := t.nodes[n].next; next >= 0 {
		t.work = append(t.work, next)
	}
}

// setReady sets when the work of device reservation n is ready there.
func (t *timelines) arrive(n int32, ready time.Duration) {
	t.nodes[n].ready = ready
	t.note(n)
	t.touch(n)
	t.work = append(t.work, n)
}

// updateIfLast updates the resource's summary if the reservation is the last of its list.
func (t *lanes) touch(n int32) {
	nd := &t.nodes[n]
	if nd.res >= 0 && nd.next < 0 {
		t.setTail(nd.res)
	}
}

// markArrived notes that the work of a reservation has reached its resource: in first-in first-out order it now
// stands before everything that has not arrived.
func (t *timelines) queued(n int32) {
	nd := &t.nodes[n]
	if nd.res < 0 || nd.arrived {
		return
	}
	nd.arrived = true
	after := nd.prev
	for after >= 0 && !t.nodes[after].arrived {
		after = t.nodes[after].prev
	}
	t.moveAfter(n, after)
}

// moveAfter moves a reservation forward in its list. The work that it passes moves back.
func (t *timelines) moveAfter(n, after int32) {
	if t.nodes[n].prev == after {
		return
	}
	behind := t.nodes[n].next
	t.unlink(n)
	t.linkAfter(n, after)
	t.work = append(t.work, t.nodes[n].next, n)
	if behind >= 0 {
		t.work = append(t.work, behind)
	}
}

// settleAll settles all queued reservations, first in, first out: what is reached in several ways is then usually
// reached at once, and settled once. (Last in, first out, every step of a long queue would run through all that
// follows it, again and again.)
//
// If it does not end, the orders of the lists contradict each other: planned work comes so much later than the
// work that it was put in front of that each waits for the other. That requires devices that paths cross in both
// directions. Then all orders are rebuilt.
func (t *timelines) drain() {
	most := t.mostSteps()
	for i := 0; i < len(t.work); i++ {
		if i > most {
			t.rebuild()
			t.rebuilt = true
			break
		}
		t.settle(t.work[i])
	}
	t.work = t.work[:0]
}

// maxSettleSteps returns more steps than settling takes if orders do not contradict each other.
func (t *timelines) mostSteps() int { return 64 + 4*len(t.nodes) }

// extendOverrun corrects a resource whose work should all have ended by now. If work has started there, it runs
// past its time and gets a sixteenth more, so that an idle device is preferred to one that is about to be idle.
func (t *timelines) overrun(res int32, now time.Duration) {
	n := t.spans[res].head
	nd := &t.nodes[n]
	t.work = t.work[:0]
	if nd.started {
		nd.dur = now - nd.start + nd.dur/16 + 1
		t.follow(n)
		t.touch(n)
	} else {
		t.floors[res] = now
		t.work = append(t.work, n)
	}
	t.drain()
}

// recordStart records the actual start of a run.
func (t *timelines) startedAt(n int32, at time.Duration) {
	nd := &t.nodes[n]
	if nd.res < 0 || nd.started {
		return
	}
	t.work = t.work[:0]
	nd.arrived = true
	t.moveAfter(n, -1)
	nd.started = true
	t.floors[nd.res] = min(t.floors[nd.res], at) // the resource was free at that time
	if nd.start != at {
		nd.start = at
		t.follow(n)
		t.touch(n)
	}
	t.drain()
}

// recordFinish records the actual end of a run. Unless it was the batch's last, its next hop becomes ready.
func (t *timelines) finishedAt(n int32, at time.Duration, last bool) {
	t.work = t.work[:0]
	t.ended(n, at)
	if !last {
		next := n + perHop
		t.queued(next + up)
		t.queued(next + down)
		t.sendNext(n, at)
	}
	t.drain()
}

// recordTransferEnd records the actual end of the transfer into the hop whose device reservation is n.
func (t *timelines) transferredAt(n int32, at time.Duration) {
	t.work = t.work[:0]
	t.ended(n+up, at)
	t.ended(n+down, at)
	t.queued(n)
	t.arrive(n, at)
	t.drain()
}

// endReservation removes a reservation whose work left the resource at a time.
func (t *timelines) ended(n int32, at time.Duration) {
	if res := t.nodes[n].res; res >= 0 {
		if n%t.stride%perHop != run || t.nodes[n].started { // work that failed before it started has occupied nothing
			t.floors[res] = at
		}
		t.release(n)
	}
}

// release removes a reservation and lets the following ones move up.
func (t *timelines) release(n int32) {
	nd := &t.nodes[n]
	next := nd.next
	t.unlink(n)
	if next >= 0 {
		t.work = append(t.work, next)
	}
	nd.res = -1
}
