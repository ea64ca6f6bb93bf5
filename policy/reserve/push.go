package reserve

import (
	"time"

	"inferplan/policy/underway"
)

// placeTransfer returns where a transfer of length dur would run that is ready at readyAt. With keepReservations it
// waits for a gap in which it delays nothing (holdTime). Otherwise it goes where first-in first-out puts it, and
// pushes reports whether it moves reservations behind it.
func (f *pathFinder) placeTransfer(uplink, downlink int32, readyAt, dur time.Duration) (start, holdTime time.Duration, pushes bool) {
	if f.keepReservations {
		start, holdTime = f.lists.findTransferSlot(uplink, downlink, readyAt, dur)
		return start, holdTime, false
	}
	start, pushes = f.lists.fifoTransferStart(uplink, downlink, readyAt, dur)
	return start, 0, pushes
}

// reserveChecked reserves a path and returns the slot of its batch, which the next dispatch takes. If the path
// would delay other batches beyond the ends that they may have, or itself beyond limit, it undoes that and returns
// -1.
func (p *Policy) reserveChecked(path *reservedPath, limit, now time.Duration) int32 {
	if !path.movesReservations {
		return p.reserveTrial(path, now)
	}

	// Reserve it, and record the reservations that move.
	p.timelines.recordMoves, p.timelines.wasRebuilt, p.timelines.movedReservations = true, false, p.timelines.movedReservations[:0]
	slot := p.reserveTrial(path, now)
	p.timelines.recordMoves = false

	// Undo it if something moves too far.
	lastReservation := p.lists.reservationOf(slot, int16(len(path.hops)-1), onDevice)
	if p.timelines.wasRebuilt || p.lists.reservations[lastReservation].end() > limit || !movesAreHarmless(p.timelines, &p.batches) {
		p.releaseTrial(slot)
		if p.timelines.wasRebuilt {
			p.timelines.rebuildOrders() // the orders were rebuilt with the path in them
		}
		return -1
	}

	// Update the path to the times that it has now.
	for h := range path.hops {
		hop, n := &path.hops[h], p.lists.reservationOf(slot, int16(h), onDevice)
		transferTime := hop.XferEnd - hop.XferStart
		hop.XferEnd, hop.Start, hop.End = p.lists.reservations[n].readyAt, p.lists.reservations[n].start, p.lists.reservations[n].end()
		hop.XferStart = hop.XferEnd - transferTime
	}
	return slot
}

// movesAreHarmless reports whether all reservations that a trial has moved are still allowed: each batch ends by
// its LatestEnd, and work reaches each resource in the order of its list, because it will run in that order.
func movesAreHarmless(t *timelines, batches *underway.BatchTable) bool {
	for _, n := range t.movedReservations {
		entry := &t.lists.reservations[n]
		if entry.resource < 0 {
			continue
		}
		if entry.next >= 0 && !entry.readyIsActual && entry.readyAt >= t.lists.reservations[entry.next].readyAt {
			return false
		}
		b := batches.BatchAt(n / t.lists.nodesPerBatch)
		if position := n % t.lists.nodesPerBatch; b.IsLive && position%nodesPerHop == onDevice && position/nodesPerHop == int32(b.Hops)-1 && entry.end() > b.LatestEnd {
			return false
		}
	}
	return true
}

// transferStart returns when a batch that ends on a device at a time may leave it: when its node's uplink takes its
// transfer, which lasts xfer. Without a transfer, or without an uplink, it is the end itself.
func (f *pathFinder) transferStart(device int32, end, xfer time.Duration) time.Duration {
	link := f.uplinks[device]
	if xfer == 0 || link < 0 {
		return end
	}
	summary := &f.lists.summaries[link]
	if end >= summary.lastReady {
		return max(end, summary.lastEnd)
	}
	start, _, _ := f.placeTransfer(link, -1, end, xfer)
	return start
}
