package sim

import (
	"time"

	"inferplan/policy"
)

// link is one direction of a node's NIC. It carries one transfer at a time.
type link struct {
	head, last int32 // batches whose transfer waits
	busy       bool
}

// queueTransfer sends a batch's tensors on to the device of its hop.
func (h *devices) queueTransfer(slot int32) {
	b := &h.batches[slot]
	hop := h.hop(slot, b.hop)
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

// startTransfer starts a batch's transfer if it is the first in both queues
// and both links are free.
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

func (h *devices) linkReady(l, slot int32) bool {
	return l < 0 || !h.links[l].busy && h.links[l].head == slot
}

func (h *devices) takeLink(l, next int32) {
	li := &h.links[l]
	li.busy, li.head = true, next
	if next < 0 {
		li.last = -1
	}
}

// transferFinished frees the links and queues the batch at its device.
func (h *devices) transferFinished(it *item) {
	if it.up >= 0 {
		h.links[it.up].busy = false
	}
	if it.down >= 0 {
		h.links[it.down].busy = false
	}
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

// leaveLink takes a batch out of a link's queue, which is chained through next.
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
