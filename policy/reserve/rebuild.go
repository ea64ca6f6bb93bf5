package reserve

// rebuildOrders orders all reservations anew. Work that has reached its resource stays in the order in which it
// came. Of the rest, whatever reaches its resource first is next there.
func (t *timelines) rebuild() {
	for n := range t.nodes {
		if nd := &t.nodes[n]; nd.res >= 0 && !nd.arrived && !nd.started {
			t.unlink(int32(n))
		}
	}

	// Settle the reservations that have arrived.
	t.work = t.work[:0]
	for res := range t.spans {
		for n := t.spans[res].head; n >= 0; n = t.nodes[n].next {
			t.work = append(t.work, n)
		}
	}
	for i := 0; i < len(t.work) && i <= t.mostSteps(); i++ {
		t.settle(t.work[i])
	}

	// For each batch, find its first reservation that has no place yet.
	next := t.work[:0]
	for first := int32(0); first < int32(len(t.nodes)); first += t.stride {
		n := t.after(first)
		if n >= 0 && t.here(n) {
			n = t.handOn(n)
		}
		if n >= 0 {
			next = append(next, n)
		}
	}

	// Repeatedly place the one that is ready first, and advance its batch.
	for len(next) > 0 {
		least := 0
		for i := range next {
			if t.nodes[next[i]].ready < t.nodes[next[least]].ready {
				least = i
			}
		}
		n := next[least]
		t.place(n)
		if next[least] = t.handOn(n); next[least] < 0 {
			next = append(next[:least], next[least+1:]...)
		}
	}
	t.work = next
}

// hasArrived reports whether the work of a reservation has reached its resource.
func (t *timelines) here(n int32) bool {
	nd := &t.nodes[n]
	return nd.arrived || nd.started || n%t.stride%perHop == up && t.nodes[n+down-up].arrived // a transfer may hold only one of its links
}

// firstReservationFrom returns the first reservation of a batch from the hop of reservation n on: a transfer, by
// the index of its uplink's reservation, or a run. If there is none, it returns -1.
func (t *timelines) after(n int32) int32 {
	for end := n - n%t.stride + t.stride; n < end; n += perHop {
		if t.nodes[n].res < 0 {
			continue
		}
		if t.nodes[n+up].res >= 0 || t.nodes[n+down].res >= 0 {
			return n + up
		}
		return n
	}
	return -1
}

// appendReservation puts a reservation behind all others of its resources.
func (t *timelines) place(n int32) {
	if n%t.stride%perHop == run {
		nd := &t.nodes[n]
		t.linkAfter(n, t.spans[nd.res].last)
		nd.start = max(nd.ready, t.freeBefore(n))
		t.setTail(nd.res)
		return
	}

	// A transfer stands behind the others on both links.
	u, d := &t.nodes[n], &t.nodes[n+down-up]
	for _, k := range [2]int32{n, n + down - up} {
		if res := t.nodes[k].res; res >= 0 {
			t.linkAfter(k, t.spans[res].last)
		}
	}
	start := max(u.ready, t.freeBefore(n), t.freeBefore(n+down-up))
	u.start, d.start = start, start
	t.touch(n)
	t.touch(n + down - up)
}

// readyNext sets when the reservation that follows a placed one in its batch is ready, and returns that
// reservation. If there is none, it returns -1.
func (t *timelines) handOn(n int32) int32 {
	end := t.nodes[n].end()
	if n%t.stride%perHop == up {
		t.nodes[n-up].ready = end
		return n - up
	}
	next := n + perHop
	if next%t.stride == 0 || t.nodes[next].res < 0 {
		return -1
	}
	if t.nodes[next+up].res < 0 && t.nodes[next+down].res < 0 {
		t.nodes[next].ready = end + t.delays[next/perHop]
		return next
	}
	t.nodes[next+up].ready, t.nodes[next+down].ready = end, end
	return next + up
}
