package reserve

import (
	"time"

	"inferplan/policy"
)

// reservedPath is the result of a search: a path through a pipeline for a batch of batchSize requests, with the
// reservations that it needs.
type reservedPath struct {
	pipeline          int32 // index in Tables.Pipelines
	batchSize         int32
	finish            time.Duration // when the batch ends at the last stage; farFuture if a stage has no device left
	waitTime          time.Duration // time that it waits for devices and links: finish - now - work
	requiredDelay     time.Duration // by how much the dispatch has to be delayed, see the package comment
	movesReservations bool          // reservations of other batches would have to move (push.go)
	hops              []policy.Hop  // by stage: device, links and times
}

// deviceCandidate is a device for one stage of a path, with the times of the reservations that it needs.
type deviceCandidate struct {
	device             int32
	uplink, downlink   int32 // resources of the transfer, or -1
	xferStart, xferEnd time.Duration
	start, finish      time.Duration
	departure          time.Duration // when the batch can leave the device, which the choice minimises: the finish, or the start of the next transfer if that is later
	requiredDelay      time.Duration // how much later the batch must be dispatched to delay no other work
	usesTransfer       bool
	movesReservations  bool
}

// findPath writes into result a path on which a batch of batchSize requests that is dispatched now leaves the pipeline
// earliest (PPipe, appendix A.3, Algorithm 2): stage by stage, the device that the batch can leave first. That is when
// its run ends there or, if the stage sends to another one, when the uplink of the device's node can take the transfer,
// if that is later; so batches spread over the NICs of nodes with several devices. Ties go to the first device. Nothing
// is reserved. If a stage has no device left, result.finish and result.waitTime are farFuture.
func (f *pathFinder) findPath(pipelineIndex, batchSize int32, now time.Duration, result *reservedPath) {
	pipeline := &f.tables.Pipelines[pipelineIndex]
	f.pathsSought++
	result.pipeline, result.batchSize, result.requiredDelay, result.movesReservations = pipelineIndex, batchSize, 0, false
	result.hops = result.hops[:pipeline.NumStages]
	readyAt, lastDevice := now, int32(-1) // when the batch leaves the stage before, and on which device that ran
	workTime := time.Duration(0)          // of the runs and transfers so far
	var candidate deviceCandidate
	for hop := int32(0); hop < pipeline.NumStages; hop++ {
		// Look up the times of the stage, of the transfer into it, and of the next transfer.
		stageIndex := pipeline.FirstStage + hop
		stage := &f.tables.Stages[stageIndex]
		inferTime := stage.Infer[batchSize-1]
		var transferTime time.Duration
		if stage.Xfer != nil {
			transferTime = stage.Xfer[batchSize-1]
		}
		var nextTransfer time.Duration // time of the transfer out of the stage
		if hop+1 < pipeline.NumStages && f.tables.Stages[stageIndex+1].Xfer != nil {
			nextTransfer = f.tables.Stages[stageIndex+1].Xfer[batchSize-1]
		}

		// Choose the device. Links matter only if tensors are transferred to it. Without a transfer the present time is
		// needed: a device whose reservations ended before now runs longer than reserved.
		if transferTime > 0 {
			f.chooseDeviceAfterTransfer(stage, lastDevice, readyAt, inferTime, transferTime, nextTransfer, &candidate)
		} else {
			f.chooseDevice(stage, now, readyAt, inferTime, nextTransfer, &candidate)
		}
		if candidate.finish >= farFuture {
			result.finish, result.waitTime = farFuture, farFuture
			return
		}

		// Add it to the path. If it has to be dispatched later for the sake of other work on one hop, the whole path is, and
		// if one hop moves reservations of other batches, the path does. A transfer within a node takes no time.
		if candidate.usesTransfer {
			workTime += transferTime
		}
		workTime += inferTime
		result.requiredDelay = max(result.requiredDelay, candidate.requiredDelay)
		result.movesReservations = result.movesReservations || candidate.movesReservations
		result.hops[hop] = policy.Hop{
			Stage: stageIndex, Device: candidate.device, Uplink: f.linkOfResource(candidate.uplink), Downlink: f.linkOfResource(candidate.downlink),
			XferStart: candidate.xferStart, XferEnd: candidate.xferEnd, Start: candidate.start, End: candidate.finish,
		}
		readyAt, lastDevice = candidate.finish, candidate.device
	}
	result.finish = readyAt
	result.waitTime = readyAt - now - workTime
}

