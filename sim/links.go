package sim

import (
	"time"

	"inferplan/policy"
)

// link is one direction of a node's NIC. It carries one transfer at a time. Batches whose transfers wait are in its line.
type link struct {
	waiting batchLine
	busy    bool
}

// linkNetwork carries the tensors of batches between the devices of deviceHost, over the nodes' uplinks and downlinks.
type linkNetwork struct {
	*loop
	host          *deviceHost // takes the batches that have arrived
	links         []link      // by index in Tables.Links
	transferTimes transferTimes
}

// newLinkNetwork returns the links of a run, free and with empty queues.
func newLinkNetwork(host *deviceHost) *linkNetwork {
	network := &linkNetwork{loop: host.loop, host: host, links: make([]link, len(host.tables.Links))}
	for i := range network.links {
		network.links[i] = link{waiting: batchLine{-1, -1}}
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
			*network.agenda.endedTransfers.Add() = entry
		}
		return
	}

	// Append the batch to the queues of both links.
	batch.activity = waitsForLinks
	for kind, link := range linksOf(hop) {
		if link >= 0 {
			network.batches.joinLine(&network.links[link].waiting, kind, batchSlot)
		}
	}
	network.startTransfer(batchSlot)
}

// linksOf returns the links of the transfer to a hop, by kind of line (uplinkLine, downlinkLine), or -1 for none.
func linksOf(hop *policy.Hop) [2]int32 {
	return [2]int32{uplinkLine: hop.Uplink, downlinkLine: hop.Downlink}
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
	for kind, link := range linksOf(hop) {
		if link >= 0 {
			network.links[link].busy = true
			network.batches.leaveLine(&network.links[link].waiting, kind, batchSlot)
		}
	}
	batch.activity = crossesLinks

	// Put its end on the agenda, with the links to free. Ends of one instant come in the order of the batches.
	entry := agendaEntry{kind: transferEndEntry, start: network.agenda.now, serial: batch.serial, subject: batchSlot, hopIndex: batch.hopIndex, detail: hop.Uplink, downlink: hop.Downlink}
	network.agenda.schedule(network.agenda.now+network.transferTime(batchSlot), policy.TransferFinished, batch.serial, entry)
}

// isFirstAtLink reports whether a link is free and a batch is the first in its queue. Link -1 stands for none, and
// always allows the transfer.
func (network *linkNetwork) isFirstAtLink(link, batchSlot int32) bool {
	return link < 0 || !network.links[link].busy && network.links[link].waiting.first == batchSlot
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
	network.startWaiting([2]int32{entry.uplink(), entry.downlink})
	if isUnderWay {
		ev := network.loop.beginBatchEvent(policy.TransferFinished, entry.batchSlot(), network.batches.hopAt(entry.batchSlot(), entry.hopIndex).Device)
		ev.Hop, ev.Start, ev.End = batch.firstStage+entry.hopIndex, entry.start, network.agenda.now
		network.loop.tellPolicy()
	}
}

// startWaiting starts the first transfers that wait for the links in a list, which has -1 for none.
func (network *linkNetwork) startWaiting(links [2]int32) {
	for _, link := range links {
		if link >= 0 {
			network.startTransfer(network.links[link].waiting.first)
		}
	}
}

// removeBatch takes an aborted batch, whose transfer has not started, out of the queues of its links, and starts the
// transfers that it kept waiting.
func (network *linkNetwork) removeBatch(batchSlot int32) {
	batch := network.batches.at(batchSlot)
	links := linksOf(network.batches.hopAt(batchSlot, batch.hopIndex))
	for kind, link := range links {
		if link >= 0 {
			network.batches.leaveLine(&network.links[link].waiting, kind, batchSlot)
		}
	}
	network.startWaiting(links)
}
