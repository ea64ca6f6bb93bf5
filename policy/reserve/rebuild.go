package reserve

// rebuildOrders orders the reservations of all resources anew. It is called by settleAll when the orders of the lists
// contradict each other, and by tryReservePath to undo a trial in which that happened. Work that has actually reached
// its resource (readyIsActual), or started there (startIsActual), stays in the order in which it came. Of the rest,
// whatever is ready first is next on its resource.
func (t *timelines) rebuildOrders() {
	// Remove the reservations whose work has not reached its resource.
	for index := range t.lists.reservations {
		if entry := &t.lists.reservations[index]; entry.resource >= 0 && !entry.readyIsActual && !entry.startIsActual {
			t.lists.unlink(int32(index))
		}
	}

	// Settle the reservations whose work has arrived, the only ones still in the lists: update their starts to the work
	// before them. settleStart adds to toSettle what depends on a changed start, so the number of steps is bounded.
	t.toSettle = t.toSettle[:0]
	for resource := range t.lists.summaries {
		for index := t.lists.summaries[resource].first; index >= 0; index = t.lists.reservations[index].next {
			t.toSettle = append(t.toSettle, index)
		}
	}
	for i := 0; i < len(t.toSettle) && i <= t.maxSettleSteps(); i++ {
		t.settleStart(t.toSettle[i])
	}

	// For each batch slot, find its first reservation that has no place in a list yet. The reservations before it, whose
	// work has arrived, have one. toSettle is not needed any more, so its memory serves for the list of these.
	nextReservations := t.toSettle[:0]
	for firstOfSlot := int32(0); firstOfSlot < int32(len(t.lists.reservations)); firstOfSlot += t.lists.reservationsPerBatch {
		index := t.firstReservationFrom(firstOfSlot)
		if index >= 0 && t.hasArrived(index) {
			index = t.advanceBatch(index)
		}
		if index >= 0 {
			nextReservations = append(nextReservations, index)
		}
	}

	// Repeatedly place the one that is ready first, and replace it by the next reservation of its batch, until all are
	// placed.
	for len(nextReservations) > 0 {
		earliest := 0
		for i := range nextReservations {
			if t.lists.reservations[nextReservations[i]].readyAt < t.lists.reservations[nextReservations[earliest]].readyAt {
				earliest = i
			}
		}
		index := nextReservations[earliest]
		t.appendReservation(index)
		nextReservations[earliest] = t.advanceBatch(index)
		if nextReservations[earliest] < 0 {
			nextReservations = append(nextReservations[:earliest], nextReservations[earliest+1:]...)
		}
	}
	t.toSettle = nextReservations // empty, with memory for later
}

// hasArrived reports whether the work of the reservation at an index has reached its resource. The reservation is that
// of a device or, for a transfer, of its uplink.
func (t *timelines) hasArrived(index int32) bool {
	entry := &t.lists.reservations[index]

	// A transfer may hold only one of its links, so either one says that it has arrived.
	return entry.readyIsActual || entry.startIsActual || partOf(index) == onUplink && t.lists.reservations[index+onDownlink-onUplink].readyIsActual
}

// firstReservationFrom returns the index of the first reservation that a batch still has, from one of its hops on;
// `index` is that of the hop's reservation on its device. A batch has reservationsPerHop reservations for each hop, one
// after the other: on the device, the uplink and the downlink. A hop that is over, or that the batch does not have, has
// no device (resource < 0). If the transfer into the hop is still to come on either link, it returns the index of the
// uplink's reservation, which stands for both; otherwise it returns that of the run on the device. If the batch has no
// reservation left, it returns -1.
func (t *timelines) firstReservationFrom(index int32) int32 {
	firstOfBatch := index - index%t.lists.reservationsPerBatch
	for ; index < firstOfBatch+t.lists.reservationsPerBatch; index += reservationsPerHop {
		if t.lists.reservations[index].resource < 0 {
			continue
		}
		if t.lists.reservations[index+onUplink].resource >= 0 || t.lists.reservations[index+onDownlink].resource >= 0 {
			return index + onUplink
		}
		return index
	}
	return -1
}

// appendReservation puts the reservation at an index behind all others of its resource, sets its start, and updates the
// summary of the resource (end and ready time of its last work). A transfer, given by the index of its uplink's
// reservation, which that of its downlink follows, goes behind the others on both of its links and starts on both at
// once.
func (t *timelines) appendReservation(index int32) {
	if partOf(index) == onDevice {
		entry := &t.lists.reservations[index]
		t.lists.linkAfter(index, t.lists.summaries[entry.resource].last)
		entry.start = max(entry.readyAt, t.lists.predecessorEnd(index))
		t.lists.updateSummary(entry.resource)
		return
	}

	// A transfer stands behind the others on both links. One of the links may be missing (resource < 0): then that part is
	// in no list, and has no summary to update. Both parts are ready at the same time.
	uplinkIndex, downlinkIndex := index, index+onDownlink-onUplink
	uplinkPart, downlinkPart := &t.lists.reservations[uplinkIndex], &t.lists.reservations[downlinkIndex]
	for _, linkIndex := range [2]int32{uplinkIndex, downlinkIndex} {
		if resource := t.lists.reservations[linkIndex].resource; resource >= 0 {
			t.lists.linkAfter(linkIndex, t.lists.summaries[resource].last)
		}
	}
	start := max(uplinkPart.readyAt, t.lists.predecessorEnd(uplinkIndex), t.lists.predecessorEnd(downlinkIndex))
	uplinkPart.start, downlinkPart.start = start, start
	t.lists.updateIfLast(uplinkIndex)
	t.lists.updateIfLast(downlinkIndex)
}

// advanceBatch is called when a reservation of a batch has its place and its times. It sets when the next work of the
// batch is ready, and returns the index of that work's reservation: the run after a transfer, or the next hop's
// transfer (by the index of its uplink's reservation) or, without links, the next hop's run. If there is none, it
// returns -1. Each hop has three reservations in a row: on its device, its uplink and its downlink. `index` is that of
// a device or of an uplink.
func (t *timelines) advanceBatch(index int32) int32 {
	end := t.lists.reservations[index].end()

	// After a transfer, the run on the device of the same hop is ready.
	if partOf(index) == onUplink {
		deviceIndex := index - onUplink
		t.lists.reservations[deviceIndex].readyAt = end
		return deviceIndex
	}

	// After a run, the next hop is ready: at once if its transfer uses links, else after the fixed time of its transfer.
	nextHop := index + reservationsPerHop // the next hop's reservation on its device
	if nextHop%t.lists.reservationsPerBatch == 0 || t.lists.reservations[nextHop].resource < 0 {
		return -1 // the next reservation belongs to another batch, or the batch has no further hop
	}
	if t.lists.reservations[nextHop+onUplink].resource < 0 && t.lists.reservations[nextHop+onDownlink].resource < 0 {
		t.lists.reservations[nextHop].readyAt = end + t.lists.linklessTransfers[nextHop/reservationsPerHop]
		return nextHop
	}
	t.lists.reservations[nextHop+onUplink].readyAt, t.lists.reservations[nextHop+onDownlink].readyAt = end, end
	return nextHop + onUplink
}
