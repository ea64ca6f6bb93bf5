package reserve

import (
	"time"

	"inferplan/policy"
)

// reservedPath is the result of a search: a path through a pipeline and its reservations.
type reservedPath struct {
	pipeline          int32
	batch             int32
	finish            time.Duration // completion; farFuture if a stage has no device left
	waitTime          time.Duration // time that it waits for devices and links: finish - now - work
	holdTime          time.Duration // by how much the dispatch has to be delayed, see the package comment
	movesReservations bool          // it moves reservations, see push.go
	hops              []policy.Hop
}

// deviceCandidate is a device for one stage, with the reservations that it needs.
type deviceCandidate struct {
	device             int32
	uplink, downlink   int32 // resources of the transfer, or -1
	xferStart, xferEnd time.Duration
	start, finish      time.Duration
	sortTime           time.Duration // the choice minimises it: the finish, or the start of the next transfer if that is later
	holdTime           time.Duration
	usesTransfer       bool
	movesReservations  bool
}

// findPath finds a path of least completion for a batch through a pipeline (Algorithm 2): stage by stage, the
// device that completes the stage first. If the stage sends to another one, a completion before the node's uplink
// takes the transfer counts as one at that moment, which spreads batches over the NICs of nodes with several
// devices. Ties go to the first device.
func (f *pathFinder) findPath(pipeline, batch int32, now time.Duration, result *reservedPath) {
	pl := &f.tables.Pipelines[pipeline]
	f.pathsSought++
	result.pipeline, result.batch, result.holdTime, result.movesReservations = pipeline, batch, 0, false
	result.hops = result.hops[:pl.NumStages]
	readyAt, work, lastDevice := now, time.Duration(0), int32(-1)
	var bestDevice deviceCandidate
	for h := int32(0); h < pl.NumStages; h++ {
		// Look up the times of the stage, of the transfer into it, and of the next transfer.
		stage := pl.FirstStage + h
		st := &f.tables.Stages[stage]
		infer := st.Infer[batch-1]
		var xfer time.Duration
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		var nextTransfer time.Duration // transfer that the uplink carries next
		if h+1 < pl.NumStages && f.tables.Stages[stage+1].Xfer != nil {
			nextTransfer = f.tables.Stages[stage+1].Xfer[batch-1]
		}

		// Choose the device.
		if xfer > 0 {
			f.chooseDeviceAfterTransfer(st, lastDevice, readyAt, infer, xfer, nextTransfer, &bestDevice)
		} else {
			f.chooseDevice(st, now, readyAt, infer, nextTransfer, &bestDevice)
		}
		if bestDevice.finish >= farFuture {
			result.finish, result.waitTime = farFuture, farFuture
			return
		}

		// Add it to the path.
		if bestDevice.usesTransfer {
			work += xfer
		}
		work += infer
		result.holdTime, result.movesReservations = max(result.holdTime, bestDevice.holdTime), result.movesReservations || bestDevice.movesReservations
		result.hops[h] = policy.Hop{
			Stage: stage, Device: bestDevice.device, Uplink: f.linkOfResource(bestDevice.uplink), Downlink: f.linkOfResource(bestDevice.downlink),
			XferStart: bestDevice.xferStart, XferEnd: bestDevice.xferEnd, Start: bestDevice.start, End: bestDevice.finish,
		}
		readyAt, lastDevice = bestDevice.finish, bestDevice.device
	}
	result.finish = readyAt
	result.waitTime = readyAt - now - work
}

