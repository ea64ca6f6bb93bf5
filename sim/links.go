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

// queueTransfer queues the transfer of a batch's tensors to the device of its current hop.
func (h *deviceHost) queueTransfer(slot int32) {
	b := h.batches.at(slot)
	hop := h.batches.hopAt(slot, b.hopIndex)

	// Within a node no link is needed.
	if hop.Uplink < 0 && hop.Downlink < 0 {
		entry := agendaEntry{kind: isTransferEnd, start: h.agenda.now, serial: b.serial, batch: slot, hopIndex: b.hopIndex, arg: -1, downlink: -1}
		b.place = crossesLinks
		if duration := h.transferTime(slot); duration > 0 {
			h.agenda.schedule(h.agenda.now+duration, policy.TransferFinished, b.serial, entry)
		} else {
			h.agenda.endedTransfers.push(entry)
		}
		return
	}

	// Append the batch to the queues of both links.
	b.place, b.nextInUplink, b.nextInDownlink = waitsForLinks, -1, -1
	if l := hop.Uplink; l >= 0 {
		if last := h.links[l].lastWaiting; last >= 0 {
			h.batches.at(last).nextInUplink = slot
		} else {
			h.links[l].firstWaiting = slot
		}
		h.links[l].lastWaiting = slot
	}
	if l := hop.Downlink; l >= 0 {
		if last := h.links[l].lastWaiting; last >= 0 {
			h.batches.at(last).nextInDownlink = slot
		} else {
			h.links[l].firstWaiting = slot
		}
		h.links[l].lastWaiting = slot
	}
	h.startTransfer(slot)
}

// transferTime returns how long the transfer of a batch to its current hop takes.
func (h *deviceHost) transferTime(slot int32) time.Duration {
	b := h.batches.at(slot)
	stage, source := h.batches.hopAt(slot, b.hopIndex).Stage, b.sourceDevice
	if b.hopIndex > 0 {
		source = h.batches.hopAt(slot, b.hopIndex-1).Device
	}
	plannedTime := h.tables.TransferBetween(stage, b.size, source, h.batches.hopAt(slot, b.hopIndex).Device)
	if plannedTime == 0 {
		return 0
	}
	return h.service.TransferTime(stage, b.size, plannedTime)
}

// startTransfer starts the transfer of a batch if the batch is the first in both queues and
// both links are free. A slot of -1 is allowed and does nothing.
func (h *deviceHost) startTransfer(slot int32) {
	if slot < 0 {
		return
	}
	b := h.batches.at(slot)
	hop := h.batches.hopAt(slot, b.hopIndex)
	if !h.linkReady(hop.Uplink, slot) || !h.linkReady(hop.Downlink, slot) {
		return
	}
	if l := hop.Uplink; l >= 0 {
		h.occupyLink(l, b.nextInUplink)
	}
	if l := hop.Downlink; l >= 0 {
		h.occupyLink(l, b.nextInDownlink)
	}
	b.place = crossesLinks
	entry := agendaEntry{kind: isTransferEnd, start: h.agenda.now, serial: b.serial, batch: slot, hopIndex: b.hopIndex, arg: hop.Uplink, downlink: hop.Downlink}
	h.agenda.schedule(h.agenda.now+h.transferTime(slot), policy.TransferFinished, b.serial, entry)
}

// linkReady reports whether a link is free for a batch. Link -1 stands for none, and is always free.
func (h *deviceHost) linkReady(l, slot int32) bool {
	return l < 0 || !h.links[l].busy && h.links[l].firstWaiting == slot
}

// occupyLink makes a link busy. next becomes the first batch of its queue, or -1 if it is empty.
func (h *deviceHost) occupyLink(l, next int32) {
	li := &h.links[l]
	li.busy, li.firstWaiting = true, next
	if next < 0 {
		li.lastWaiting = -1
	}
}

// finishTransfer frees the links, starts the transfers that waited for them, and queues the batch at its device.
func (h *deviceHost) finishTransfer(entry *agendaEntry) {
	if entry.arg >= 0 {
		h.links[entry.arg].busy = false
	}
	if entry.downlink >= 0 {
		h.links[entry.downlink].busy = false
	}

	// The policy may have aborted the batch meanwhile.
	b := h.batches.at(entry.batch)
	valid := b.live && b.serial == entry.serial
	if valid {
		h.transferTimes.add(h.agenda.now - b.readyAt)
		if h.loop.trace != nil {
			h.loop.trace.writeTransfer(entry.arg, entry.downlink, b.model, b.size, entry.start, h.agenda.now)
		}
		h.queueRun(entry.batch)
	}
	if entry.arg >= 0 {
		h.startTransfer(h.links[entry.arg].firstWaiting)
	}
	if entry.downlink >= 0 {
		h.startTransfer(h.links[entry.downlink].firstWaiting)
	}
	if valid {
		ev := h.loop.beginBatchEvent(policy.TransferFinished, entry.batch, h.batches.hopAt(entry.batch, entry.hopIndex).Device)
		ev.Hop, ev.Start, ev.End = b.firstStage+entry.hopIndex, entry.start, h.agenda.now
		h.loop.tellPolicy()
	}
}

// removeFromLinks takes a batch out of the queues of its links.
func (h *deviceHost) removeFromLinks(slot int32) {
	b := h.batches.at(slot)
	hop := h.batches.hopAt(slot, b.hopIndex)
	h.removeFromLink(hop.Uplink, slot, func(b *batch) *int32 { return &b.nextInUplink })
	h.removeFromLink(hop.Downlink, slot, func(b *batch) *int32 { return &b.nextInDownlink })
	for _, l := range [2]int32{hop.Uplink, hop.Downlink} {
		if l >= 0 {
			h.startTransfer(h.links[l].firstWaiting)
		}
	}
}

// removeFromLink takes a batch out of a link's queue. nextOf returns its chain through the batches.
func (h *deviceHost) removeFromLink(l, slot int32, nextOf func(*batch) *int32) {
	if l < 0 {
		return
	}
	li := &h.links[l]
	previous := int32(-1)
	for waiting := li.firstWaiting; waiting != slot; waiting = *nextOf(h.batches.at(waiting)) {
		previous = waiting
	}
	following := *nextOf(h.batches.at(slot))
	if previous < 0 {
		li.firstWaiting = following
	} else {
		*nextOf(h.batches.at(previous)) = following
	}
	if following < 0 {
		li.lastWaiting = previous
	}
}
