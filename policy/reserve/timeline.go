package reserve

import "time"

// farFuture is later than any other time. Sums of a few of it do not overflow.
const farFuture = time.Duration(1) << 60

const (
	// Kinds of the reservations of a hop: on its device, and on both ends of the transfer into it.
	onDevice = iota
	onUplink
	onDownlink
	reservationsPerHop
)

// resourceSummary has the figures of a resource (a device or a direction of a link) that the search for a path reads.
// It is small, so that many fit into the processor's cache.
type resourceSummary struct {
	lastEnd   time.Duration // end of the last reservation; farFuture if the device is lost
	lastReady time.Duration // when the work of the last reservation is ready
	first     int32         // index of the first reservation of the list, or -1
	last      int32         // index of the last reservation of the list, or -1
}

// reservation is the use of a resource by one hop (a stage on a device) of a batch. Reservations belong to batch
// slots: those of slot b have the indexes [b*reservationsPerBatch, (b+1)*reservationsPerBatch), reservationsPerHop of
// them for every hop.
type reservation struct {
	readyAt       time.Duration // when the work reaches the resource
	start         time.Duration // when the work starts there
	duration      time.Duration // how long it holds the resource
	prev, next    int32         // neighbours in the resource's list, or -1
	resource      int32         // resource; -1 if the hop uses none
	readyIsActual bool          // readyAt has happened; before, it is an expectation
	startIsActual bool          // start has happened; before, it is an expectation
}

// end returns the end of the reservation.
func (entry *reservation) end() time.Duration { return entry.start + entry.duration }

// timelines keeps the reservations true while actual times come in. Between events every start is the latest of the
// time at which the work is ready and the ends of what runs before it on the same resources, which is what first-in
// first-out gives. To settle a reservation is to update its start to that. In its methods an index is that of a
// reservation in lists.reservations.
type timelines struct {
	lists    reservationLists
	toSettle []int32 // indexes of reservations to settle, a queue
	// movedReservations has the reservations whose start or ready time changed while recordMoves was set.
	movedReservations []int32
	recordMoves       bool // changes of reservations are recorded in movedReservations
	wasRebuilt        bool // all orders were rebuilt since it was last reset
}

// initialize makes empty lists of reservations, when the policy is made, for this many resources (devices and directions
// of links), with space for this many batch slots (numbers of batches) of this many hops (stages on devices) each. -1
// ends a list.
func (t *timelines) initialize(resources, batchSlots, hops int32) {
	t.lists.hopsPerBatch, t.lists.reservationsPerBatch = hops, hops*reservationsPerHop
	t.lists.summaries = make([]resourceSummary, resources)
	t.lists.freeFrom = make([]time.Duration, resources)
	t.lists.isLost = make([]bool, resources)
	t.lists.reservationCounts = make([]int32, resources)
	for i := range t.lists.summaries {
		t.lists.summaries[i] = resourceSummary{first: -1, last: -1}
	}
	t.lists.growSlots(batchSlots)
	t.toSettle, t.movedReservations = make([]int32, 0, 64), make([]int32, 0, 64)
}

// recordMove is called when the start or ready time of the reservation at an index has changed. While recordMoves is set,
// as during a trial of tryReservePath, it adds the index to movedReservations, by which movesAreAllowed judges the trial.
func (t *timelines) recordMove(index int32) {
	if t.recordMoves {
		t.movedReservations = append(t.movedReservations, index)
	}
}

// settleStart updates the start of the reservation at an index to the later of when its work is ready and when the work
// before it ends, unless the run has actually started. If the start changed, what depends on it is queued to be
// updated: later work on the resource, and the later hops of its batch. recordMove notes the change if the caller asked
// for that. A hop has three reservations in a row, on its device and on both links of the transfer into it; a transfer
// is updated on both of its links together. A resource < 0 means that the reservation is not used.
func (t *timelines) settleStart(index int32) {
	if part := partOf(index); part != onDevice {
		deviceIndex := index - part // the hop's reservation on its device, by which settleTransfer knows the hop
		t.settleTransfer(deviceIndex)
		return
	}
	entry := &t.lists.reservations[index]
	if entry.startIsActual || entry.resource < 0 {
		return
	}
	start := max(entry.readyAt, t.lists.predecessorEnd(index))
	if start == entry.start {
		return
	}
	entry.start = start
	t.recordMove(index)
	t.queueDependents(index)
}

// settleTransfer updates the start of the transfer into a hop; index is that of the hop's reservation on its device.
// Both links must be free and the tensors ready. If the start changed, the work behind it on both links is queued to
// be updated, too, and the hop's run is ready at the transfer's new end.
func (t *timelines) settleTransfer(index int32) {
	uplinkPart, downlinkPart := &t.lists.reservations[index+onUplink], &t.lists.reservations[index+onDownlink]
	if uplinkPart.resource < 0 && downlinkPart.resource < 0 {
		return
	}
	start := max(uplinkPart.readyAt, t.lists.predecessorEnd(index+onUplink), t.lists.predecessorEnd(index+onDownlink))
	if start == uplinkPart.start {
		return
	}
	uplinkPart.start, downlinkPart.start = start, start
	t.queueSuccessor(index + onUplink)
	t.queueSuccessor(index + onDownlink)
	t.setRunReady(index, uplinkPart.end())
}

