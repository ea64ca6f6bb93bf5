package sim

import (
	"fmt"

	"inferplan/policy"
)

// lose takes a device away: what runs or waits there is gone. The policy
// aborts these batches when it hears of it.
func (s *machine) lose(d int32) {
	dev := &s.devices[d]
	if dev.down {
		return
	}
	dev.down, dev.busy, dev.epoch = true, false, dev.epoch+1
	dev.ranUntil = s.now
	if dev.current >= 0 {
		s.batches[dev.current].at = nowhere
		dev.current = -1
	}
	for b := dev.head; b >= 0; b = s.batches[b].nextRun {
		s.batches[b].at = nowhere
	}
	dev.head, dev.last = -1, -1
	s.tell(policy.Event{Kind: policy.WorkerLost, Device: d})
}

func (s *machine) regain(d int32) {
	if !s.devices[d].down {
		return
	}
	s.devices[d].down = false
	s.tell(policy.Event{Kind: policy.WorkerBack, Device: d})
}

// abort forgets a batch. A device or link that works on it goes on to the end:
// running work cannot be stopped.
func (s *machine) abort(slot int32) {
	b := &s.batches[slot]
	if !b.live {
		s.fail(fmt.Errorf("the policy aborts batch slot %d, which is not under way", slot))
		return
	}
	hop := s.hop(slot, b.hop)
	switch b.at {
	case runs:
		s.devices[hop.Device].current = -1
	case waitsForDevice:
		s.leaveDevice(hop.Device, slot)
	case waitsForLinks:
		s.leaveLinks(slot)
	}
	for _, r := range s.members(slot) {
		s.requests[r].state = waiting
	}
	b.live, b.at = false, nowhere
}

func (s *machine) leaveDevice(d, slot int32) {
	dev := &s.devices[d]
	before := int32(-1)
	for b := dev.head; b != slot; b = s.batches[b].nextRun {
		before = b
	}
	next := s.batches[slot].nextRun
	if before < 0 {
		dev.head = next
	} else {
		s.batches[before].nextRun = next
	}
	if next < 0 {
		dev.last = before
	}
}

func (s *machine) leaveLinks(slot int32) {
	b := &s.batches[slot]
	hop := s.hop(slot, b.hop)
	s.leaveLink(hop.Uplink, slot, func(b *batch) *int32 { return &b.nextUp })
	s.leaveLink(hop.Downlink, slot, func(b *batch) *int32 { return &b.nextDown })
	for _, l := range [2]int32{hop.Uplink, hop.Downlink} {
		if l >= 0 {
			s.startTransfer(s.links[l].head)
		}
	}
}

// leaveLink takes a batch out of a link's queue, which is chained through next.
func (s *machine) leaveLink(l, slot int32, next func(*batch) *int32) {
	if l < 0 {
		return
	}
	li := &s.links[l]
	before := int32(-1)
	for o := li.head; o != slot; o = *next(&s.batches[o]) {
		before = o
	}
	behind := *next(&s.batches[slot])
	if before < 0 {
		li.head = behind
	} else {
		*next(&s.batches[before]) = behind
	}
	if behind < 0 {
		li.last = before
	}
}
