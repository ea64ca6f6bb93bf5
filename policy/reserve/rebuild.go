package reserve

// rebuildOrders orders the reservations of all resources anew, when their orders contradict each other. Work that
// has reached its resource stays in the order in which it came. Of the rest, whatever reaches its resource first is
// next there.
func (t *timelines) rebuildOrders() {
	for n := range t.lists.reservations {
		if entry := &t.lists.reservations[n]; entry.resource >= 0 && !entry.readyIsActual && !entry.startIsActual {
			t.lists.unlink(int32(n))
		}
	}

	// Settle the reservations that have arrived.
	t.toSettle = t.toSettle[:0]
	for res := range t.lists.summaries {
		for n := t.lists.summaries[res].first; n >= 0; n = t.lists.reservations[n].next {
			t.toSettle = append(t.toSettle, n)
		}
	}
	for i := 0; i < len(t.toSettle) && i <= t.maxSettleSteps(); i++ {
		t.settleStart(t.toSettle[i])
	}

	// For each batch, find its first reservation that has no place yet.
	nextOfBatch := t.toSettle[:0]
	for firstNode := int32(0); firstNode < int32(len(t.lists.reservations)); firstNode += t.lists.nodesPerBatch {
		n := t.firstReservationFrom(firstNode)
		if n >= 0 && t.hasArrived(n) {
			n = t.readyNext(n)
		}
		if n >= 0 {
			nextOfBatch = append(nextOfBatch, n)
		}
	}

	// Repeatedly place the one that is ready first, and advance its batch.
	for len(nextOfBatch) > 0 {
		earliest := 0
		for i := range nextOfBatch {
			if t.lists.reservations[nextOfBatch[i]].readyAt < t.lists.reservations[nextOfBatch[earliest]].readyAt {
				earliest = i
			}
		}
		n := nextOfBatch[earliest]
		t.appendReservation(n)
		if nextOfBatch[earliest] = t.readyNext(n); nextOfBatch[earliest] < 0 {
			nextOfBatch = append(nextOfBatch[:earliest], nextOfBatch[earliest+1:]...)
		}
	}
	t.toSettle = nextOfBatch
}

// hasArrived reports whether the work of a reservation has reached its resource.
func (t *timelines) hasArrived(n int32) bool {
	entry := &t.lists.reservations[n]
	return entry.readyIsActual || entry.startIsActual || n%t.lists.nodesPerBatch%nodesPerHop == onUplink && t.lists.reservations[n+onDownlink-onUplink].readyIsActual // a transfer may hold only one of its links
}

// firstReservationFrom returns the first reservation of a batch from the hop of reservation n on: a transfer, by
// the index of its uplink's reservation, or a run. If there is none, it returns -1.
func (t *timelines) firstReservationFrom(n int32) int32 {
	for batchEnd := n - n%t.lists.nodesPerBatch + t.lists.nodesPerBatch; n < batchEnd; n += nodesPerHop {
		if t.lists.reservations[n].resource < 0 {
			continue
		}
		if t.lists.reservations[n+onUplink].resource >= 0 || t.lists.reservations[n+onDownlink].resource >= 0 {
			return n + onUplink
		}
		return n
	}
	return -1
}

// appendReservation puts a reservation (the use of a resource by one batch) behind all others of its resource, and
// sets its start. A transfer goes behind the others on both of its links and starts on both at once.
func (t *timelines) appendReservation(n int32) {
	if n%t.lists.nodesPerBatch%nodesPerHop == onDevice {
		entry := &t.lists.reservations[n]
		t.lists.linkAfter(n, t.lists.summaries[entry.resource].last)
		entry.start = max(entry.readyAt, t.lists.predecessorEnd(n))
		t.lists.updateSummary(entry.resource)
		return
	}

	// A transfer stands behind the others on both links.
	uplinkPart, downlinkPart := &t.lists.reservations[n], &t.lists.reservations[n+onDownlink-onUplink]
	for _, k := range [2]int32{n, n + onDownlink - onUplink} {
		if res := t.lists.reservations[k].resource; res >= 0 {
			t.lists.linkAfter(k, t.lists.summaries[res].last)
		}
	}
	start := max(uplinkPart.readyAt, t.lists.predecessorEnd(n), t.lists.predecessorEnd(n+onDownlink-onUplink))
	uplinkPart.start, downlinkPart.start = start, start
	t.lists.updateIfLast(n)
	t.lists.updateIfLast(n + onDownlink - onUplink)
}

// readyNext sets when the work behind a placed reservation of a batch is ready, and returns its reservation: the
// run after a transfer, or the next hop's transfer (by its uplink's number) or run. If there is none, it returns
// -1.
func (t *timelines) readyNext(n int32) int32 {
	end := t.lists.reservations[n].end()
	if n%t.lists.nodesPerBatch%nodesPerHop == onUplink {
		t.lists.reservations[n-onUplink].readyAt = end
		return n - onUplink
	}
	nextHop := n + nodesPerHop
	if nextHop%t.lists.nodesPerBatch == 0 || t.lists.reservations[nextHop].resource < 0 {
		return -1
	}
	if t.lists.reservations[nextHop+onUplink].resource < 0 && t.lists.reservations[nextHop+onDownlink].resource < 0 {
		t.lists.reservations[nextHop].readyAt = end + t.lists.linklessTransfers[nextHop/nodesPerHop]
		return nextHop
	}
	t.lists.reservations[nextHop+onUplink].readyAt, t.lists.reservations[nextHop+onDownlink].readyAt = end, end
	return nextHop + onUplink
}
