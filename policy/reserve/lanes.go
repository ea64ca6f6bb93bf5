package reserve

import "time"

// reservationLists has the reservations of all resources: devices first, then links. Each resource's reservations
// form a list in the order in which they will run.
type lanes struct {
	spans  []span          // by resource
	floors []time.Duration // by resource: end of work that is no longer listed; nothing starts earlier
	lost   []bool          // by resource
	depths []int32         // by resource: number of reservations
	nodes  []node          // by batch slot, hop and kind, see reservationOf
	delays []time.Duration // by batch and hop: time of a transfer into the hop that uses no link
	final  []bool          // by batch and hop: no batch has a later hop
	stride int32           // reservations of a batch slot
	hops   int32           // hops of a batch slot
}

// grow makes room for the reservations of this many batch slots.
func (t *lanes) grow(batches int32) {
	nodes := make([]node, batches*t.stride)
	for i := copy(nodes, t.nodes); i < len(nodes); i++ {
		nodes[i] = node{prev: -1, next: -1, res: -1}
	}
	t.nodes = nodes
	delays := make([]time.Duration, batches*t.hops)
	copy(delays, t.delays)
	t.delays = delays
	t.final = make([]bool, batches*t.hops)
	for last := t.hops - 1; last < int32(len(t.final)); last += t.hops {
		t.final[last] = true
	}
}

// reservationOf returns the index of a reservation of a batch slot: of a hop, and of a kind such as onDevice.
func (t *lanes) node(batch int32, hop int16, kind int32) int32 {
	return batch*t.stride + int32(hop)*perHop + kind
}

// findSlot returns when work of this duration that is ready at a time would start on one resource. If first-in
// first-out would put it in front of other work that it must not delay, holdTime is positive: the work has the start
// only if it is ready that much later.
//
// Of work that is ready at the same instant, the one that was dispatched first runs first. Only work that is ready
// at once (isReadyNow) passes work that is due at this instant and has not come yet.
func (t *lanes) slot(res int32, ready, dur time.Duration, now bool) (start, hold time.Duration) {
	// Behind everything that is reserved.
	sp := &t.spans[res]
	if sp.head < 0 || ready > sp.lastReady || ready == sp.lastReady && !now {
		return max(ready, sp.tail), 0
	}
	if t.lost[res] {
		return never, 0
	}

	// Otherwise try the gap behind the predecessor, then the next gap.
	after := t.before(res, ready, now)
	for {
		free, next := t.between(res, after)
		start = max(ready+hold, free)
		if next < 0 || start+dur <= t.nodes[next].start {
			return start, hold
		}

		// The gap is too small: come after the work behind it is ready.
		hold = max(hold, t.nodes[next].ready-ready, 1)
		for after = next; t.nodes[after].next >= 0 && t.nodes[t.nodes[after].next].ready <= ready+hold; {
			after = t.nodes[after].next
		}
	}
}

// fifoTransferStart returns where first-in first-out puts a transfer, which holds an uplink and a downlink (either
// may be -1). moves reports whether that moves the work behind it.
func (t *lanes) joinPair(upRes, downRes int32, ready, dur time.Duration) (start time.Duration, moves bool) {
	start, limit := ready, never
	for _, res := range [2]int32{upRes, downRes} {
		if res >= 0 {
			free, next := t.between(res, t.before(res, ready, false))
			start, limit = max(start, free), min(limit, t.startOf(next))
		}
	}
	return start, start+dur > limit
}

// predecessorFor returns the reservation behind which work that is ready at a time stands. If it would be first,
// it returns -1.
func (t *lanes) before(res int32, ready time.Duration, now bool) int32 {
	n := t.spans[res].last
	for n >= 0 {
		nd := &t.nodes[n]
		if nd.started || nd.ready < ready || nd.ready == ready && (!now || nd.arrived) {
			break
		}
		n = nd.prev
	}
	return n
}

