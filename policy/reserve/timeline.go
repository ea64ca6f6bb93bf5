package reserve

import "time"

// farFuture is later than any other time. Sums of a few of it do not overflow.
const farFuture = time.Duration(1) << 60

const (
	// Kinds of the reservations of a hop: on its device, and on both ends of the transfer into it.
	onDevice = iota
	onUplink
	onDownlink
	nodesPerHop
)

// resourceSummary has the figures of a resource that the search for a path reads. It is small and dense.
type resourceSummary struct {
	lastEnd   time.Duration // end of the last reservation; farFuture if the device is lost
	lastReady time.Duration // when the work of the last reservation is ready
	first     int32         // first and last reservation, or -1
	last      int32
}

// reservation is the use of a resource by one hop of a batch. Reservations belong to batch slots: those of slot b
// have the indexes [b*nodesPerBatch, (b+1)*nodesPerBatch), nodesPerHop of them for every hop.
type reservation struct {
	readyAt       time.Duration // when the work reaches the resource
	start         time.Duration
	duration      time.Duration
	prev, next    int32 // neighbours in the resource's list, or -1
	resource      int32 // resource; -1 if the hop uses none
	readyIsActual bool  // readyAt is the actual time
	startIsActual bool  // start is the actual time
}

// end returns the end of the reservation.
func (n *reservation) end() time.Duration { return n.start + n.duration }

// timelines keeps the reservations true. Between events every start is the latest of the time at which the work is
// ready and the ends of what runs before it on the same resources, which is what first-in first-out gives.
type timelines struct {
	lists    reservationLists
	toSettle []int32 // reservations to settle
	// movedReservations has the reservations whose start or ready time changed while recordMoves was set.
	movedReservations []int32
	recordMoves       bool
	wasRebuilt        bool // all orders were rebuilt
}

// initialize makes empty timelines (lists of reservations in order) of this many resources, devices and directions
// of links, for this many batch slots with this many hops each.
func (t *timelines) initialize(resources, batches, hops int32) {
	t.lists.hopsPerBatch, t.lists.nodesPerBatch = hops, hops*nodesPerHop
	t.lists.summaries = make([]resourceSummary, resources)
	t.lists.freeFrom = make([]time.Duration, resources)
	t.lists.isLost = make([]bool, resources)
	t.lists.reservationCounts = make([]int32, resources)
	for i := range t.lists.summaries {
		t.lists.summaries[i] = resourceSummary{first: -1, last: -1}
	}
	t.lists.grow(batches)
	t.toSettle, t.movedReservations = make([]int32, 0, 64), make([]int32, 0, 64)
}

// recordMove records a changed reservation.
func (t *timelines) recordMove(n int32) {
	if t.recordMoves {
		t.movedReservations = append(t.movedReservations, n)
	}
}

// settleStart updates the start of a reservation (the use of a resource by one batch) to when its work is ready and
// the work before it ends. If it changed, it queues what depends on it: later work on the resource, and the later
// hops of its batch.
func (t *timelines) settleStart(n int32) {
	if kind := n % nodesPerHop; kind != onDevice {
		t.settleTransfer(n - kind)
		return
	}
	entry := &t.lists.reservations[n]
	if entry.startIsActual || entry.resource < 0 {
		return
	}
	start := max(entry.readyAt, t.lists.predecessorEnd(n))
	if start == entry.start {
		return
	}
	entry.start = start
	t.recordMove(n)
	t.settleFollowers(n)
}

// settleTransfer updates the start of the transfer into the hop whose device reservation is n: both links must be
// free and the tensors ready. If the start changed, the work behind it on both links is queued to be updated, too,
// and the hop's run is ready later or earlier.
func (t *timelines) settleTransfer(n int32) {
	uplinkPart, downlinkPart := &t.lists.reservations[n+onUplink], &t.lists.reservations[n+onDownlink]
	if uplinkPart.resource < 0 && downlinkPart.resource < 0 {
		return
	}
	start := max(uplinkPart.readyAt, t.lists.predecessorEnd(n+onUplink), t.lists.predecessorEnd(n+onDownlink))
	if start == uplinkPart.start {
		return
	}
	uplinkPart.start, downlinkPart.start = start, start
	t.queueSuccessor(n + onUplink)
	t.queueSuccessor(n + onDownlink)
	t.setReady(n, uplinkPart.end())
}

