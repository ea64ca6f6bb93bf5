package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// Kinds of agenda entries of devices and links.
const (
	isRun        uint8 = ofHost + iota // a run ends
	isTransfer                         // a transfer ends
	isBegun                            // the policy hears that a batch started
	isReturned                         // the policy gets a batch back whose network is not loaded
	isLoaded                           // a load of a network or of a session state ends
	isUnloaded                         // the policy hears of an unload
	isPlaced                           // the inputs of a task have arrived
	isIterated                         // an iteration of a language model ends
	isGenerating                       // an iteration of a language model may begin
	isTold                             // the policy hears of a run that ended earlier
)

// deviceHost is the host of devices that run batches of stages, and of the links between
// them. A device runs one batch at a time, first-in first-out.
type devices struct {
	*loop
	service Service
	clock   Clocked // the service, or nil if it does not want the time
	rested  Rested  // the service, or nil if it does not want idle times
	served  Served  // the service, or nil if it has no times of serving
	list    []device
	links   []link
	crossed transferTimes
	storage *storage // nil as long as no network is loaded or unloaded
	engines *engines // nil if no service is a language model
}

// device is a device with its queue of batches.
type device struct {
	head, last int32 // first and last batch in its queue, or -1
	current    int32 // batch that runs; -1 if there is none or it was aborted
	epoch      int32 // counts the losses; an agenda entry of an earlier epoch is void
	busy       bool
	down       bool
	ranUntil   time.Duration
	running    time.Duration // in the counted time
}

// batchPlace is the place of a live batch.
type place uint8

const (
	nowhere place = iota
	waitsForDevice
	runs
	generates // on a language model: it runs, or waits for the next iteration
	waitsForLinks
	crosses
)

// newDeviceHost returns the host of all devices and links of the run.
func newDevices(l *loop) *devices {
	h := &devices{loop: l, service: l.cfg.Service, list: make([]device, len(l.t.Devices)), links: make([]link, len(l.t.Links))}
	if h.service == nil {
		h.service = Exact(l.t)
	}
	h.clock, _ = h.service.(Clocked)
	h.rested, _ = h.service.(Rested)
	h.served, _ = h.service.(Served)
	for i := range h.list {
		h.list[i] = device{head: -1, last: -1, current: -1}
	}
	for i := range h.links {
		h.links[i] = link{head: -1, last: -1}
	}
	if slices.ContainsFunc(l.t.Memory, func(bytes int64) bool { return bytes > 0 }) {
		h.storage = newStorage(h)
	}
	h.engines = newEngines(h)
	return h
}

// handleEntry implements host.
func (h *devices) due(it *item) {
	switch it.what {
	// Runs and transfers.
	case isRun:
		h.runFinished(it)
	case isTransfer:
		h.transferFinished(it)

	// Events of a batch. They are void if the policy has aborted the batch.
	case isBegun:
		if b := &h.batches[it.batch]; b.live && b.serial == it.serial {
			ev := h.beginBatch(policy.BatchStarted, it.batch, it.device)
			ev.Hop, ev.Start = b.first+it.hop, it.start
			h.tell()
		}
	case isReturned:
		if b := &h.batches[it.batch]; b.live && b.serial == it.serial {
			h.returned(it.batch, it.device, policy.ReturnNotLoaded, nil)
		}

	// Networks.
	case isLoaded:
		h.storage.ended(it)
	case isUnloaded:
		if h.list[it.device].epoch == it.epoch {
			ev := h.begin(policy.NetworkUnloaded)
			ev.Network, ev.Device, ev.Key = it.batch, it.device, it.serial
			h.tell()
		}

	// Iterations of language models.
	case isIterated, isGenerating:
		if h.list[it.device].epoch != it.epoch {
			return // the device was lost meanwhile
		}
		if it.what == isIterated {
			h.engines.iterated(it.device)
		} else {
			h.engines.start(it.device)
		}
	case isTold:
		if b := &h.batches[it.batch]; b.live && b.serial == it.serial { // otherwise the policy has aborted it
			h.ended(it)
		}

	// Inputs of tasks.
	case isPlaced:
		if !h.list[it.device].down {
			h.flow.arrived(it)
		}
	}
}

// dispatch implements host. A batch that begins behind the first stage is sent to its device first.
func (h *devices) dispatch(slot int32) {
	b := &h.batches[slot]
	hop := h.hop(slot, 0)
	if b.first = h.t.Stages[hop.Stage].Hop; b.first == 0 {
		if b.model >= 0 {
			h.acc.Batch(b.model, int(b.size), h.now)
		}
		h.queueRun(slot)
		return
	}
	b.from = h.spots[h.members(slot)[b.size-1]].device
	b.readyAt = h.now
	h.queueTransfer(slot)
}

