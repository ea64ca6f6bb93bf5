package reserve

import "time"

// reservationLists has the reservations of all resources: devices first, then links. A reservation is the use of a
// resource by one hop of a batch. Each resource's reservations form a doubly linked list in the order in which they
// will run; prev and next are indexes in reservations.
type reservationLists struct {
	summaries            []resourceSummary // by resource
	freeFrom             []time.Duration   // by resource: end of work that is no longer listed; nothing starts earlier
	isLost               []bool            // by resource
	reservationCounts    []int32           // by resource: number of reservations
	reservations         []reservation     // of all batch slots: of each slot its hops, of each hop its three parts, see reservationOf
	linklessTransfers    []time.Duration   // by batch slot and hop: time of the transfer into the hop if that uses no link
	isLastHop            []bool            // by batch slot and hop: it is the last hop that a batch can have
	reservationsPerBatch int32             // number of reservations of a batch slot: hopsPerBatch * reservationsPerHop
	hopsPerBatch         int32             // number of hops of a batch slot: the stages of the longest pipeline
}

// growSlots extends the arrays to the reservations of this many batch slots (a slot is the number of a batch, used again
// later). Each slot has hopsPerBatch hops, and each hop three reservations: one on its device and one on each end of the
// transfer into it. Existing reservations stay at their indexes. A resource of -1 marks a reservation that is not in
// use.
func (t *reservationLists) growSlots(batchSlots int32) {
	reservations := make([]reservation, batchSlots*t.reservationsPerBatch)
	for i := copy(reservations, t.reservations); i < len(reservations); i++ {
		reservations[i] = reservation{prev: -1, next: -1, resource: -1}
	}
	t.reservations = reservations
	transferTimes := make([]time.Duration, batchSlots*t.hopsPerBatch)
	copy(transferTimes, t.linklessTransfers)
	t.linklessTransfers = transferTimes
	t.isLastHop = make([]bool, batchSlots*t.hopsPerBatch)
	for lastHop := t.hopsPerBatch - 1; lastHop < int32(len(t.isLastHop)); lastHop += t.hopsPerBatch {
		t.isLastHop[lastHop] = true
	}
}

// reservationOf returns the index in reservations of what a hop of the batch in a slot reserves. part is onDevice,
// onUplink or onDownlink.
func (t *reservationLists) reservationOf(batchSlot int32, hop int16, part int32) int32 {
	return batchSlot*t.reservationsPerBatch + int32(hop)*reservationsPerHop + part
}

// partOf returns which part of its hop the reservation at an index is: onDevice, onUplink or onDownlink.
func partOf(index int32) int32 { return index % reservationsPerHop }

// findGap returns when work of this duration that is ready at readyAt would start on one resource, in a gap between
// reservations or behind them all, so that it delays none of them. Work runs first-in first-out, so it cannot pass over
// a gap that is too small: to come into a later gap, it must be ready later. requiredDelay is how much later it must be
// ready, and its batch be dispatched, to have the returned start; 0 if the first gap is large enough.
//
// Of work that is ready at the same instant, the one that was dispatched first runs first. There is one exception. With
// isReadyNow the work belongs to a batch that is dispatched in this instant and is on its device at once: it passes
// work that is expected at the same instant but has not come yet.
func (t *reservationLists) findGap(resource int32, readyAt, duration time.Duration, isReadyNow bool) (start, requiredDelay time.Duration) {
	// Behind everything that is reserved. For a lost device lastEnd is farFuture.
	summary := &t.summaries[resource]
	if summary.first < 0 || readyAt > summary.lastReady || readyAt == summary.lastReady && !isReadyNow {
		return max(readyAt, summary.lastEnd), 0
	}
	if t.isLost[resource] {
		return farFuture, 0
	}

	// Otherwise try the gap behind the work that first-in first-out puts in front, then the next gaps.
	predecessor := t.predecessorFor(resource, readyAt, isReadyNow)
	for {
		freeAt, successor := t.gapAfter(resource, predecessor)
		start = max(readyAt+requiredDelay, freeAt)
		if successor < 0 || start+duration <= t.reservations[successor].start {
			return start, requiredDelay
		}

		// The gap is too small. The work must be ready after the work behind the gap, at least a nanosecond later than it is,
		// and then stands behind all that is ready by then.
		requiredDelay = max(requiredDelay, t.reservations[successor].readyAt-readyAt, 1)
		predecessor = successor
		for next := t.reservations[successor].next; next >= 0 && t.reservations[next].readyAt <= readyAt+requiredDelay; next = t.reservations[next].next {
			predecessor = next
		}
	}
}

// fifoTransferStart returns when a transfer of this duration that is ready at readyAt starts if every link works
// first-in first-out. It holds two resources at once, an uplink and a downlink; either may be -1. moves reports whether
// it lasts into reservations behind it, which then have to move. Unlike findTransferGap it does not look for a gap that
// is large enough.
func (t *reservationLists) fifoTransferStart(uplink, downlink int32, readyAt, duration time.Duration) (start time.Duration, moves bool) {
	start, limit := readyAt, farFuture
	for _, resource := range [2]int32{uplink, downlink} {
		if resource >= 0 {
			// The gap lasts from freeAt to the start of the successor.
			freeAt, successor := t.gapAfter(resource, t.predecessorFor(resource, readyAt, false))
			start, limit = max(start, freeAt), min(limit, t.startOf(successor))
		}
	}
	return start, start+duration > limit
}

