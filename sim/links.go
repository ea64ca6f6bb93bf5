package sim

import (
	"time"

	"inferplan/policy"
)

// link is one direction of a node's NIC. It carries one transfer at a time.
type link struct {
	firstWaiting, lastWaiting int32 // first and last batch whose transfer waits, or -1
	busy                      bool
}

// linkNetwork carries the tensors of batches between the devices of deviceHost.
type linkNetwork struct {
	host          *deviceHost // takes the batches that have arrived
	loop          *loop
	agenda        *agenda
	batches       *batchTable
	tables        *policy.Tables
	links         []link
	transferTimes transferTimes
}

// newLinkNetwork returns the links of the run. Nothing waits for them.
func newLinkNetwork(h *deviceHost) *linkNetwork {
	n := &linkNetwork{host: h, loop: h.loop, agenda: h.agenda, batches: h.batches, tables: h.tables, links: make([]link, len(h.tables.Links))}
	for i := range n.links {
		n.links[i] = link{firstWaiting: -1, lastWaiting: -1}
	}
	return n
}

// queueTransfer queues the transfer of a batch's tensors to the device of its current hop: in the queues of the
// sending node's uplink and of the receiving node's downlink. A transfer without links takes its time at once; one
// without a time ends in this instant.
func (n *linkNetwork) queueTransfer(slot int32) {
	b := n.batches.at(slot)
	hop := n.batches.hopAt(slot, b.hopIndex)

	// Within a node no link is needed.
	if hop.Uplink < 0 && hop.Downlink < 0 {
		entry := agendaEntry{kind: isTransferEnd, start: n.agenda.now, serial: b.serial, batch: slot, hopIndex: b.hopIndex, arg: -1, downlink: -1}
		b.place = crossesLinks
		if duration := n.transferTime(slot); duration > 0 {
			n.agenda.schedule(n.agenda.now+duration, policy.TransferFinished, b.serial, entry)
		} else {
			n.agenda.endedTransfers.push(entry)
		}
		return
	}

	// Append the batch to the queues of both links.
	b.place, b.nextInUplink, b.nextInDownlink = waitsForLinks, -1, -1
	if l := hop.Uplink; l >= 0 {
		if last := n.links[l].lastWaiting; last >= 0 {
			n.batches.at(last).nextInUplink = slot
		} else {
			n.links[l].firstWaiting = slot
		}
		n.links[l].lastWaiting = slot
	}
	if l := hop.Downlink; l >= 0 {
		if last := n.links[l].lastWaiting; last >= 0 {
			n.batches.at(last).nextInDownlink = slot
		} else {
			n.links[l].firstWaiting = slot
		}
		n.links[l].lastWaiting = slot
	}
	n.startTransfer(slot)
}

// transferTime returns how long the transfer of a batch to its current hop takes: as the service says, which knows
// the planned time. From a device to itself it is 0.
func (n *linkNetwork) transferTime(slot int32) time.Duration {
	b := n.batches.at(slot)
	stage, source := n.batches.hopAt(slot, b.hopIndex).Stage, b.sourceDevice
	if b.hopIndex > 0 {
		source = n.batches.hopAt(slot, b.hopIndex-1).Device
	}
	plannedTime := n.tables.TransferBetween(stage, b.size, source, n.batches.hopAt(slot, b.hopIndex).Device)
	if plannedTime == 0 {
		return 0
	}
	return n.host.service.TransferTime(stage, b.size, plannedTime)
}

// startTransfer starts the transfer of a batch if the batch is the first in the queues of both of its links and
// both are free, since a transfer holds both at once. Otherwise it waits. A slot of -1, as of an empty queue, does
// nothing.
func (n *linkNetwork) startTransfer(slot int32) {
	if slot < 0 {
		return
	}
	b := n.batches.at(slot)
	hop := n.batches.hopAt(slot, b.hopIndex)
	if !n.linkReady(hop.Uplink, slot) || !n.linkReady(hop.Downlink, slot) {
		return
	}
	if l := hop.Uplink; l >= 0 {
		n.occupyLink(l, b.nextInUplink)
	}
	if l := hop.Downlink; l >= 0 {
		n.occupyLink(l, b.nextInDownlink)
	}
	b.place = crossesLinks
	entry := agendaEntry{kind: isTransferEnd, start: n.agenda.now, serial: b.serial, batch: slot, hopIndex: b.hopIndex, arg: hop.Uplink, downlink: hop.Downlink}
	n.agenda.schedule(n.agenda.now+n.transferTime(slot), policy.TransferFinished, b.serial, entry)
}