// gapAfter returns when the gap behind a reservation begins, and the reservation behind the gap, or -1. If
// predecessor is negative, the gap is at the head of the list.
func (t *lanes) between(res, after int32) (free time.Duration, next int32) {
	if after < 0 {
		return t.floors[res], t.spans[res].head
	}
	return t.nodes[after].end(), t.nodes[after].next
}

// findTransferSlot is findSlot for a transfer, which holds an uplink and a downlink at once. Either may be -1.
func (t *lanes) slotPair(upRes, downRes int32, ready, dur time.Duration) (start, hold time.Duration) {
	switch {
	case upRes < 0 && downRes < 0:
		return ready, 0
	case upRes < 0:
		return t.slot(downRes, ready, dur, false)
	case downRes < 0:
		return t.slot(upRes, ready, dur, false)
	}
	for {
		// Try the gaps of both links at the same time.
		freeUp, nextUp := t.between(upRes, t.before(upRes, ready+hold, false))
		freeDown, nextDown := t.between(downRes, t.before(downRes, ready+hold, false))
		start = max(ready+hold, freeUp, freeDown)
		limitUp, limitDown := t.startOf(nextUp), t.startOf(nextDown)
		if start+dur <= min(limitUp, limitDown) {
			return start, hold
		}

		// Move behind the reservations that are in the way.
		next := never
		if start+dur > limitUp {
			next = min(next, t.nodes[nextUp].ready)
		}
		if start+dur > limitDown {
			next = min(next, t.nodes[nextDown].ready)
		}
		hold = next - ready
	}
}

// startOf returns the start of a reservation; farFuture if there is none.
func (t *lanes) startOf(n int32) time.Duration {
	if n < 0 {
		return never
	}
	return t.nodes[n].start
}

// insertReservation puts a reservation into its resource's list, behind all work that is ready no later.
func (t *lanes) insert(n int32) {
	nd := &t.nodes[n]
	t.linkAfter(n, t.before(nd.res, nd.ready, false))
}

// linkAfter links reservation n behind another one of its resource, or first if that is negative.
func (t *lanes) linkAfter(n, after int32) {
	nd := &t.nodes[n]
	sp := &t.spans[nd.res]
	t.depths[nd.res]++
	nd.prev = after
	if after < 0 {
		nd.next = sp.head
		sp.head = n
	} else {
		nd.next = t.nodes[after].next
		t.nodes[after].next = n
	}
	if nd.next < 0 {
		sp.last = n
		t.setTail(nd.res)
	} else {
		t.nodes[nd.next].prev = n
	}
}

// unlink removes a reservation from its list.
func (t *lanes) unlink(n int32) {
	nd := &t.nodes[n]
	sp := &t.spans[nd.res]
	t.depths[nd.res]--
	if nd.prev < 0 {
		sp.head = nd.next
	} else {
		t.nodes[nd.prev].next = nd.next
	}
	if nd.next < 0 {
		sp.last = nd.prev
		t.setTail(nd.res)
	} else {
		t.nodes[nd.next].prev = nd.prev
	}
	nd.prev, nd.next = -1, -1
}

// updateSummary updates the summary of a resource from its last reservation.
func (t *lanes) setTail(res int32) {
	sp := &t.spans[res]
	switch {
	case t.lost[res]:
		sp.tail, sp.lastReady = never, 0
	case sp.last < 0:
		sp.tail, sp.lastReady = t.floors[res], 0
	default:
		sp.tail, sp.lastReady = t.nodes[sp.last].end(), t.nodes[sp.last].ready
	}
}

// predecessorEnd returns when the work that runs before reservation n on its resource ends.
func (t *lanes) freeBefore(n int32) time.Duration {
	nd := &t.nodes[n]
	if nd.res < 0 {
		return 0
	}
	if nd.prev < 0 {
		return t.floors[nd.res]
	}
	return t.nodes[nd.prev].end()
}