// chooseDevice chooses the device of a stage that a batch reaches at readyAt without a transfer: the one that ends
// the run earliest or, if another stage follows, whose uplink takes the next transfer earliest. holdTime is how
// much later the batch must go so that it delays no other work. If all devices are lost, finish is farFuture.
func (f *pathFinder) chooseDevice(st *policy.Stage, now, readyAt, infer, nextTransfer time.Duration, bestDevice *deviceCandidate) {
	*bestDevice = deviceCandidate{sortTime: farFuture, finish: farFuture, uplink: -1, downlink: -1, xferStart: readyAt, xferEnd: readyAt}
	spans := f.lists.summaries
	for _, d := range f.tables.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		summary := &spans[d]
		if summary.lastEnd < now && summary.first >= 0 {
			f.timelines.extendOverrun(d, now)
		}

		// Find the start: behind everything, or in a gap.
		start, holdTime := max(readyAt, summary.lastEnd), time.Duration(0)
		if readyAt <= summary.lastReady {
			start, holdTime = f.lists.findSlot(d, readyAt, infer, readyAt == now)
		}
		if start+infer > bestDevice.sortTime {
			continue // it cannot be better, whatever its uplink
		}

		// Keep the device if it is better; none can be better than one that is free at once.
		finish := start + infer
		key := f.transferStart(d, finish, nextTransfer)
		if key < bestDevice.sortTime || key == bestDevice.sortTime && finish < bestDevice.finish {
			bestDevice.device, bestDevice.start, bestDevice.finish, bestDevice.sortTime, bestDevice.holdTime = d, start, finish, key, holdTime
			if key == readyAt+infer {
				break
			}
		}
	}
}

// transferSearch is the search for a device to which a batch's tensors are transferred.
type transferSearch struct {
	sourceNode                       int32 // node that they leave
	uplink                           int32
	uplinkTail, uplinkLastReady      time.Duration // summary of the uplink
	readyAt, inferTime, transferTime time.Duration
	nextTransfer                     time.Duration // transfer that the device's uplink carries next
}

// chooseDeviceAfterTransfer chooses the device of a later stage, to which the batch's tensors are transferred
// first. The batch is ready on sourceDevice at readyAt. Like chooseDevice it takes the device that ends earliest; a
// device that cannot be better is passed over without a look at its links.
func (f *pathFinder) chooseDeviceAfterTransfer(st *policy.Stage, sourceDevice int32, readyAt, infer, xfer, nextTransfer time.Duration, bestDevice *deviceCandidate) {
	search := transferSearch{sourceNode: f.tables.Devices[sourceDevice].Node, uplink: f.uplinks[sourceDevice], readyAt: readyAt, inferTime: infer, transferTime: xfer, nextTransfer: nextTransfer}
	bestDevice.sortTime, bestDevice.finish, bestDevice.holdTime, bestDevice.movesReservations = farFuture, farFuture, 0, false
	spans := f.lists.summaries
	if search.uplink >= 0 {
		search.uplinkTail, search.uplinkLastReady = spans[search.uplink].lastEnd, spans[search.uplink].lastReady
	}
	// No transfer ends before earliestArrival.
	earliestArrival := readyAt + xfer
	if readyAt >= search.uplinkLastReady {
		earliestArrival = max(readyAt, search.uplinkTail) + xfer
	}
	if f.hasSameNodePath {
		earliestArrival = readyAt
	}

	// Consider each device that could be better.
	bestSortTime := farFuture // sort time of the best device
	for _, d := range f.tables.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		summary := &spans[d]
		if earliestFinish := max(earliestArrival, summary.lastEnd) + infer; earliestFinish >= bestSortTime && earliestArrival >= summary.lastReady && (earliestFinish > bestSortTime || search.nextTransfer == 0) {
			continue // it cannot be better, whatever its links
		}
		if search.considerDevice(f, d, bestDevice) {
			return
		}
		bestSortTime = bestDevice.sortTime
	}
}