// linkReady reports whether a link is free for a batch. Link -1 stands for none, and is always free.
func (n *linkNetwork) linkReady(l, slot int32) bool {
	return l < 0 || !n.links[l].busy && n.links[l].firstWaiting == slot
}

// occupyLink makes a link busy. next becomes the first batch of its queue, or -1 if it is empty.
func (n *linkNetwork) occupyLink(l, next int32) {
	li := &n.links[l]
	li.busy, li.firstWaiting = true, next
	if next < 0 {
		li.lastWaiting = -1
	}
}

// finishTransfer ends a transfer: it frees the links, queues the batch at its device, starts the transfers that
// waited for the links, and tells the policy. If the batch was aborted meanwhile, only the links are freed.
func (n *linkNetwork) finishTransfer(entry *agendaEntry) {
	if entry.arg >= 0 {
		n.links[entry.arg].busy = false
	}
	if entry.downlink >= 0 {
		n.links[entry.downlink].busy = false
	}

	// The policy may have aborted the batch meanwhile.
	b := n.batches.at(entry.batch)
	valid := b.live && b.serial == entry.serial
	if valid {
		n.transferTimes.add(n.agenda.now - b.readyAt)
		if n.loop.trace != nil {
			n.loop.trace.writeTransfer(entry.arg, entry.downlink, b.model, b.size, entry.start, n.agenda.now)
		}
		n.host.queueRun(entry.batch)
	}
	if entry.arg >= 0 {
		n.startTransfer(n.links[entry.arg].firstWaiting)
	}
	if entry.downlink >= 0 {
		n.startTransfer(n.links[entry.downlink].firstWaiting)
	}
	if valid {
		ev := n.loop.beginBatchEvent(policy.TransferFinished, entry.batch, n.batches.hopAt(entry.batch, entry.hopIndex).Device)
		ev.Hop, ev.Start, ev.End = b.firstStage+entry.hopIndex, entry.start, n.agenda.now
		n.loop.tellPolicy()
	}
}

// removeBatch takes an aborted batch out of the queues of its links, and starts the transfers that it kept waiting.
func (n *linkNetwork) removeBatch(slot int32) {
	b := n.batches.at(slot)
	hop := n.batches.hopAt(slot, b.hopIndex)
	n.removeFromQueue(hop.Uplink, slot, func(b *batch) *int32 { return &b.nextInUplink })
	n.removeFromQueue(hop.Downlink, slot, func(b *batch) *int32 { return &b.nextInDownlink })
	for _, l := range [2]int32{hop.Uplink, hop.Downlink} {
		if l >= 0 {
			n.startTransfer(n.links[l].firstWaiting)
		}
	}
}

// removeFromQueue takes a batch out of a link's queue, which is linked through the batches. nextOf returns a
// batch's field that names the next one there: a batch is in an uplink's and a downlink's queue at once. A link of
// -1 is none.
func (n *linkNetwork) removeFromQueue(l, slot int32, nextOf func(*batch) *int32) {
	if l < 0 {
		return
	}
	li := &n.links[l]
	previous := int32(-1)
	for waiting := li.firstWaiting; waiting != slot; waiting = *nextOf(n.batches.at(waiting)) {
		previous = waiting
	}
	following := *nextOf(n.batches.at(slot))
	if previous < 0 {
		li.firstWaiting = following
	} else {
		*nextOf(n.batches.at(previous)) = following
	}
	if following < 0 {
		li.lastWaiting = previous
	}
}