// queueDependents is called after the end of a reservation on a device, the one at an index, has changed. It queues what
// depends on that end to be settled (to get new times): the next work on the device, and the next hop of the same batch.
func (t *timelines) queueDependents(index int32) {
	t.queueSuccessor(index)
	if hopNumber := index / reservationsPerHop; !t.lists.isLastHop[hopNumber] { // hops of all slots are numbered in a row
		t.setNextHopReady(index, t.lists.reservations[index].end())
	}
}

// queueSuccessor queues the reservation that runs behind the one at an index on the same resource, to get a new start
// (toSettle). If there is none, only the resource's summary (end and ready time of its last work) changes.
func (t *timelines) queueSuccessor(index int32) {
	entry := &t.lists.reservations[index]
	if entry.resource < 0 {
		return
	}
	if entry.next < 0 {
		t.lists.updateSummary(entry.resource)
		return
	}
	t.toSettle = append(t.toSettle, entry.next)
}

// setNextHopReady is called when the run of a batch on a device has got a new end; `index` is that of the run's
// reservation. It sets when the batch's next hop is ready. If the transfer into that hop uses no link, its run is ready
// after the transfer's fixed time. Otherwise the transfer is ready at `end` on both links, and is queued to get a new
// start; its uplink's entry in the queue stands for both, because settleTransfer updates both. If the batch has no
// further hop, nothing happens. Each hop has three reservations in a row: on its device, its uplink and its downlink. A
// resource < 0 means that the reservation is not used.
func (t *timelines) setNextHopReady(index int32, end time.Duration) {
	nextHop := index + reservationsPerHop
	if t.lists.reservations[nextHop].resource < 0 {
		return
	}
	if t.lists.reservations[nextHop+onUplink].resource < 0 && t.lists.reservations[nextHop+onDownlink].resource < 0 {
		t.setRunReady(nextHop, end+t.lists.linklessTransfers[nextHop/reservationsPerHop])
		return
	}
	t.lists.reservations[nextHop+onUplink].readyAt, t.lists.reservations[nextHop+onDownlink].readyAt = end, end
	t.recordMove(nextHop + onUplink)
	t.recordMove(nextHop + onDownlink)
	t.lists.updateIfLast(nextHop + onUplink)
	t.lists.updateIfLast(nextHop + onDownlink)
	t.toSettle = append(t.toSettle, nextHop+onUplink)
}

// queueWithSuccessor queues the reservation at an index, which was just inserted into its list, and the one that is
// now behind it.
func (t *timelines) queueWithSuccessor(index int32) {
	t.toSettle = append(t.toSettle, index)
	if successor := t.lists.reservations[index].next; successor >= 0 {
		t.toSettle = append(t.toSettle, successor)
	}
}

// setRunReady sets when the work of a reservation on a device is ready there, and queues the reservation to get a new start.
func (t *timelines) setRunReady(index int32, readyAt time.Duration) {
	t.lists.reservations[index].readyAt = readyAt
	t.recordMove(index)
	t.lists.updateIfLast(index)
	t.toSettle = append(t.toSettle, index)
}

// updateIfLast updates the summary of a resource if the reservation at an index is the last of its list. Its times
// have changed.
func (t *reservationLists) updateIfLast(index int32) {
	entry := &t.reservations[index]
	if entry.resource >= 0 && entry.next < 0 {
		t.updateSummary(entry.resource)
	}
}

// markArrived is called when the work of the reservation at an index has reached its resource. First-in first-out then
// puts it before all work that has not arrived: it is moved there in the resource's list.
func (t *timelines) markArrived(index int32) {
	entry := &t.lists.reservations[index]
	if entry.resource < 0 || entry.readyIsActual {
		return
	}
	entry.readyIsActual = true
	predecessor := entry.prev
	for predecessor >= 0 && !t.lists.reservations[predecessor].readyIsActual {
		predecessor = t.lists.reservations[predecessor].prev
	}
	t.moveAfter(index, predecessor)
}

// moveAfter moves the reservation at an index forward in the list of its resource, behind the one at predecessor (-1:
// to the front). The work that it passes moves back. All reservations whose predecessor changed are queued to get new
// starts.
func (t *timelines) moveAfter(index, predecessor int32) {
	if t.lists.reservations[index].prev == predecessor {
		return
	}
	oldSuccessor := t.lists.reservations[index].next
	t.lists.unlink(index)
	t.lists.linkAfter(index, predecessor)
	t.toSettle = append(t.toSettle, t.lists.reservations[index].next, index)
	if oldSuccessor >= 0 {
		t.toSettle = append(t.toSettle, oldSuccessor)
	}
}