// chooseDevice writes into best the device of a stage for a batch that reaches it at readyAt without a transfer: the
// one that ends the run of inferTime earliest or, if another stage follows, whose uplink takes the next transfer (of
// duration nextTransfer) earliest. best.requiredDelay is how much later the batch must go so that it delays no other work.
// If all devices are lost, best.finish is farFuture.
func (f *pathFinder) chooseDevice(stage *policy.Stage, now, readyAt, inferTime, nextTransfer time.Duration, best *deviceCandidate) {
	*best = deviceCandidate{departure: farFuture, finish: farFuture, uplink: -1, downlink: -1, xferStart: readyAt, xferEnd: readyAt}
	summaries := f.lists.summaries
	for _, device := range f.tables.StageDevices[stage.FirstDevice : stage.FirstDevice+stage.NumDevices] {
		summary := &summaries[device]

		// Correct a device with work that should have ended before now: it runs longer than reserved.
		if summary.lastEnd < now && summary.first >= 0 {
			f.timelines.extendOverrun(device, now)
		}

		// Find the start: behind everything, or in a gap if the batch gets there before the last reservation's work.
		start, requiredDelay := max(readyAt, summary.lastEnd), time.Duration(0)
		if readyAt <= summary.lastReady {
			start, requiredDelay = f.lists.findGap(device, readyAt, inferTime, readyAt == now)
		}
		if start+inferTime > best.departure {
			continue // it cannot be better, whatever its uplink
		}

		// Keep the device if the batch can leave it earlier, or ends there earlier and leaves at the same time. None can be
		// better than one that is free at once.
		finish := start + inferTime
		departure := f.departureTime(device, finish, nextTransfer)
		if departure < best.departure || departure == best.departure && finish < best.finish {
			best.device, best.start, best.finish, best.departure, best.requiredDelay = device, start, finish, departure, requiredDelay
			if departure == readyAt+inferTime {
				break
			}
		}
	}
}

// transferSearch is the search for the device of a stage to which a batch's tensors are transferred first.
type transferSearch struct {
	sourceNode                       int32         // node that the tensors leave
	uplink                           int32         // resource of that node's uplink, or -1
	uplinkLastEnd, uplinkLastReady   time.Duration // summary of the uplink
	readyAt, inferTime, transferTime time.Duration // when the tensors are ready; how long the run and the transfer last
	nextTransfer                     time.Duration // transfer that the device's uplink carries next
}

// chooseDeviceAfterTransfer writes into best the device of a later stage for a batch whose tensors are ready on
// sourceDevice at readyAt and are transferred first, in transferTime. Like chooseDevice it takes the device that the
// batch can leave earliest: when the run of inferTime ends there or, if another stage follows, when the device's uplink
// can take the next transfer (which lasts nextTransfer), if that is later. It also writes which links and times the
// batch would have, and what that asks of other work (requiredDelay, movesReservations). A device that cannot be better
// is passed over without a look at its links.
func (f *pathFinder) chooseDeviceAfterTransfer(stage *policy.Stage, sourceDevice int32, readyAt, inferTime, transferTime, nextTransfer time.Duration, best *deviceCandidate) {
	// Describe the transfer, and its uplink: when its last reservation ends (uplinkLastEnd), and when the work of that
	// reservation is ready (uplinkLastReady). Links work first-in first-out, so a transfer that is ready before then would
	// stand in front of that work.
	search := transferSearch{sourceNode: f.tables.Devices[sourceDevice].Node, uplink: f.uplinks[sourceDevice], readyAt: readyAt, inferTime: inferTime, transferTime: transferTime, nextTransfer: nextTransfer}
	best.departure, best.finish, best.requiredDelay, best.movesReservations = farFuture, farFuture, 0, false
	summaries := f.lists.summaries
	if search.uplink >= 0 {
		search.uplinkLastEnd, search.uplinkLastReady = summaries[search.uplink].lastEnd, summaries[search.uplink].lastReady
	}
	// No transfer ends before earliestArrival. A transfer that may stay within a node takes no time.
	earliestArrival := readyAt + transferTime
	if readyAt >= search.uplinkLastReady {
		earliestArrival = max(readyAt, search.uplinkLastEnd) + transferTime
	}
	if f.hasNodeLocalTransfers {
		earliestArrival = readyAt
	}

	// Consider each device that could be better. If the batch would stand behind all work of a device, it cannot end there
	// before earliestFinish, nor leave the device before it ends. So a device that ends the run after the batch could
	// leave the best one is no better, and the links need not be looked at. If there is no next transfer, the batch leaves
	// when it ends, so that an equal time is no better, either.
	bestDeparture := farFuture // when the batch can leave the best device
	for _, device := range f.tables.StageDevices[stage.FirstDevice : stage.FirstDevice+stage.NumDevices] {
		summary := &summaries[device]
		earliestFinish := max(earliestArrival, summary.lastEnd) + inferTime
		standsBehindAll := earliestArrival >= summary.lastReady
		isNoBetter := earliestFinish > bestDeparture || earliestFinish == bestDeparture && search.nextTransfer == 0
		if standsBehindAll && isNoBetter {
			continue // whatever its links
		}
		if cannotImprove := search.replaceIfBetter(f, device, best); cannotImprove {
			return
		}
		bestDeparture = best.departure
	}
}