// abort implements host. It takes the batch out of the queue in which it waits. A device or
// link that works on it goes on to the end: running work cannot be stopped.
func (h *devices) abort(slot int32) {
	b := &h.batches[slot]
	hop := h.hop(slot, b.hop)
	switch b.at {
	case runs:
		h.list[hop.Device].current = -1
	case generates:
		h.engines.remove(slot, hop.Device)
	case waitsForDevice:
		h.leaveDevice(hop.Device, slot)
	case waitsForLinks:
		h.leaveLinks(slot)
	}
	b.at = nowhere
}

// evict implements host. Only instances can evict, so it fails.
func (h *devices) evict(slot int32, _ bool) {
	h.fail(fmt.Errorf("the policy evicts batch slot %d from device %d, which is no instance", slot, h.hop(slot, 0).Device))
}

// handleOrder implements host.
func (h *devices) load(o order) {
	if h.storage == nil {
		h.storage = newStorage(h)
	}
	h.storage.load(o)
}

// bringInputs implements host: it schedules the arrival of a task's inputs at a device.
func (h *devices) place(task, device int32) {
	h.at(h.now+h.flow.takes(task, device), policy.TransferFinished, h.sequence(), item{what: isPlaced, start: h.now, batch: task, device: device, epoch: h.tasks.List[task].Ticket})
}

// setDeviceUp implements host. When a device is lost, the batches that run or wait there are
// lost with it; the policy aborts them when it hears of it. Networks that were loaded while
// serving, and session states, are lost too.
func (h *devices) fault(d int32, back bool) {
	dev := &h.list[d]
	if dev.down != back {
		return
	}
	dev.down = !back

	// Tell those who follow the devices.
	if h.flow != nil && h.flow.stats != nil {
		h.flow.stats.fault(d, back)
	}
	if h.flow != nil && h.flow.work != nil {
		h.flow.work.lost(d)
	}

	// Clear the device, and put the networks of the plan onto it again.
	kind := policy.WorkerBack
	if !back {
		kind = policy.WorkerLost
		h.empty(dev)
		if h.engines != nil {
			h.engines.lost(d)
		}
		if h.storage != nil {
			if h.flow != nil && h.flow.kept != nil {
				h.flow.kept.lost(d)
			}
			h.storage.by[d].begin(h.t, d)
		}
	}
	h.begin(kind).Device = d
	h.tell()
}

// clearQueue removes all batches from a device.
func (h *devices) empty(dev *device) {
	dev.busy, dev.epoch, dev.ranUntil = false, dev.epoch+1, h.now
	if dev.current >= 0 {
		h.batches[dev.current].at = nowhere
		dev.current = -1
	}
	for b := dev.head; b >= 0; b = h.batches[b].nextRun {
		h.batches[b].at = nowhere
	}
	dev.head, dev.last = -1, -1
}

// queueRun puts a batch into the queue of the device of its hop.
func (h *devices) queueRun(slot int32) {
	b := &h.batches[slot]
	d := h.hop(slot, b.hop).Device
	dev := &h.list[d]
	if dev.down {
		b.at = nowhere // lost with the device; the policy aborts it
		return
	}
	if h.engines != nil && h.engines.joins(slot, d) {
		return
	}
	b.at, b.nextRun = waitsForDevice, -1
	if dev.last < 0 {
		dev.head = slot
	} else {
		h.batches[dev.last].nextRun = slot
	}
	dev.last = slot
	if !dev.busy {
		h.startRun(d)
	}
}

// startNextRun starts the first batch in a device's queue, if there is one.
func (h *devices) startRun(d int32) {
	dev := &h.list[d]
	slot := dev.head
	if slot < 0 {
		return
	}
	b := &h.batches[slot]

	// Take the batch out of the queue. It returns if its network is not there.
	dev.head = b.nextRun
	if dev.head < 0 {
		dev.last = -1
	}
	if h.storage != nil && h.storage.lacks(slot, d) {
		b.at = nowhere
		h.at(h.now, policy.BatchReturned, b.serial, item{what: isReturned, serial: b.serial, batch: slot, device: d})
		h.startRun(d)
		return
	}
	if h.cfg.Verify && h.now < dev.ranUntil {
		h.fail(fmt.Errorf("device %d starts batch slot %d before it is free at %v", d, slot, dev.ranUntil))
	}

	// A language model takes the device until its sequences have ended.
	if h.engines != nil && h.engines.begin(slot, d) {
		return
	}
	dev.busy, dev.current = true, slot
	b.at = runs

	// Ask the service how long the run takes.
	if h.clock != nil {
		h.clock.Tick(h.now - h.firstAt)
	}
	if h.rested != nil {
		h.rested.Idle(h.now - dev.ranUntil)
	}
	took := h.service.Run(h.hop(slot, b.hop).Stage, b.size)
	if b.late = 0; h.served != nil {
		b.late = h.served.Told()
	}
	if h.flow != nil {
		took = h.flow.stretched(slot, took)
	}

	// Schedule the end, and tell the policy of the start later in this instant.
	_, it := h.heap.Add(h.now+took, uint8(policy.BatchFinished), b.serial)
	*it = item{what: isRun, start: h.now, serial: b.serial, batch: slot, device: d, epoch: dev.epoch, hop: b.hop}
	begun := h.begun.add()
	*begun = *it
	begun.what = isBegun
}

