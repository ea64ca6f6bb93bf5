package sim

import (
	"time"

	"inferplan/policy"
)

// link is one direction of a node's NIC. It carries one transfer at a time. Its queue is linked through the batches
// (nextInUplink, nextInDownlink).
type link struct {
	firstWaiting, lastWaiting int32 // slots of the first and the last batch whose transfer waits, or -1
	busy                      bool
}

// linkNetwork carries the tensors of batches between the devices of deviceHost, over the nodes' uplinks and downlinks.
type linkNetwork struct {
	host          *deviceHost // takes the batches that have arrived
	loop          *loop
	agenda        *agenda
	batches       *batchTable
	tables        *policy.Tables
	links         []link // by index in Tables.Links
	transferTimes transferTimes
}

// newLinkNetwork returns the links of a run, free and with empty queues.
func newLinkNetwork(host *deviceHost) *linkNetwork {
	network := &linkNetwork{host: host, loop: host.loop, agenda: host.agenda, batches: host.batches, tables: host.tables, links: make([]link, len(host.tables.Links))}
	for i := range network.links {
		network.links[i] = link{firstWaiting: -1, lastWaiting: -1}
	}
	return network
}

// queueTransfer is called when a batch has left its device for the next hop (stage on a device). It queues the transfer
// of the batch's tensors to the device of that hop, its current one: in the queues of the sending node's uplink and of
// the receiving node's downlink, and starts it if it is the first in both. A transfer without links begins at once; if
// it takes no time, it ends later in this instant.
func (network *linkNetwork) queueTransfer(batchSlot int32) {
	batch := network.batches.at(batchSlot)
	hop := network.batches.hopAt(batchSlot, batch.hopIndex)

	// Within a node no link is needed. In the entry, detail is the uplink, and -1 is no link.
	if hop.Uplink < 0 && hop.Downlink < 0 {
		entry := agendaEntry{kind: transferEndEntry, start: network.agenda.now, serial: batch.serial, subject: batchSlot, hopIndex: batch.hopIndex, detail: -1, downlink: -1}
		batch.activity = crossesLinks
		if duration := network.transferTime(batchSlot); duration > 0 {
			network.agenda.schedule(network.agenda.now+duration, policy.TransferFinished, batch.serial, entry)
		} else {
			network.agenda.endedTransfers.push(entry)
		}
		return
	}

	// Append the batch to the queues of both links.
	batch.activity, batch.nextInUplink, batch.nextInDownlink = waitsForLinks, -1, -1
	if link := hop.Uplink; link >= 0 {
		if last := network.links[link].lastWaiting; last >= 0 {
			network.batches.at(last).nextInUplink = batchSlot
		} else {
			network.links[link].firstWaiting = batchSlot
		}
		network.links[link].lastWaiting = batchSlot
	}
	if link := hop.Downlink; link >= 0 {
		if last := network.links[link].lastWaiting; last >= 0 {
			network.batches.at(last).nextInDownlink = batchSlot
		} else {
			network.links[link].firstWaiting = batchSlot
		}
		network.links[link].lastWaiting = batchSlot
	}
	network.startTransfer(batchSlot)
}

// transferTime returns how long the transfer of a batch to its current hop takes: as the service says, which is given
// the planned time. From a device to itself it returns 0. A planned time of 0 stays 0.
func (network *linkNetwork) transferTime(batchSlot int32) time.Duration {
	batch := network.batches.at(batchSlot)

	// The tensors come from the device of the hop before or, for a batch that begins behind the first stage, from
	// where they are.
	stage, source := network.batches.hopAt(batchSlot, batch.hopIndex).Stage, batch.sourceDevice
	if batch.hopIndex > 0 {
		source = network.batches.hopAt(batchSlot, batch.hopIndex-1).Device
	}
	plannedTime := network.tables.TransferBetween(stage, batch.size, source, network.batches.hopAt(batchSlot, batch.hopIndex).Device)
	if plannedTime == 0 {
		return 0
	}
	return network.host.service.TransferTime(stage, batch.size, plannedTime)
}

// startTransfer is called when a batch was queued or has become the first in a link's queue, or a link became free. It
// starts the transfer of the batch in a slot if the batch is the first in the queues of both of its links and both are
// free, since a transfer holds both at once. Otherwise the batch goes on waiting. For slot -1, as of an empty queue,
// nothing happens.
func (network *linkNetwork) startTransfer(batchSlot int32) {
	if batchSlot < 0 {
		return
	}
	batch := network.batches.at(batchSlot)
	hop := network.batches.hopAt(batchSlot, batch.hopIndex)
	if !network.isFirstAtLink(hop.Uplink, batchSlot) || !network.isFirstAtLink(hop.Downlink, batchSlot) {
		return
	}

	// Occupy both links until the transfer ends.
	if link := hop.Uplink; link >= 0 {
		network.occupyLink(link, batch.nextInUplink)
	}
	if link := hop.Downlink; link >= 0 {
		network.occupyLink(link, batch.nextInDownlink)
	}
	batch.activity = crossesLinks

	// Put its end on the agenda, with the links to free. Ends of one instant come in the order of the batches.
	entry := agendaEntry{kind: transferEndEntry, start: network.agenda.now, serial: batch.serial, subject: batchSlot, hopIndex: batch.hopIndex, detail: hop.Uplink, downlink: hop.Downlink}
	network.agenda.schedule(network.agenda.now+network.transferTime(batchSlot), policy.TransferFinished, batch.serial, entry)
}