// replaceIfBetter is called for each device of a stage in the search for a path. It computes when a batch that is
// transferred to the device would run there, and writes the times into best if the batch can leave the device earlier
// than it can leave best, or at the same time with an earlier finish. It can leave when its run ends (finish) or, if a
// transfer follows, when the device's uplink can take that (departure). It reports whether no other device can be
// better. The fields are written one by one, and only if the choice changes: this is the innermost loop of a decision.
func (search *transferSearch) replaceIfBetter(finder *pathFinder, device int32, best *deviceCandidate) (cannotImprove bool) {
	summaries := finder.lists.summaries
	summary := &summaries[device]
	uplink, downlink := search.uplink, finder.downlinks[device]
	xferStart, xferEnd, requiredDelay, usesTransfer, movesReservations := search.readyAt, search.readyAt, time.Duration(0), true, false

	// Find the times of the transfer: none within a node, a measured time on one host, else over the links. requiredDelay
	// is how much later the batch must be dispatched because it would otherwise delay work that is reserved already.
	// movesReservations says that reservations of other batches have to move instead. usesTransfer counts the transfer as
	// work of the path, not as a wait.
	switch {
	case uplink >= 0 && finder.hasNodeLocalTransfers && search.sourceNode == finder.tables.Devices[device].Node:
		uplink, downlink, usesTransfer = -1, -1, false
	case uplink < 0 && downlink < 0: // on one host: the plan's measured time
		xferEnd += search.transferTime
	default:
		// Links work first-in first-out. A transfer that is ready no earlier than the work of the last reservation
		// (lastReady) goes behind it, at its end (lastEnd). One that is ready earlier comes in front of it, and has to be
		// placed among the others of that link.
		xferStart = max(search.readyAt, search.uplinkLastEnd)
		needsGap := search.readyAt < search.uplinkLastReady
		if downlink >= 0 {
			downlinkSummary := &summaries[downlink]
			xferStart = max(xferStart, downlinkSummary.lastEnd)
			needsGap = needsGap || search.readyAt < downlinkSummary.lastReady
		}
		if needsGap {
			xferStart, requiredDelay, movesReservations = finder.placeTransfer(uplink, downlink, search.readyAt, search.transferTime)
		}
		xferEnd = xferStart + search.transferTime
	}

	// Find the start of the run on the device, in the same way: behind the last reservation, or in a gap.
	start := max(xferEnd, summary.lastEnd)
	if xferEnd < summary.lastReady {
		var wait time.Duration
		start, wait = finder.lists.findGap(device, xferEnd, search.inferTime, false)
		requiredDelay = max(requiredDelay, wait)
	}
	finish := start + search.inferTime
	departure := finder.departureTime(device, finish, search.nextTransfer)

	// Keep the better device.
	if departure > best.departure || departure == best.departure && finish >= best.finish {
		return false
	}
	best.device, best.uplink, best.downlink, best.usesTransfer = device, uplink, downlink, usesTransfer
	best.xferStart, best.xferEnd, best.start, best.finish = xferStart, xferEnd, start, finish
	best.departure, best.requiredDelay, best.movesReservations = departure, requiredDelay, movesReservations

	// No device can be better than one that runs the batch as soon as its tensors are ready. If every device needs a
	// transfer, none can be better than one that runs the batch as soon as a transfer without waiting brings them. If some
	// device may be on the node of the tensors, that could be better.
	runsAtOnce := departure == search.readyAt+search.inferTime
	runsAfterTransfer := departure == search.readyAt+search.transferTime+search.inferTime
	return runsAtOnce || usesTransfer && runsAfterTransfer && !finder.hasNodeLocalTransfers
}

