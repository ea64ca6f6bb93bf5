package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// instances is a small host of instances: every iteration takes as long as its
// sequences are many, and gives each of them a token.
type instances struct {
	*loop
	list []instance // by device
	made []int32    // tokens by task, as far as they are kept
}

type instance struct {
	running []int32 // batch slots, in the order of their dispatch
	waiting []int32
	busy    bool
	down    bool
	epoch   int32
	ran     time.Duration
}

// Entries of instances on the agenda.
const (
	isIteration uint8 = ofHost + iota
	isEvicted
)

func newInstances(l *loop) host { return &instances{loop: l, list: make([]instance, len(l.t.Devices))} }

func (h *instances) tokensOf(slot int32) *int32 {
	t := h.members(slot)[0]
	for int(t) >= len(h.made) {
		h.made = append(h.made, 0)
	}
	return &h.made[t]
}

func (h *instances) dispatch(slot int32) {
	d := h.hop(slot, 0).Device
	in := &h.list[d]
	if in.down {
		return
	}
	in.waiting = append(in.waiting, slot)
	if !in.busy {
		h.iterate(d)
	}
}

// iterate starts the next iteration, if there is anything to do.
func (h *instances) iterate(d int32) {
	in, most := &h.list[d], int(h.t.Instances[h.t.InstanceOf(d)].Sequences)
	for len(in.running) < most && len(in.waiting) > 0 {
		slot := in.waiting[0]
		in.waiting = in.waiting[1:]
		in.running = append(in.running, slot)
		h.begun.push(item{what: isBegun, host: 1, serial: h.batches[slot].serial, batch: slot, device: d, start: h.now})
	}
	if in.busy = len(in.running) > 0; !in.busy {
		return
	}
	took := time.Duration(len(in.running)) * time.Millisecond
	in.ran += took
	h.at(h.now+took, policy.TokenProgress, h.sequence(), item{what: isIteration, host: 1, device: d, epoch: in.epoch, start: h.now})
}

func (h *instances) due(it *item) {
	switch it.what {
	case isBegun:
		if b := &h.batches[it.batch]; b.live && b.serial == it.serial {
			h.beginBatch(policy.BatchStarted, it.batch, it.device).Start = it.start
			h.tell()
		}
	case isEvicted:
		if b := &h.batches[it.batch]; b.live && b.serial == it.serial {
			h.returned(it.batch, it.device, policy.ReturnEvicted, []int32{*h.tokensOf(it.batch)})
		}
	case isIteration:
		if h.list[it.device].epoch == it.epoch {
			h.iterated(it.device)
		}
	}
}

// iterated gives every sequence its token.
func (h *instances) iterated(d int32) {
	in := &h.list[d]
	progress := h.t.Instances[h.t.InstanceOf(d)].Progress
	var ended, news []int32
	in.running = slices.DeleteFunc(in.running, func(slot int32) bool {
		n := h.tokensOf(slot)
		*n++
		if *n >= h.truth.Tokens(h.members(slot)[0]) {
			*n = 0
			ended = append(ended, slot)
			return true
		}
		if *n == 1 || *n%progress == 0 {
			news = append(news, slot)
		}
		return false
	})
	h.iterate(d)
	for _, slot := range ended {
		b := &h.batches[slot]
		b.live = false
		h.ending.ran(slot, d)
		h.beginBatch(policy.BatchFinished, slot, d).End = h.now
		h.tell()
	}
	for _, slot := range news {
		if h.batches[slot].live && slices.Contains(in.running, slot) {
			h.beginBatch(policy.TokenProgress, slot, d).Tokens = *h.tokensOf(slot)
			h.tell()
		}
	}
}

func (h *instances) remove(slot int32) {
	in := &h.list[h.hop(slot, 0).Device]
	same := func(s int32) bool { return s == slot }
	in.running, in.waiting = slices.DeleteFunc(in.running, same), slices.DeleteFunc(in.waiting, same)
}

func (h *instances) abort(slot int32) {
	*h.tokensOf(slot) = 0
	h.remove(slot)
}

func (h *instances) evict(slot int32, keep bool) {
	h.remove(slot)
	if !keep {
		*h.tokensOf(slot) = 0
	}
	b := &h.batches[slot]
	h.at(h.now, policy.BatchReturned, b.serial, item{what: isEvicted, host: 1, serial: b.serial, batch: slot, device: h.hop(slot, 0).Device})
}

func (h *instances) load(o order)             { h.fail(fmt.Errorf("network %d: instances load none", o.network)) }
func (h *instances) place(task, device int32) { h.hosts[0].place(task, device) }

func (h *instances) fault(d int32, back bool) {
	in := &h.list[d]
	if in.down != back {
		return
	}
	*in = instance{down: !back, epoch: in.epoch + 1, ran: in.ran}
	kind := policy.WorkerBack
	if !back {
		kind = policy.WorkerLost
	}
	ev := h.begin(kind)
	ev.Device, ev.Value, ev.Limit = d, int64(h.t.Instances[0].Sequences), int32(h.t.Instances[0].KV)
	h.tell()
}

func (h *instances) running(d int32) time.Duration { return h.list[d].ran }

func (h *instances) finish() error {
	for d := range h.list {
		if in := &h.list[d]; in.busy || len(in.waiting) > 0 {
			return fmt.Errorf("instance on device %d still works when nothing is left to happen", d)
		}
	}
	return nil
}