// considerDevice replaces the best device by this one if it is better. It reports whether none can be better. The
// choice is written field by field, and only if it changes: this is the innermost loop of a decision.
func (x *transferSearch) considerDevice(f *pathFinder, device int32, bestDevice *deviceCandidate) (cannotImprove bool) {
	spans := f.lists.summaries
	summary := &spans[device]
	uplink, downlink := x.uplink, f.downlinks[device]
	xferStart, xferEnd, holdTime, transfer, pushes := x.readyAt, x.readyAt, time.Duration(0), true, false

	// Find the times of the transfer: none within a node, a measured time on one host, else over the links.
	switch {
	case uplink >= 0 && f.hasSameNodePath && x.sourceNode == f.tables.Devices[device].Node:
		uplink, downlink, transfer = -1, -1, false
	case uplink < 0 && downlink < 0: // on one host: the plan's measured time
		xferEnd += x.transferTime
	default:
		xferStart = max(x.readyAt, x.uplinkTail)
		needsGap := x.readyAt < x.uplinkLastReady
		if downlink >= 0 {
			ds := &spans[downlink]
			xferStart = max(xferStart, ds.lastEnd)
			needsGap = needsGap || x.readyAt < ds.lastReady
		}
		if needsGap {
			xferStart, holdTime, pushes = f.placeTransfer(uplink, downlink, x.readyAt, x.transferTime)
		}
		xferEnd = xferStart + x.transferTime
	}

	// Find the start of the run on the device.
	start := max(xferEnd, summary.lastEnd)
	if xferEnd < summary.lastReady {
		var wait time.Duration
		start, wait = f.lists.findSlot(device, xferEnd, x.inferTime, false)
		holdTime = max(holdTime, wait)
	}
	finish := start + x.inferTime
	key := f.transferStart(device, finish, x.nextTransfer)

	// Keep the better device.
	if key > bestDevice.sortTime || key == bestDevice.sortTime && finish >= bestDevice.finish {
		return false
	}
	bestDevice.device, bestDevice.uplink, bestDevice.downlink, bestDevice.usesTransfer = device, uplink, downlink, transfer
	bestDevice.xferStart, bestDevice.xferEnd, bestDevice.start, bestDevice.finish = xferStart, xferEnd, start, finish
	bestDevice.sortTime, bestDevice.holdTime, bestDevice.movesReservations = key, holdTime, pushes
	return key == x.readyAt+x.inferTime || transfer && key == x.readyAt+x.transferTime+x.inferTime && !f.hasSameNodePath
}

// linkOfResource returns the index in Tables.Links of a link's resource.
func (f *pathFinder) linkOfResource(res int32) int32 {
	if res < 0 {
		return -1
	}
	return res - f.numDevices
}

// reservePath enters a path (a device for each stage, with its transfers) into the timelines as the reservations of
// a batch slot. If a later search found a device past its time, the timelines differ from the path; settling, which
// updates starts, brings it in line.
func (f *pathFinder) reservePath(batch int32, path *reservedPath, now time.Duration) {
	readyAt := now
	f.timelines.toSettle = f.timelines.toSettle[:0]
	for h := range path.hops {
		hop := &path.hops[h]
		n := f.lists.reservationOf(batch, int16(h), onDevice)

		// Reserve the transfer into the hop.
		if hop.Uplink >= 0 || hop.Downlink >= 0 {
			f.reserveLink(n+onUplink, hop.Uplink, readyAt, hop)
			f.reserveLink(n+onDownlink, hop.Downlink, readyAt, hop)
		} else {
			f.lists.reservations[n+onUplink].resource, f.lists.reservations[n+onDownlink].resource = -1, -1
			f.lists.linklessTransfers[n/nodesPerHop] = hop.XferEnd - hop.XferStart
		}

		// Reserve the device for the run.
		entry := &f.lists.reservations[n]
		*entry = reservation{readyAt: hop.XferEnd, start: hop.Start, duration: hop.End - hop.Start, prev: -1, next: -1, resource: hop.Device, readyIsActual: h == 0}
		f.lists.insertReservation(n)
		f.timelines.queueWithSuccessor(n)
		readyAt = hop.End
	}
	f.timelines.settleAll()

	// Clear the hops that the pipeline does not have.
	for h := int32(len(path.hops)); h < f.lists.hopsPerBatch; h++ {
		f.lists.reservations[f.lists.reservationOf(batch, int16(h), onDevice)].resource = -1
	}
}

// reserveLink reserves one end of a transfer, the uplink or the downlink, under the number n. If there is no link
// (-1), the entry stays empty.
func (f *pathFinder) reserveLink(n, link int32, readyAt time.Duration, hop *policy.Hop) {
	entry := &f.lists.reservations[n]
	*entry = reservation{readyAt: readyAt, start: hop.XferStart, duration: hop.XferEnd - hop.XferStart, prev: -1, next: -1, resource: -1}
	if link >= 0 {
		entry.resource = f.numDevices + link
		f.lists.insertReservation(n)
		f.timelines.queueWithSuccessor(n)
	}
}
