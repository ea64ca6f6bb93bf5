package reserve

import (
	"time"

	"inferplan/policy/underway"
)

// placeTransfer is called in the search for a path, for a transfer that is ready before other transfers that are reserved
// on its links: the resources uplink and downlink (either may be -1). It returns when the transfer starts, which is ready
// at readyAt and takes this duration. With forbidsMoves it waits for a gap in which it delays nothing; requiredDelay is
// how much later it must be ready for that. Otherwise it goes where first-in first-out puts it, and movesReservations
// reports whether reservations behind it have to move.
func (f *pathFinder) placeTransfer(uplink, downlink int32, readyAt, duration time.Duration) (start, requiredDelay time.Duration, movesReservations bool) {
	if f.forbidsMoves {
		start, requiredDelay = f.lists.findTransferGap(uplink, downlink, readyAt, duration)
		return start, requiredDelay, false
	}
	start, movesReservations = f.lists.fifoTransferStart(uplink, downlink, readyAt, duration)
	return start, 0, movesReservations
}

// tryReservePath reserves a path and returns the slot (number) of its batch, which the next batches.Dispatch takes. If
// the path moves reservations of other batches, the times may differ from those that the search found: the path gets
// the times that it then has. If other batches would then end later than their LatestEnd, or this one later than
// latestEnd, it undoes the reservation and returns -1.
func (p *Policy) tryReservePath(path *reservedPath, latestEnd, now time.Duration) int32 {
	// A path that moves nothing cannot make another batch late, and ends when the search found.
	if !path.movesReservations {
		return p.reserveTrial(path, now)
	}

	// Reserve it for a trial, and record the reservations that move in movedReservations.
	p.timelines.recordMoves, p.timelines.wasRebuilt = true, false
	p.timelines.movedReservations = p.timelines.movedReservations[:0]
	slot := p.reserveTrial(path, now)
	p.timelines.recordMoves = false

	// Undo it if something moves too far. Undo it also if the path made the orders of work on the resources contradict
	// each other (settleAll): the orders were then rebuilt with the path in them, and have to be rebuilt without it.
	lastReservation := p.lists.reservationOf(slot, int16(len(path.hops)-1), onDevice)
	if p.timelines.wasRebuilt || p.lists.reservations[lastReservation].end() > latestEnd || !movesAreAllowed(p.timelines, &p.batches) {
		p.releaseTrial(slot)
		if p.timelines.wasRebuilt {
			p.timelines.rebuildOrders()
		}
		return -1
	}

	// Update the path to the times that it has now. The run on a device is ready when the transfer to it ends.
	for hopIndex := range path.hops {
		hop := &path.hops[hopIndex]
		run := &p.lists.reservations[p.lists.reservationOf(slot, int16(hopIndex), onDevice)]
		transferTime := hop.XferEnd - hop.XferStart
		hop.XferEnd, hop.Start, hop.End = run.readyAt, run.start, run.end()
		hop.XferStart = hop.XferEnd - transferTime
	}
	return slot
}

// movesAreAllowed reports whether all reservations that a trial has moved (movedReservations) may be moved so: each batch
// still ends by its LatestEnd, and work reaches each resource in the order of its list, because it will run in the order
// in which it comes.
func movesAreAllowed(timelines *timelines, batches *underway.BatchTable) bool {
	for _, index := range timelines.movedReservations {
		entry := &timelines.lists.reservations[index]
		if entry.resource < 0 {
			continue
		}

		// Work must reach the resource before the work behind it does.
		if entry.next >= 0 && !entry.readyIsActual && entry.readyAt >= timelines.lists.reservations[entry.next].readyAt {
			return false
		}

		// The run on the last device of a batch must end by the batch's latest end. The slot of the trial is not live yet.
		batch := batches.BatchAt(index / timelines.lists.reservationsPerBatch)
		hop := index % timelines.lists.reservationsPerBatch / reservationsPerHop
		if batch.IsLive && partOf(index) == onDevice && hop == int32(batch.Hops)-1 && entry.end() > batch.LatestEnd {
			return false
		}
	}
	return true
}

// departureTime returns when a batch whose run on a device ends at `end` may leave it. By that the devices of a stage
// are compared. If the batch has a next transfer, which lasts transferTime, that is when the uplink of the device's
// node takes the transfer. Without a transfer (0), or without an uplink, it is `end`. The downlink is not known yet,
// since the next device is chosen later.
func (f *pathFinder) departureTime(device int32, end, transferTime time.Duration) time.Duration {
	link := f.uplinks[device]
	if transferTime == 0 || link < 0 {
		return end
	}

	// Links work first-in first-out: a transfer that is ready no earlier than the work of the last reservation (lastReady)
	// starts behind it. One that is ready earlier has a place among the others. Only its start counts here, and no
	// downlink (-1).
	summary := &f.lists.summaries[link]
	if end >= summary.lastReady {
		return max(end, summary.lastEnd)
	}
	start, _, _ := f.placeTransfer(link, -1, end, transferTime)
	return start
}
