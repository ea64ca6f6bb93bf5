package reserve

import "time"

// reservationLists has the reservations of all resources: devices first, then links. Each resource's reservations
// form a list in the order in which they will run.
type reservationLists struct {
	summaries         []resourceSummary // by resource
	freeFrom          []time.Duration   // by resource: end of work that is no longer listed; nothing starts earlier
	isLost            []bool            // by resource
	reservationCounts []int32           // by resource: number of reservations
	reservations      []reservation     // by batch slot, hop and kind, see reservationOf
	linklessTransfers []time.Duration   // by batch and hop: time of a transfer into the hop that uses no link
	isLastHop         []bool            // by batch and hop: no batch has a later hop
	nodesPerBatch     int32             // reservations of a batch slot
	hopsPerBatch      int32             // hops of a batch slot
}

// grow makes room for the reservations of this many batch slots, which have numbers: each slot has hopsPerBatch
// hops, and each hop one for its device and one for each end of its transfer. Reservations that exist keep their
// numbers.
func (t *reservationLists) grow(batches int32) {
	nodes := make([]reservation, batches*t.nodesPerBatch)
	for i := copy(nodes, t.reservations); i < len(nodes); i++ {
		nodes[i] = reservation{prev: -1, next: -1, resource: -1}
	}
	t.reservations = nodes
	delays := make([]time.Duration, batches*t.hopsPerBatch)
	copy(delays, t.linklessTransfers)
	t.linklessTransfers = delays
	t.isLastHop = make([]bool, batches*t.hopsPerBatch)
	for lastHop := t.hopsPerBatch - 1; lastHop < int32(len(t.isLastHop)); lastHop += t.hopsPerBatch {
		t.isLastHop[lastHop] = true
	}
}

// reservationOf returns the index of a reservation of a batch slot: of a hop, and of a kind such as onDevice.
func (t *reservationLists) reservationOf(batch int32, hop int16, kind int32) int32 {
	return batch*t.nodesPerBatch + int32(hop)*nodesPerHop + kind
}

// findSlot returns when work of this duration that is ready at a time would start on one resource. If first-in
// first-out would put it in front of other work that it must not delay, holdTime is positive: the work has the start
// only if it is ready that much later.
//
// Of work that is ready at the same instant, the one that was dispatched first runs first. Only work that is ready
// at once (isReadyNow) passes work that is due at this instant and has not come yet.
func (t *reservationLists) findSlot(res int32, readyAt, duration time.Duration, isReadyNow bool) (start, holdTime time.Duration) {
	// Behind everything that is reserved.
	summary := &t.summaries[res]
	if summary.first < 0 || readyAt > summary.lastReady || readyAt == summary.lastReady && !isReadyNow {
		return max(readyAt, summary.lastEnd), 0
	}
	if t.isLost[res] {
		return farFuture, 0
	}

	// Otherwise try the gap behind the predecessor, then the next gap.
	predecessor := t.predecessorFor(res, readyAt, isReadyNow)
	for {
		freeAt, successor := t.gapAfter(res, predecessor)
		start = max(readyAt+holdTime, freeAt)
		if successor < 0 || start+duration <= t.reservations[successor].start {
			return start, holdTime
		}

		// The gap is too small: come after the work behind it is ready.
		holdTime = max(holdTime, t.reservations[successor].readyAt-readyAt, 1)
		for predecessor = successor; t.reservations[predecessor].next >= 0 && t.reservations[t.reservations[predecessor].next].readyAt <= readyAt+holdTime; {
			predecessor = t.reservations[predecessor].next
		}
	}
}

// fifoTransferStart returns where first-in first-out puts a transfer, which holds an uplink and a downlink (either
// may be -1). moves reports whether that moves the work behind it.
func (t *reservationLists) fifoTransferStart(upRes, downRes int32, readyAt, duration time.Duration) (start time.Duration, moves bool) {
	start, limit := readyAt, farFuture
	for _, res := range [2]int32{upRes, downRes} {
		if res >= 0 {
			freeAt, successor := t.gapAfter(res, t.predecessorFor(res, readyAt, false))
			start, limit = max(start, freeAt), min(limit, t.startOf(successor))
		}
	}
	return start, start+duration > limit
}

// predecessorFor returns the reservation behind which work that is ready at a time stands. If it would be first,
// it returns -1.
func (t *reservationLists) predecessorFor(res int32, readyAt time.Duration, isReadyNow bool) int32 {
	n := t.summaries[res].last
	for n >= 0 {
		entry := &t.reservations[n]
		if entry.startIsActual || entry.readyAt < readyAt || entry.readyAt == readyAt && (!isReadyNow || entry.readyIsActual) {
			break
		}
		n = entry.prev
	}
	return n
}

