package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// testInstances is a small host of instances: every iteration takes as long as its
// sequences are many, and gives each of them a token.
type testInstances struct {
	*loop
	list       []instance // by device
	tokensMade []int32    // tokens by task, as far as they are kept
}

type instance struct {
	running  []int32 // batch slots, in the order of their dispatch
	waiting  []int32
	busy     bool
	isDown   bool
	epoch    int32
	busyTime time.Duration
}

// Entries of instances on the agenda.
const (
	isIteration uint8 = firstHostKind + iota
	isEvicted
)

func newInstances(l *loop) host {
	return &testInstances{loop: l, list: make([]instance, len(l.tables.Devices))}
}

func (h *testInstances) tokensOf(slot int32) *int32 {
	t := h.batches.members(slot)[0]
	for int(t) >= len(h.tokensMade) {
		h.tokensMade = append(h.tokensMade, 0)
	}
	return &h.tokensMade[t]
}

func (h *testInstances) dispatch(slot int32) {
	d := h.batches.hopAt(slot, 0).Device
	in := &h.list[d]
	if in.isDown {
		return
	}
	in.waiting = append(in.waiting, slot)
	if !in.busy {
		h.startIteration(d)
	}
}

// startIteration starts the next iteration, if there is anything to do.
func (h *testInstances) startIteration(d int32) {
	in, maxSequences := &h.list[d], int(h.tables.Instances[h.tables.InstanceOf(d)].MaxSequences)
	for len(in.running) < maxSequences && len(in.waiting) > 0 {
		slot := in.waiting[0]
		in.waiting = in.waiting[1:]
		in.running = append(in.running, slot)
		*h.agenda.startedBatches.Add() = agendaEntry{kind: batchStartedEntry, host: instanceHost, serial: h.batches.at(slot).serial, subject: slot, device: d, start: h.agenda.now}
	}
	if in.busy = len(in.running) > 0; !in.busy {
		return
	}
	duration := time.Duration(len(in.running)) * time.Millisecond
	in.busyTime += duration
	h.agenda.scheduleAfter(duration, policy.TokenProgress, agendaEntry{kind: isIteration, host: instanceHost, device: d, epoch: in.epoch, start: h.agenda.now})
}

func (h *testInstances) handleEntry(entry *agendaEntry) {
	switch entry.kind {
	case batchStartedEntry:
		if b := h.batches.at(entry.batchSlot()); b.isLive && b.serial == entry.serial {
			h.beginBatchEvent(policy.BatchStarted, entry.batchSlot(), entry.device).Start = entry.start
			h.tellPolicy()
		}
	case isEvicted:
		if b := h.batches.at(entry.batchSlot()); b.isLive && b.serial == entry.serial {
			h.returnBatchToPolicy(entry.batchSlot(), entry.device, policy.ReturnEvicted, []int32{*h.tokensOf(entry.batchSlot())})
		}
	case isIteration:
		if h.list[entry.device].epoch == entry.epoch {
			h.endIteration(entry.device)
		}
	}
}

// endIteration gives every sequence its token.
func (h *testInstances) endIteration(d int32) {
	in := &h.list[d]
	progress := h.tables.Instances[h.tables.InstanceOf(d)].ProgressTokens
	var finished, reports []int32
	in.running = slices.DeleteFunc(in.running, func(slot int32) bool {
		n := h.tokensOf(slot)
		*n++
		if *n >= h.truth.Tokens(h.batches.members(slot)[0]) {
			*n = 0
			finished = append(finished, slot)
			return true
		}
		if *n == 1 || *n%progress == 0 {
			reports = append(reports, slot)
		}
		return false
	})
	h.startIteration(d)
	for _, slot := range finished {
		b := h.batches.at(slot)
		b.isLive = false
		h.ending.batchRan(slot, d)
		h.beginBatchEvent(policy.BatchFinished, slot, d).End = h.agenda.now
		h.tellPolicy()
	}
	for _, slot := range reports {
		if h.batches.at(slot).isLive && slices.Contains(in.running, slot) {
			h.beginBatchEvent(policy.TokenProgress, slot, d).Tokens = *h.tokensOf(slot)
			h.tellPolicy()
		}
	}
}

func (h *testInstances) remove(slot int32) {
	in := &h.list[h.batches.hopAt(slot, 0).Device]
	same := func(s int32) bool { return s == slot }
	in.running, in.waiting = slices.DeleteFunc(in.running, same), slices.DeleteFunc(in.waiting, same)
}

func (h *testInstances) abort(slot int32) {
	*h.tokensOf(slot) = 0
	h.remove(slot)
}

func (h *testInstances) evict(slot int32, keep bool) {
	h.remove(slot)
	if !keep {
		*h.tokensOf(slot) = 0
	}
	b := h.batches.at(slot)
	h.agenda.schedule(h.agenda.now, policy.BatchReturned, b.serial, agendaEntry{kind: isEvicted, host: instanceHost, serial: b.serial, subject: slot, device: h.batches.hopAt(slot, 0).Device})
}

func (h *testInstances) handleOrder(o networkOrder) {
	h.failRun(fmt.Errorf("network %d: instances load none", o.network))
}
func (h *testInstances) bringInputs(task, device int32) { h.hosts[0].bringInputs(task, device) }

func (h *testInstances) setDeviceUp(d int32, back bool) {
	in := &h.list[d]
	if in.isDown != back {
		return
	}
	*in = instance{isDown: !back, epoch: in.epoch + 1, busyTime: in.busyTime}
	kind := policy.WorkerBack
	if !back {
		kind = policy.WorkerLost
	}
	ev := h.beginEvent(kind)
	ev.Device, ev.Value, ev.Limit = d, int64(h.tables.Instances[0].MaxSequences), int32(h.tables.Instances[0].KVTokens)
	h.tellPolicy()
}

func (h *testInstances) busyTime(d int32) time.Duration {
	return h.list[d].busyTime
}

func (h *testInstances) checkIdle() error {
	for d := range h.list {
		if in := &h.list[d]; in.busy || len(in.waiting) > 0 {
			return fmt.Errorf("instance on device %d still works when nothing is left to happen", d)
		}
	}
	return nil
}