// settleAll settles (updates the starts of) all queued reservations, first in, first out: what depends on several of
// them is then usually reached at once, and settled once. (Last in, first out, every step of a long queue would run
// through all that follows it, again and again.)
//
// If it does not end, the orders of the lists contradict each other: on one resource batch A stands before batch B and
// waits for an earlier hop of its own, which stands behind B's later hop on another resource. Then each waits for the
// other, and both starts move on without end. That takes paths that use the same two resources in opposite order. All
// orders are then rebuilt.
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

// maxSettleSteps returns a number of steps that settleAll exceeds only if the orders of the lists contradict each other:
// otherwise each reservation is settled a few times at most.
func (t *timelines) maxSettleSteps() int { return 64 + 4*len(t.lists.reservations) }

// extendOverrun is called by the search for a path on a resource whose reservations all ended before now although work
// is still listed. If the first has started, it runs longer than reserved: its end becomes now plus a sixteenth of its
// duration, and at least a nanosecond, so that an idle device is preferred to one that is about to be idle. If it has not
// started, the resource counts as free from now. Then the work behind is settled.
func (t *timelines) extendOverrun(resource int32, now time.Duration) {
	index := t.lists.summaries[resource].first
	entry := &t.lists.reservations[index]
	t.toSettle = t.toSettle[:0]

	// Extend the run, or move the free time of a resource whose work has not come.
	if entry.startIsActual {
		entry.duration = now - entry.start + entry.duration/16 + 1
		t.queueDependents(index)
		t.lists.updateIfLast(index)
	} else {
		t.lists.freeFrom[resource] = now
		t.toSettle = append(t.toSettle, index)
	}
	t.settleAll()
}

// recordStart records that the run of the reservation at an index has actually started: it is then the first on its
// device, and its start is fixed. If the start differs from the reserved one, all work that depends on it gets new
// times. If the batch has no such reservation (any more), or the start is known, nothing happens.
func (t *timelines) recordStart(index int32, actualStart time.Duration) {
	entry := &t.lists.reservations[index]
	if entry.resource < 0 || entry.startIsActual {
		return
	}
	t.toSettle = t.toSettle[:0]

	// Work that runs has also reached its device. Move it to the front of the device's list, which queues all work whose
	// place changes to get new starts.
	entry.readyIsActual, entry.startIsActual = true, true
	const front = -1
	t.moveAfter(index, front)

	// Correct its start, and what depends on that.
	t.lists.freeFrom[entry.resource] = min(t.lists.freeFrom[entry.resource], actualStart) // the resource was free at that time
	if entry.start != actualStart {
		entry.start = actualStart
		t.queueDependents(index)
		t.lists.updateIfLast(index)
	}
	t.settleAll()
}

// recordFinish records the actual end of a run on a device, whose reservation is at an index: the device is free, and
// the batch's next hop, if it has one, has reached its links and is ready. All that depends on it gets new times.
func (t *timelines) recordFinish(index int32, actualEnd time.Duration, isLastHop bool) {
	t.toSettle = t.toSettle[:0]
	t.endReservation(index, actualEnd)
	if !isLastHop {
		nextHop := index + reservationsPerHop
		t.markArrived(nextHop + onUplink)
		t.markArrived(nextHop + onDownlink)
		t.setNextHopReady(index, actualEnd)
	}
	t.settleAll()
}

// recordTransferEnd records the actual end of the transfer into a hop; index is that of the hop's reservation on its
// device. The links are free, and the run has reached its device and is ready. All that depends on these gets new times.
func (t *timelines) recordTransferEnd(index int32, actualEnd time.Duration) {
	t.toSettle = t.toSettle[:0]
	t.endReservation(index+onUplink, actualEnd)
	t.endReservation(index+onDownlink, actualEnd)
	t.markArrived(index)
	t.setRunReady(index, actualEnd)
	t.settleAll()
}

// endReservation removes the reservation at an index, whose work left the resource at endTime; the resource is free from
// then on. The reservation behind it is queued to get a new start.
func (t *timelines) endReservation(index int32, endTime time.Duration) {
	if resource := t.lists.reservations[index].resource; resource >= 0 {
		// Work that failed before it started has not occupied its device.
		if partOf(index) != onDevice || t.lists.reservations[index].startIsActual {
			t.lists.freeFrom[resource] = endTime
		}
		t.releaseReservation(index)
	}
}

// releaseReservation removes the reservation at an index from its resource, and queues the next one to get an earlier start.
func (t *timelines) releaseReservation(index int32) {
	entry := &t.lists.reservations[index]
	successor := entry.next
	t.lists.unlink(index)
	if successor >= 0 {
		t.toSettle = append(t.toSettle, successor)
	}
	entry.resource = -1
}