// finishRun ends a run: the device takes its next batch. The ended batch goes on to its next
// hop, or has ended, once the policy hears of it.
func (h *devices) runFinished(it *item) {
	dev := &h.list[it.device]
	if dev.epoch != it.epoch {
		return // the device was lost meanwhile
	}
	dev.ran(h.cfg, it.start, h.now)
	dev.busy = false
	dev.ranUntil = h.now
	aborted := dev.current < 0
	dev.current = -1
	if aborted {
		h.startRun(it.device)
		return
	}

	// If the policy hears of the end later, the device goes on meanwhile.
	b := &h.batches[it.batch]
	if h.trace != nil {
		h.trace.run(it.device, b.model, b.size, it.start, h.now)
	}
	if b.late == 0 {
		h.ended(it)
		return
	}
	b.at = nowhere
	late := *it
	late.what = isTold
	h.at(h.now+b.late, policy.BatchFinished, b.serial, late)
	h.startRun(it.device)
}

// reportRun ends a run for the policy: its batch goes on to the next hop, has ended, or ends
// as a part of its pipeline.
func (h *devices) ended(it *item) {
	b := &h.batches[it.batch]
	model, service, last, hop, end := b.model, b.service, b.hop+1 == b.numHops, b.first+it.hop, h.now-b.late
	part := last && int32(hop)+1 < b.stages

	// Move the batch on, and let the device take its next one.
	switch {
	case part:
		h.handBack(it.batch, it.device)
	case last:
		b.live, b.at = false, nowhere
	default:
		b.hop++
		b.readyAt = h.now
		h.queueTransfer(it.batch)
	}
	if !h.list[it.device].busy {
		h.startRun(it.device)
	}

	// End the requests before the policy hears of the batch.
	if last && !part {
		h.ending.ran(it.batch, it.device)
	}
	ev := h.begin(policy.BatchFinished)
	ev.Model, ev.Service, ev.Batch, ev.Hop, ev.Device, ev.Start, ev.End = model, service, it.batch, hop, it.device, it.start, end
	h.tell()
	h.freed(it.device)
}

// onBatchEnd does what waited for the end of a batch on a device: unloads, and dropping session states.
func (h *devices) freed(device int32) {
	if h.storage != nil {
		h.storage.retire(device)
	}
	if h.flow != nil && h.flow.kept != nil {
		h.flow.kept.fit(device)
	}
}

// addBusyTime adds the part of a run that lies in the counted time.
func (dev *device) ran(cfg *Config, from, to time.Duration) {
	from = max(from, cfg.Warmup)
	if cfg.Duration > 0 {
		to = min(to, cfg.Duration)
	}
	dev.running += max(0, to-from)
}

// returnPart ends a batch that ran a part of its pipeline. Its tasks wait for another batch
// that takes them on from the device that holds their tensors.
func (h *devices) handBack(slot, device int32) {
	b := &h.batches[slot]
	stage := h.hop(slot, b.hop).Stage
	for _, t := range h.members(slot) {
		h.spots[t].stage, h.spots[t].device = stage, device
		if !h.leave(t, policy.TaskWaiting) && h.flow != nil {
			h.tasks.Left(t)
		}
	}
	b.live, b.at = false, nowhere
}

// removeFromQueue takes a batch out of the queue of a device.
func (h *devices) leaveDevice(d, slot int32) {
	dev := &h.list[d]
	before := int32(-1)
	for b := dev.head; b != slot; b = h.batches[b].nextRun {
		before = b
	}
	next := h.batches[slot].nextRun
	if before < 0 {
		dev.head = next
	} else {
		h.batches[before].nextRun = next
	}
	if next < 0 {
		dev.last = before
	}
}

// busyTime implements host.
func (h *devices) running(d int32) time.Duration { return h.list[d].running }

// checkIdle implements host.
func (h *devices) finish() error {
	for d := range h.list {
		if dev := &h.list[d]; dev.busy || dev.head >= 0 {
			return fmt.Errorf("device %d still works when nothing is left to happen", d)
		}
		if h.engines != nil {
			if e := &h.engines.by[d]; e.service >= 0 || e.in.UsedKV() > 0 {
				return fmt.Errorf("the language model on device %d is empty and uses %d tokens of KV memory", d, e.in.UsedKV())
			}
		}
	}
	return nil
}