// predecessorFor returns the index of the reservation behind which work that is ready at readyAt would stand on a
// resource, first-in first-out. If the work would be first, it returns -1.
//
// It passes work that is ready later, but nothing that has actually started (startIsActual), because that cannot be
// stopped. Of work that is ready at the same instant, it stays behind. Only work that is at its resource in this
// instant (isReadyNow: a batch that is dispatched now) passes work that is expected at the same instant but has not
// actually come (readyIsActual).
func (t *reservationLists) predecessorFor(resource int32, readyAt time.Duration, isReadyNow bool) int32 {
	index := t.summaries[resource].last
	for index >= 0 {
		entry := &t.reservations[index]
		if entry.startIsActual || entry.readyAt < readyAt || entry.readyAt == readyAt && (!isReadyNow || entry.readyIsActual) {
			break
		}
		index = entry.prev
	}
	return index
}

// gapAfter returns when the gap in a resource's list behind a reservation begins, and the index of the reservation
// that ends the gap, or -1 if the gap is open. If predecessor is negative, the gap is the one at the head of the
// list.
func (t *reservationLists) gapAfter(resource, predecessor int32) (freeAt time.Duration, successor int32) {
	if predecessor < 0 {
		return t.freeFrom[resource], t.summaries[resource].first
	}
	return t.reservations[predecessor].end(), t.reservations[predecessor].next
}

// findTransferGap returns when a transfer of this duration that is ready at readyAt would start on two resources at
// once, an uplink and a downlink (either may be -1), so that it delays no other work. It needs a gap in both lists.
// Links work first-in first-out, so it cannot pass over a gap that is too small: to come into a later gap, it must be
// ready later. requiredDelay is how much later; 0 if the first gap is large enough.
func (t *reservationLists) findTransferGap(uplink, downlink int32, readyAt, duration time.Duration) (start, requiredDelay time.Duration) {
	const isReadyNow = false // a transfer comes after a run, so it does not pass work that is due at the same instant
	switch {
	case uplink < 0 && downlink < 0:
		return readyAt, 0
	case uplink < 0:
		return t.findGap(downlink, readyAt, duration, isReadyNow)
	case downlink < 0:
		return t.findGap(uplink, readyAt, duration, isReadyNow)
	}
	for {
		// Try the gaps of both links at the same time: each lasts from a free time to the start of the next reservation.
		freeUp, nextUp := t.gapAfter(uplink, t.predecessorFor(uplink, readyAt+requiredDelay, isReadyNow))
		freeDown, nextDown := t.gapAfter(downlink, t.predecessorFor(downlink, readyAt+requiredDelay, isReadyNow))
		start = max(readyAt+requiredDelay, freeUp, freeDown)
		limitUp, limitDown := t.startOf(nextUp), t.startOf(nextDown)
		if start+duration <= min(limitUp, limitDown) {
			return start, requiredDelay
		}

		// The transfer would last into the next reservation of a link, and delay it. To stand behind that work, it must be
		// ready when that is: of work that is ready at the same instant, what was reserved earlier goes first.
		nextReady := farFuture
		if start+duration > limitUp {
			nextReady = min(nextReady, t.reservations[nextUp].readyAt)
		}
		if start+duration > limitDown {
			nextReady = min(nextReady, t.reservations[nextDown].readyAt)
		}
		requiredDelay = nextReady - readyAt
	}
}

// startOf returns the start of the reservation at an index. If the index is negative (no reservation), it returns farFuture.
func (t *reservationLists) startOf(index int32) time.Duration {
	if index < 0 {
		return farFuture
	}
	return t.reservations[index].start
}

// insertReservation links the reservation at an index into the list of its resource, behind all work that is ready no
// later: where first-in first-out puts it.
func (t *reservationLists) insertReservation(index int32) {
	entry := &t.reservations[index]
	t.linkAfter(index, t.predecessorFor(entry.resource, entry.readyAt, false))
}

// linkAfter links the reservation at an index into the list of its resource, behind the one at predecessor or, if
// that is negative, as the first. If it is then the last, the summary of the resource (end and ready time of its last
// work) is updated.
func (t *reservationLists) linkAfter(index, predecessor int32) {
	entry := &t.reservations[index]
	summary := &t.summaries[entry.resource]
	t.reservationCounts[entry.resource]++
	entry.prev = predecessor

	// Link it behind the predecessor.
	if predecessor < 0 {
		entry.next = summary.first
		summary.first = index
	} else {
		entry.next = t.reservations[predecessor].next
		t.reservations[predecessor].next = index
	}

	// Link it before the reservation that follows, or make it the last.
	if entry.next < 0 {
		summary.last = index
		t.updateSummary(entry.resource)
	} else {
		t.reservations[entry.next].prev = index
	}
}

// unlink removes the reservation at an index from the list of its resource. If it was the last, the summary of the
// resource (end and ready time of its last work) is updated.
func (t *reservationLists) unlink(index int32) {
	entry := &t.reservations[index]
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

// updateSummary computes the summary of a resource anew from its last reservation: when that ends and when its work
// is ready. Without reservations the resource is free from freeFrom on. A lost device is never free.
func (t *reservationLists) updateSummary(resource int32) {
	summary := &t.summaries[resource]
	switch {
	case t.isLost[resource]:
		summary.lastEnd, summary.lastReady = farFuture, 0
	case summary.last < 0:
		summary.lastEnd, summary.lastReady = t.freeFrom[resource], 0
	default:
		summary.lastEnd, summary.lastReady = t.reservations[summary.last].end(), t.reservations[summary.last].readyAt
	}
}

// predecessorEnd returns when the resource of the reservation at an index is free for it: at the end of the work that
// runs before it or, for the first one, at freeFrom. If the reservation uses no resource, it returns 0.
func (t *reservationLists) predecessorEnd(index int32) time.Duration {
	entry := &t.reservations[index]
	if entry.resource < 0 {
		return 0
	}
	if entry.prev < 0 {
		return t.freeFrom[entry.resource]
	}
	return t.reservations[entry.prev].end()
}