// settleFollowers queues what depends on a changed device reservation, to get new times: the next work on the
// device, and the batch's next hop.
func (t *timelines) settleFollowers(n int32) {
	t.queueSuccessor(n)
	if !t.lists.isLastHop[n/nodesPerHop] {
		t.setNextHopReady(n, t.lists.reservations[n].end())
	}
}

// queueSuccessor queues the reservation that runs after n on its resource, to get a new start. If n is the last,
// only the resource's summary changes.
func (t *timelines) queueSuccessor(n int32) {
	entry := &t.lists.reservations[n]
	if entry.resource < 0 {
		return
	}
	if entry.next < 0 {
		t.lists.updateSummary(entry.resource)
		return
	}
	t.toSettle = append(t.toSettle, entry.next)
}

// setNextHopReady sets when the next hop of a batch is ready, after the run of device reservation n got a new end.
// Without links the fixed transfer time is added; otherwise the transfer is ready, and is queued to be updated. If
// the batch has no further hop, nothing happens.
func (t *timelines) setNextHopReady(n int32, end time.Duration) {
	nextHop := n + nodesPerHop
	if t.lists.reservations[nextHop].resource < 0 {
		return
	}
	if t.lists.reservations[nextHop+onUplink].resource < 0 && t.lists.reservations[nextHop+onDownlink].resource < 0 {
		t.setReady(nextHop, end+t.lists.linklessTransfers[nextHop/nodesPerHop])
		return
	}
	t.lists.reservations[nextHop+onUplink].readyAt, t.lists.reservations[nextHop+onDownlink].readyAt = end, end
	t.recordMove(nextHop + onUplink)
	t.recordMove(nextHop + onDownlink)
	t.lists.updateIfLast(nextHop + onUplink)
	t.lists.updateIfLast(nextHop + onDownlink)
	t.toSettle = append(t.toSettle, nextHop+onUplink)
}

// queueWithSuccessor queues a reservation that was inserted into its list, and the one that is now behind it.
func (t *timelines) queueWithSuccessor(n int32) {
	t.toSettle = append(t.toSettle, n)
	if successor := t.lists.reservations[n].next; successor >= 0 {
		t.toSettle = append(t.toSettle, successor)
	}
}

// setReady sets when the work of device reservation n is ready there.
func (t *timelines) setReady(n int32, readyAt time.Duration) {
	t.lists.reservations[n].readyAt = readyAt
	t.recordMove(n)
	t.lists.updateIfLast(n)
	t.toSettle = append(t.toSettle, n)
}

// updateIfLast updates the resource's summary if the reservation is the last of its list.
func (t *reservationLists) updateIfLast(n int32) {
	entry := &t.reservations[n]
	if entry.resource >= 0 && entry.next < 0 {
		t.updateSummary(entry.resource)
	}
}

// markArrived notes that the work of a reservation has reached its resource: in first-in first-out order it now
// stands before everything that has not arrived.
func (t *timelines) markArrived(n int32) {
	entry := &t.lists.reservations[n]
	if entry.resource < 0 || entry.readyIsActual {
		return
	}
	entry.readyIsActual = true
	predecessor := entry.prev
	for predecessor >= 0 && !t.lists.reservations[predecessor].readyIsActual {
		predecessor = t.lists.reservations[predecessor].prev
	}
	t.moveAfter(n, predecessor)
}

// moveAfter moves a reservation forward in the list of its resource, behind predecessor (-1: to the front). The
// work that it passes moves back. The reservations whose predecessor changed are queued to get new starts.
func (t *timelines) moveAfter(n, predecessor int32) {
	if t.lists.reservations[n].prev == predecessor {
		return
	}
	oldSuccessor := t.lists.reservations[n].next
	t.lists.unlink(n)
	t.lists.linkAfter(n, predecessor)
	t.toSettle = append(t.toSettle, t.lists.reservations[n].next, n)
	if oldSuccessor >= 0 {
		t.toSettle = append(t.toSettle, oldSuccessor)
	}
}