// gapAfter returns when the gap behind a reservation begins, and the reservation behind the gap, or -1. If
// predecessor is negative, the gap is at the head of the list.
func (t *reservationLists) gapAfter(res, predecessor int32) (freeAt time.Duration, successor int32) {
	if predecessor < 0 {
		return t.freeFrom[res], t.summaries[res].first
	}
	return t.reservations[predecessor].end(), t.reservations[predecessor].next
}

// findTransferSlot returns when a transfer of this duration that is ready at readyAt would start, as findSlot does
// for one resource: it holds an uplink and a downlink at once, so it needs a gap in both. Either may be -1. If it
// must not delay other work, holdTime is how much later it has to be ready.
func (t *reservationLists) findTransferSlot(upRes, downRes int32, readyAt, duration time.Duration) (start, holdTime time.Duration) {
	switch {
	case upRes < 0 && downRes < 0:
		return readyAt, 0
	case upRes < 0:
		return t.findSlot(downRes, readyAt, duration, false)
	case downRes < 0:
		return t.findSlot(upRes, readyAt, duration, false)
	}
	for {
		// Try the gaps of both links at the same time.
		freeUp, nextUp := t.gapAfter(upRes, t.predecessorFor(upRes, readyAt+holdTime, false))
		freeDown, nextDown := t.gapAfter(downRes, t.predecessorFor(downRes, readyAt+holdTime, false))
		start = max(readyAt+holdTime, freeUp, freeDown)
		limitUp, limitDown := t.startOf(nextUp), t.startOf(nextDown)
		if start+duration <= min(limitUp, limitDown) {
			return start, holdTime
		}

		// Move behind the reservations that are in the way.
		nextReady := farFuture
		if start+duration > limitUp {
			nextReady = min(nextReady, t.reservations[nextUp].readyAt)
		}
		if start+duration > limitDown {
			nextReady = min(nextReady, t.reservations[nextDown].readyAt)
		}
		holdTime = nextReady - readyAt
	}
}

// startOf returns the start of a reservation; farFuture if there is none.
func (t *reservationLists) startOf(n int32) time.Duration {
	if n < 0 {
		return farFuture
	}
	return t.reservations[n].start
}

// insertReservation puts a reservation into its resource's list, behind all work that is ready no later.
func (t *reservationLists) insertReservation(n int32) {
	entry := &t.reservations[n]
	t.linkAfter(n, t.predecessorFor(entry.resource, entry.readyAt, false))
}

// linkAfter links reservation n into the list of its resource, behind another one or, if predecessor is negative,
// as the first. If n is now the last, the summary of the resource (end and ready time of its last work) is updated.
func (t *reservationLists) linkAfter(n, predecessor int32) {
	entry := &t.reservations[n]
	summary := &t.summaries[entry.resource]
	t.reservationCounts[entry.resource]++
	entry.prev = predecessor
	if predecessor < 0 {
		entry.next = summary.first
		summary.first = n
	} else {
		entry.next = t.reservations[predecessor].next
		t.reservations[predecessor].next = n
	}
	if entry.next < 0 {
		summary.last = n
		t.updateSummary(entry.resource)
	} else {
		t.reservations[entry.next].prev = n
	}
}

// unlink removes a reservation from the list of its resource. If it was the last, the summary of the resource (end
// and ready time of its last work) is updated.
func (t *reservationLists) unlink(n int32) {
	entry := &t.reservations[n]
	summary := &t.summaries[entry.resource]
	t.reservationCounts[entry.resource]--
	if entry.prev < 0 {
		summary.first = entry.next
	} else {
		t.reservations[entry.prev].next = entry.next
	}
	if entry.next < 0 {
		summary.last = entry.prev
		t.updateSummary(entry.resource)
	} else {
		t.reservations[entry.next].prev = entry.prev
	}
	entry.prev, entry.next = -1, -1
}

// updateSummary updates the summary of a resource, when its last work ends and was ready, from its last
// reservation. A lost resource is never free.
func (t *reservationLists) updateSummary(res int32) {
	summary := &t.summaries[res]
	switch {
	case t.isLost[res]:
		summary.lastEnd, summary.lastReady = farFuture, 0
	case summary.last < 0:
		summary.lastEnd, summary.lastReady = t.freeFrom[res], 0
	default:
		summary.lastEnd, summary.lastReady = t.reservations[summary.last].end(), t.reservations[summary.last].readyAt
	}
}

// predecessorEnd returns when the work that runs before reservation n on its resource ends; for the first one, from
// when the resource is free.
func (t *reservationLists) predecessorEnd(n int32) time.Duration {
	entry := &t.reservations[n]
	if entry.resource < 0 {
		return 0
	}
	if entry.prev < 0 {
		return t.freeFrom[entry.resource]
	}
	return t.reservations[entry.prev].end()
}
