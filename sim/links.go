package sim

import (
	"time"

	"inferplan/policy"
)

// link is one direction of a node's NIC. It carries one transfer at a time.
type link struct {
	head, last int32 // first and last batch whose transfer waits, or -1
	busy       bool
}

// queueTransfer queues the transfer of a batch's tensors to the device of its current hop.
func (h *devices) queueTransfer(slot int32) {
	b := &h.batches[slot]
	hop := h.hop(slot, b.hop)

	// Within a node no link is needed.
	if hop.Uplink < 0 && hop.Downlink < 0 {
		it := item{what: isTransfer, start: h.now, serial: b.serial, batch: slot, hop: b.hop, up: -1, down: -1}
		b.at = crosses
		if took := h.transferTime(slot); took > 0 {
			h.at(h.now+took, policy.TransferFinished, b.serial, it)
		} else {
			h.moved.push(it)
		}
		return
	}

	// Append the batch to the queues of both links.
	b.at, b.nextUp, b.nextDown = waitsForLinks, -1, -1
	if l := hop.Uplink; l >= 0 {
		if last := h.links[l].last; last >= 0 {
			h.batches[last].nextUp = slot
		} else {
			h.links[l].head = slot
		}
		h.links[l].last = slot
	}
	if l := hop.Downlink; l >= 0 {
		if last := h.links[l].last; last >= 0 {
			h.batches[last].nextDown = slot
		} else {
			h.links[l].head = slot
		}
		h.links[l].last = slot
	}
	h.startTransfer(slot)
}

// transferTime returns how long the transfer of a batch to its current hop takes.
func (h *devices) transferTime(slot int32) time.Duration {
	b := &h.batches[slot]
	stage, from := h.hop(slot, b.hop).Stage, b.from
	if b.hop > 0 {
		from = h.hop(slot, b.hop-1).Device
	}
	planned := h.t.TransferBetween(stage, b.size, from, h.hop(slot, b.hop).Device)
	if planned == 0 {
		return 0
	}
	return h.service.Transfer(stage, b.size, planned)
}

// startTransfer starts the transfer of a batch if the batch is the first in both queues and
// both links are free. A slot of -1 is allowed and does nothing.
func (h *devices) startTransfer(slot int32) {
	if slot < 0 {
		return
	}
	b := &h.batches[slot]
	hop := h.hop(slot, b.hop)
	if !h.linkReady(hop.Uplink, slot) || !h.linkReady(hop.Downlink, slot) {
		return
	}
	if l := hop.Uplink; l >= 0 {
		h.takeLink(l, b.nextUp)
	}
	if l := hop.Downlink; l >= 0 {
		h.takeLink(l, b.nextDown)
	}
	b.at = crosses
	it := item{what: isTransfer, start: h.now, serial: b.serial, batch: slot, hop: b.hop, up: hop.Uplink, down: hop.Downlink}
	h.at(h.now+h.transferTime(slot), policy.TransferFinished, b.serial, it)
}

// linkReady reports whether a link is free for a batch. Link -1 stands for none, and is always free.
func (h *devices) linkReady(l, slot int32) bool {
	return l < 0 || !h.links[l].busy && h.links[l].head == slot
}

// occupyLink makes a link busy. next becomes the first batch of its queue, or -1 if it is empty.
func (h *devices) takeLink(l, next int32) {
	li := &h.links[l]
	li.busy, li.head = true, next
	if next < 0 {
		li.last = -1
	}
}

// finishTransfer frees the links, starts the transfers that waited for them, and queues the batch at its device.
func (h *devices) transferFinished(it *item) {
	if it.up >= 0 {
		h.links[it.up].busy = false
	}
	if it.down >= 0 {
		h.links[it.down].busy = false
	}

	// The policy may have aborted the batch meanwhile.
	b := &h.batches[it.batch]
	valid := b.live && b.serial == it.serial
	if valid {
		h.crossed.add(h.now - b.readyAt)
		if h.trace != nil {
			h.trace.transfer(it.up, it.down, b.model, b.size, it.start, h.now)
		}
		h.queueRun(it.batch)
	}
	if it.up >= 0 {
		h.startTransfer(h.links[it.up].head)
	}
	if it.down >= 0 {
		h.startTransfer(h.links[it.down].head)
	}
	if valid {
		ev := h.beginBatch(policy.TransferFinished, it.batch, h.hop(it.batch, it.hop).Device)
		ev.Hop, ev.Start, ev.End = b.first+it.hop, it.start, h.now
		h.tell()
	}
}

// removeFromLinks takes a batch out of the queues of its links.
func (h *devices) leaveLinks(slot int32) {
	b := &h.batches[slot]
	hop := h.hop(slot, b.hop)
	h.leaveLink(hop.Uplink, slot, func(b *batch) *int32 { return &b.nextUp })
	h.leaveLink(hop.Downlink, slot, func(b *batch) *int32 { return &b.nextDown })
	for _, l := range [2]int32{hop.Uplink, hop.Downlink} {
		if l >= 0 {
			h.startTransfer(h.links[l].head)
		}
	}
}

// removeFromLink takes a batch out of a link's queue. nextOf returns its chain through the batches.
func (h *devices) leaveLink(l, slot int32, next func(*batch) *int32) {
	if l < 0 {
		return
	}
	li := &h.links[l]
	before := int32(-1)
	for o := li.head; o != slot; o = *next(&h.batches[o]) {
		before = o
	}
	behind := *next(&h.batches[slot])
	if before < 0 {
		li.head = behind
	} else {
		*next(&h.batches[before]) = behind
	}
	if behind < 0 {
		li.last = before
	}
}