// settleAll settles all queued reservations, first in, first out: what is reached in several ways is then usually
// reached at once, and settled once. (Last in, first out, every step of a long queue would run through all that
// follows it, again and again.)
//
// If it does not end, the orders of the lists contradict each other: planned work comes so much later than the
// work that it was put in front of that each waits for the other. That requires devices that paths cross in both
// directions. Then all orders are rebuilt.
func (t *timelines) settleAll() {
	maxSteps := t.maxSettleSteps()
	for i := 0; i < len(t.toSettle); i++ {
		if i > maxSteps {
			t.rebuildOrders()
			t.wasRebuilt = true
			break
		}
		t.settleStart(t.toSettle[i])
	}
	t.toSettle = t.toSettle[:0]
}

// maxSettleSteps returns more steps than settling takes if orders do not contradict each other.
func (t *timelines) maxSettleSteps() int { return 64 + 4*len(t.lists.reservations) }

// extendOverrun corrects a resource whose work should all have ended by now. If work has started there, it runs
// past its time and gets a sixteenth more, so that an idle device is preferred to one that is about to be idle.
func (t *timelines) extendOverrun(res int32, now time.Duration) {
	n := t.lists.summaries[res].first
	entry := &t.lists.reservations[n]
	t.toSettle = t.toSettle[:0]
	if entry.startIsActual {
		entry.duration = now - entry.start + entry.duration/16 + 1
		t.settleFollowers(n)
		t.lists.updateIfLast(n)
	} else {
		t.lists.freeFrom[res] = now
		t.toSettle = append(t.toSettle, n)
	}
	t.settleAll()
}

// recordStart records that a run has actually started: it is then the first on its device, and its start is fixed.
// If that differs from the reserved start, all work that depends on it gets new times.
func (t *timelines) recordStart(n int32, actualStart time.Duration) {
	entry := &t.lists.reservations[n]
	if entry.resource < 0 || entry.startIsActual {
		return
	}
	t.toSettle = t.toSettle[:0]
	entry.readyIsActual = true
	t.moveAfter(n, -1)
	entry.startIsActual = true
	t.lists.freeFrom[entry.resource] = min(t.lists.freeFrom[entry.resource], actualStart) // the resource was free at that time
	if entry.start != actualStart {
		entry.start = actualStart
		t.settleFollowers(n)
		t.lists.updateIfLast(n)
	}
	t.settleAll()
}

// recordFinish records the actual end of a run: its device is free, and the batch's next hop (stage), if it has
// one, has reached its links and is ready. All that depends on it gets new times.
func (t *timelines) recordFinish(n int32, actualEnd time.Duration, isLastHop bool) {
	t.toSettle = t.toSettle[:0]
	t.endReservation(n, actualEnd)
	if !isLastHop {
		nextHop := n + nodesPerHop
		t.markArrived(nextHop + onUplink)
		t.markArrived(nextHop + onDownlink)
		t.setNextHopReady(n, actualEnd)
	}
	t.settleAll()
}

// recordTransferEnd records the actual end of the transfer into the hop whose device reservation is n: its links
// are free, and its run has reached its device and is ready.
func (t *timelines) recordTransferEnd(n int32, actualEnd time.Duration) {
	t.toSettle = t.toSettle[:0]
	t.endReservation(n+onUplink, actualEnd)
	t.endReservation(n+onDownlink, actualEnd)
	t.markArrived(n)
	t.setReady(n, actualEnd)
	t.settleAll()
}

// endReservation removes a reservation whose work left the resource at endTime, from when the resource is free.
func (t *timelines) endReservation(n int32, endTime time.Duration) {
	if res := t.lists.reservations[n].resource; res >= 0 {
		if n%t.lists.nodesPerBatch%nodesPerHop != onDevice || t.lists.reservations[n].startIsActual { // work that failed before it started has occupied nothing
			t.lists.freeFrom[res] = endTime
		}
		t.release(n)
	}
}

// release removes a reservation from its resource, and queues the next one to get an earlier start.
func (t *timelines) release(n int32) {
	entry := &t.lists.reservations[n]
	successor := entry.next
	t.lists.unlink(n)
	if successor >= 0 {
		t.toSettle = append(t.toSettle, successor)
	}
	entry.resource = -1
}