// linkOfResource returns the index in Tables.Links of the link with this number among the resources (devices come
// first). If it is negative, it returns -1.
func (f *pathFinder) linkOfResource(resource int32) int32 {
	if resource < 0 {
		return -1
	}
	return resource - f.numDevices
}

// reservePath enters a path (a device for each stage, with times from now on) into the timelines as the reservations of
// a batch slot (the number of a batch): every device, and both ends of every transfer. It is called by reserveTrial.
// For each hop a slot has three reservations in a row, for the device, the uplink and the downlink; `index` is that of
// the device.
//
// The times of the path may be out of date: its search corrects a run that lasts longer than reserved (extendOverrun)
// and so moves reservations, perhaps after it has chosen the times of an earlier hop. settleAll gives all reservations
// the right times.
func (f *pathFinder) reservePath(batchSlot int32, path *reservedPath, now time.Duration) {
	readyAt := now
	f.timelines.toSettle = f.timelines.toSettle[:0] // settleAll below settles what is queued from here on
	for hopIndex := range path.hops {
		hop := &path.hops[hopIndex]
		index := f.lists.reservationOf(batchSlot, int16(hopIndex), onDevice)

		// Reserve the transfer into the hop.
		if hop.Uplink >= 0 || hop.Downlink >= 0 {
			f.reserveLink(index+onUplink, hop.Uplink, readyAt, hop)
			f.reserveLink(index+onDownlink, hop.Downlink, readyAt, hop)
		} else {
			// Without links there is nothing to reserve, but the time of the transfer counts.
			f.lists.reservations[index+onUplink].resource, f.lists.reservations[index+onDownlink].resource = -1, -1
			f.lists.linklessTransfers[index/reservationsPerHop] = hop.XferEnd - hop.XferStart
		}

		// Reserve the device for the run. The requests are at the first hop already, so that its work is actually ready. The
		// reservation and the one that it now precedes are queued to be settled.
		entry := &f.lists.reservations[index]
		*entry = reservation{readyAt: hop.XferEnd, start: hop.Start, duration: hop.End - hop.Start, prev: -1, next: -1, resource: hop.Device, readyIsActual: hopIndex == 0}
		f.lists.insertReservation(index)
		f.timelines.queueWithSuccessor(index)
		readyAt = hop.End
	}
	f.timelines.settleAll()

	// A slot has hops for the longest pipeline: clear those that this one does not have, which an earlier batch may have left.
	for hopIndex := int32(len(path.hops)); hopIndex < f.lists.hopsPerBatch; hopIndex++ {
		f.lists.reservations[f.lists.reservationOf(batchSlot, int16(hopIndex), onDevice)].resource = -1
	}
}

// reserveLink writes the reservation at an index for one end of the transfer into a hop, on a link (an index in
// Tables.Links): the sender's uplink or the receiver's downlink. The transfer is ready at readyAt. If link is -1, the
// transfer does not use that end, and the entry has no resource.
func (f *pathFinder) reserveLink(index, link int32, readyAt time.Duration, hop *policy.Hop) {
	entry := &f.lists.reservations[index]
	*entry = reservation{readyAt: readyAt, start: hop.XferStart, duration: hop.XferEnd - hop.XferStart, prev: -1, next: -1, resource: -1}
	if link >= 0 {
		entry.resource = f.numDevices + link
		f.lists.insertReservation(index)
		f.timelines.queueWithSuccessor(index)
	}
}