// isFirstAtLink reports whether a link is free and a batch is the first in its queue. Link -1 stands for none, and
// always allows the transfer.
func (network *linkNetwork) isFirstAtLink(link, batchSlot int32) bool {
	return link < 0 || !network.links[link].busy && network.links[link].firstWaiting == batchSlot
}

// occupyLink makes a link busy with the transfer of the first batch in its queue. next is the slot of the batch
// behind it, or -1 if there is none.
func (network *linkNetwork) occupyLink(linkIndex, next int32) {
	link := &network.links[linkIndex]
	link.busy, link.firstWaiting = true, next
	if next < 0 {
		link.lastWaiting = -1
	}
}

// finishTransfer is called when a transfer ends: it frees the links, queues the batch at its device, starts the
// transfers that waited for the links, and tells the policy. If the batch was aborted meanwhile, only the links are
// freed.
func (network *linkNetwork) finishTransfer(entry *agendaEntry) {
	// Free the links.
	if entry.uplink() >= 0 {
		network.links[entry.uplink()].busy = false
	}
	if entry.downlink >= 0 {
		network.links[entry.downlink].busy = false
	}

	// Queue the batch at its device, unless the policy has aborted it meanwhile (its slot may have another batch now).
	batch := network.batches.at(entry.batchSlot())
	isUnderWay := batch.isLive && batch.serial == entry.serial
	if isUnderWay {
		network.transferTimes.add(network.agenda.now - batch.readyAt)
		if network.loop.trace != nil {
			network.loop.trace.writeTransfer(entry.uplink(), entry.downlink, batch, entry.start, network.agenda.now)
		}
		network.host.queueRun(entry.batchSlot())
	}

	// Start the next transfers of the links, then tell the policy.
	if entry.uplink() >= 0 {
		network.startTransfer(network.links[entry.uplink()].firstWaiting)
	}
	if entry.downlink >= 0 {
		network.startTransfer(network.links[entry.downlink].firstWaiting)
	}
	if isUnderWay {
		ev := network.loop.beginBatchEvent(policy.TransferFinished, entry.batchSlot(), network.batches.hopAt(entry.batchSlot(), entry.hopIndex).Device)
		ev.Hop, ev.Start, ev.End = batch.firstStage+entry.hopIndex, entry.start, network.agenda.now
		network.loop.tellPolicy()
	}
}

// removeBatch takes an aborted batch, whose transfer has not started, out of the queues of its links, and starts the
// transfers that it kept waiting.
func (network *linkNetwork) removeBatch(batchSlot int32) {
	batch := network.batches.at(batchSlot)
	hop := network.batches.hopAt(batchSlot, batch.hopIndex)

	// Each kind of link links its queue through another field of the batches.
	network.removeFromQueue(hop.Uplink, batchSlot, func(batch *batchState) *int32 { return &batch.nextInUplink })
	network.removeFromQueue(hop.Downlink, batchSlot, func(batch *batchState) *int32 { return &batch.nextInDownlink })
	for _, link := range [2]int32{hop.Uplink, hop.Downlink} {
		if link >= 0 {
			network.startTransfer(network.links[link].firstWaiting)
		}
	}
}

// removeFromQueue takes a batch out of a link's queue, which is linked through the batches. nextOf returns the field
// of a batch that names the next one there: a batch is in the queues of an uplink and of a downlink at once. For link
// -1 nothing happens.
func (network *linkNetwork) removeFromQueue(linkIndex, batchSlot int32, nextOf func(*batchState) *int32) {
	if linkIndex < 0 {
		return
	}
	link := &network.links[linkIndex]

	// Find the batch in front.
	previousSlot := int32(-1)
	for queuedSlot := link.firstWaiting; queuedSlot != batchSlot; queuedSlot = *nextOf(network.batches.at(queuedSlot)) {
		previousSlot = queuedSlot
	}

	// Link it with the batch behind.
	nextSlot := *nextOf(network.batches.at(batchSlot))
	if previousSlot < 0 {
		link.firstWaiting = nextSlot
	} else {
		*nextOf(network.batches.at(previousSlot)) = nextSlot
	}
	if nextSlot < 0 {
		link.lastWaiting = previousSlot
	}
}
