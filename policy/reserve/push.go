package reserve

import (
	"time"

	"inferplan/policy/underway"
)

// placeTransfer returns where a transfer would run. With keepReservations it waits for a gap. Otherwise it goes
// where first-in first-out puts it, and pushes reports whether it moves reservations behind it.
func (f *finder) slotPair(up, down int32, ready, dur time.Duration) (start, hold time.Duration, pushes bool) {
	if f.gentle {
		start, hold = f.tl.slotPair(up, down, ready, dur)
		return start, hold, false
	}
	start, pushes = f.tl.joinPair(up, down, ready, dur)
	return start, 0, pushes
}

// reserveChecked reserves a path and returns the slot of its batch, which the next dispatch takes. If the path
// moves other batches beyond their limits, or itself beyond its own, it returns -1 and reserves nothing.
func (p *Policy) enter(pa *path, limit, now time.Duration) int32 {
	if !pa.pushes {
		return p.try(pa, now)
	}

	// Reserve it, and record the reservations that move.
	p.tl.watched, p.tl.rebuilt, p.tl.moved = true, false, p.tl.moved[:0]
	slot := p.try(pa, now)
	p.tl.watched = false

	// Undo it if something moves too far.
	last := p.tl.node(slot, int16(len(pa.hops)-1), run)
	if p.tl.rebuilt || p.tl.nodes[last].end() > limit || !bearable(&p.tl, &p.batches) {
		p.undo(slot)
		if p.tl.rebuilt {
			p.tl.rebuild() // the orders were rebuilt with the path in them
		}
		return -1
	}

	// Update the path to the times that it has now.
	for h := range pa.hops {
		hop, n := &pa.hops[h], p.tl.node(slot, int16(h), run)
		took := hop.XferEnd - hop.XferStart
		hop.XferEnd, hop.Start, hop.End = p.tl.nodes[n].ready, p.tl.nodes[n].start, p.tl.nodes[n].end()
		hop.XferStart = hop.XferEnd - took
	}
	return slot
}

// movesAreHarmless reports whether all reservations that moved still end in time, and reach their resources in the
// order of their lists.
func bearable(t *timelines, batches *underway.Table) bool {
	for _, n := range t.moved {
		nd := &t.nodes[n]
		if nd.res < 0 {
			continue
		}
		if nd.next >= 0 && !nd.arrived && nd.ready >= t.nodes[nd.next].ready {
			return false
		}
		b := batches.At(n / t.stride)
		if at := n % t.stride; b.Live && at%perHop == run && at/perHop == int32(b.Hops)-1 && nd.end() > b.Limit {
			return false
		}
	}
	return true
}

// transferStart returns when a batch that ends on a device at a time may leave it: when the node's uplink takes
// its transfer.
func (f *finder) leaves(device int32, end, xfer time.Duration) time.Duration {
	link := f.uplinks[device]
	if xfer == 0 || link < 0 {
		return end
	}
	sp := &f.tl.spans[link]
	if end >= sp.lastReady {
		return max(end, sp.tail)
	}
	start, _, _ := f.slotPair(link, -1, end, xfer)
	return start
}
