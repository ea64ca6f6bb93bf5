package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// Kinds of agenda entries of devices and links.
const (
	isRunEnd          uint8 = firstHostKind + iota // a run ends
	isTransferEnd                                  // a transfer ends
	isBatchStarted                                 // the policy hears that a batch started
	isBatchReturned                                // the policy gets a batch back whose network is not loaded
	isNetworkLoaded                                // a load of a network or of a session state ends
	isNetworkUnloaded                              // the policy hears of an unload
	isInputsBrought                                // the inputs of a task have arrived
	isGenerationEnd                                // an iteration of a language model ends
	isGenerationStart                              // an iteration of a language model may begin
	isRunReported                                  // the policy hears of a run that ended earlier
)

// deviceHost is the host of devices that run batches of stages, and of the links between
// them. A device runs one batch at a time, first-in first-out.
type deviceHost struct {
	loop         *loop
	agenda       *agenda
	ledger       *ledger
	batches      *batchTable
	tables       *policy.Tables
	service      Service
	tickObserver TickObserver // the service, or nil if it does not want the time
	idleObserver IdleObserver // the service, or nil if it does not want idle times
	servingTimes ServingTimes // the service, or nil if it has no times of serving
	devices      []device
	links        *linkNetwork
	loader       *networkLoader // nil as long as no network is loaded or unloaded
	engines      *llmEngines    // nil if no service is a language model
}

// device is a device with its queue of batches.
type device struct {
	firstWaiting, lastWaiting int32 // first and last batch in its queue, or -1
	runningBatch              int32 // batch that runs; -1 if there is none or it was aborted
	epoch                     int32 // counts the losses; an agenda entry of an earlier epoch is void
	busy                      bool
	isDown                    bool
	lastRunEnd                time.Duration
	busyTime                  time.Duration // in the counted time
}

// batchPlace is the place of a live batch.
type batchPlace uint8

const (
	atNoPlace batchPlace = iota
	waitsForDevice
	runsOnDevice
	generatesTokens // on a language model: it runs, or waits for the next iteration
	waitsForLinks
	crossesLinks
)

// newDeviceHost returns the host (the simulated part that runs batches) of all devices and links of the run. It
// finds out which optional interfaces the service has, that is, the model of run times. A loader is made if some
// device has limited memory.
func newDeviceHost(l *loop) *deviceHost {
	h := &deviceHost{
		loop: l, agenda: &l.agenda, ledger: &l.ledger, batches: &l.batches, tables: l.tables,
		service: l.cfg.Service, devices: make([]device, len(l.tables.Devices)),
	}
	if h.service == nil {
		h.service = ExactService(l.tables)
	}
	h.tickObserver, _ = h.service.(TickObserver)
	h.idleObserver, _ = h.service.(IdleObserver)
	h.servingTimes, _ = h.service.(ServingTimes)
	for i := range h.devices {
		h.devices[i] = device{firstWaiting: -1, lastWaiting: -1, runningBatch: -1}
	}
	h.links = newLinkNetwork(h)
	if slices.ContainsFunc(l.tables.Memory, func(bytes int64) bool { return bytes > 0 }) {
		h.loader = newNetworkLoader(h)
	}
	h.engines = newLLMEngines(h)
	return h
}

// handleEntry handles an agenda entry of this host: the end of a run, a transfer or a load, or news for the policy.
// Entries of batches that were aborted meanwhile (another serial number) and of lost devices (another epoch) are
// void. It implements host.
func (h *deviceHost) handleEntry(entry *agendaEntry) {
	switch entry.kind {
	// Runs and transfers.
	case isRunEnd:
		h.finishRun(entry)
	case isTransferEnd:
		h.links.finishTransfer(entry)

	// Events of a batch. They are void if the policy has aborted the batch.
	case isBatchStarted:
		if b := h.batches.at(entry.batch); b.live && b.serial == entry.serial {
			ev := h.loop.beginBatchEvent(policy.BatchStarted, entry.batch, entry.device)
			ev.Hop, ev.Start = b.firstStage+entry.hopIndex, entry.start
			h.loop.tellPolicy()
		}
	case isBatchReturned:
		if b := h.batches.at(entry.batch); b.live && b.serial == entry.serial {
			h.loop.returnBatchToPolicy(entry.batch, entry.device, policy.ReturnNotLoaded, nil)
		}

	// Networks.
	case isNetworkLoaded:
		h.loader.finishLoad(entry)
	case isNetworkUnloaded:
		if h.devices[entry.device].epoch == entry.epoch {
			ev := h.loop.beginEvent(policy.NetworkUnloaded)
			ev.Network, ev.Device, ev.Key = entry.batch, entry.device, entry.serial
			h.loop.tellPolicy()
		}

	// Iterations of language models.
	case isGenerationEnd, isGenerationStart:
		if h.devices[entry.device].epoch != entry.epoch {
			return // the device was lost meanwhile
		}
		if entry.kind == isGenerationEnd {
			h.engines.endIteration(entry.device)
		} else {
			h.engines.startIteration(entry.device)
		}
	case isRunReported:
		if b := h.batches.at(entry.batch); b.live && b.serial == entry.serial { // otherwise the policy has aborted it
			h.reportRun(entry)
		}

	// Inputs of tasks.
	case isInputsBrought:
		if !h.devices[entry.device].isDown {
			h.loop.flow.inputsArrived(entry)
		}
	}
}

// dispatch begins a batch of the policy: it joins the queue of its first device. A batch that begins behind the
// first stage of its pipeline is transferred from the device that has its last task's output. It implements host.
func (h *deviceHost) dispatch(slot int32) {
	b := h.batches.at(slot)
	hop := h.batches.hopAt(slot, 0)
	if b.firstStage = h.tables.Stages[hop.Stage].Hop; b.firstStage == 0 {
		if b.model >= 0 {
			h.ledger.acc.Batch(b.model, int(b.size), h.agenda.now)
		}
		h.queueRun(slot)
		return
	}
	b.sourceDevice = h.ledger.locations[h.batches.members(slot)[b.size-1]].device
	b.readyAt = h.agenda.now
	h.links.queueTransfer(slot)
}

// abort takes a batch that the policy aborts out of the queue in which it waits. A device or link that works on it
// goes on to the end: running work cannot be stopped. It implements host.
func (h *deviceHost) abort(slot int32) {
	b := h.batches.at(slot)
	hop := h.batches.hopAt(slot, b.hopIndex)
	switch b.place {
	case runsOnDevice:
		h.devices[hop.Device].runningBatch = -1
	case generatesTokens:
		h.engines.removeSequence(slot, hop.Device)
	case waitsForDevice:
		h.removeFromQueue(hop.Device, slot)
	case waitsForLinks:
		h.links.removeBatch(slot)
	}
	b.place = atNoPlace
}

// evict implements host. Only instances can evict, so it fails.
func (h *deviceHost) evict(slot int32, _ bool) {
	h.loop.failRun(fmt.Errorf("the policy evicts batch slot %d from device %d, which is no instance", slot, h.batches.hopAt(slot, 0).Device))
}

// handleOrder passes an order to load or unload a network to the loader, which is made at the first order. It
// implements host.
func (h *deviceHost) handleOrder(o networkOrder) {
	if h.loader == nil {
		h.loader = newNetworkLoader(h)
	}
	h.loader.handleOrder(o)
}

// bringInputs implements host: it schedules the arrival of a task's inputs at a device.
func (h *deviceHost) bringInputs(task, device int32) {
	h.agenda.scheduleAfter(h.loop.flow.bringTime(task, device), policy.TransferFinished, agendaEntry{kind: isInputsBrought, start: h.agenda.now, batch: task, device: device, epoch: h.ledger.tasks.List[task].Ticket})
}

// setDeviceUp implements host. When a device is lost, the batches that run or wait there are
// lost with it; the policy aborts them when it hears of it. Networks that were loaded while
// serving, and session states, are lost too.
func (h *deviceHost) setDeviceUp(d int32, up bool) {
	dev := &h.devices[d]
	if dev.isDown != up {
		return
	}
	dev.isDown = !up

	// Tell those who follow the devices.
	if h.loop.flow != nil && h.loop.flow.stats != nil {
		h.loop.flow.stats.deviceFault(d, up)
	}
	if h.loop.flow != nil && h.loop.flow.work != nil {
		h.loop.flow.work.deviceLost(d)
	}

	// Clear the device, and put the networks of the plan onto it again.
	kind := policy.WorkerBack
	if !up {
		kind = policy.WorkerLost
		h.clearQueue(dev)
		if h.engines != nil {
			h.engines.loseDevice(d)
		}
		if h.loader != nil {
			if h.loop.flow != nil && h.loop.flow.sessions != nil {
				h.loop.flow.sessions.deviceLost(d)
			}
			h.loader.memories[d].reset(h.tables, d)
		}
	}
	h.loop.beginEvent(kind).Device = d
	h.loop.tellPolicy()
}

// clearQueue removes all batches from a lost device. The new epoch makes the entries of its runs void. The policy
// aborts the batches when it hears of the loss.
func (h *deviceHost) clearQueue(dev *device) {
	dev.busy, dev.epoch, dev.lastRunEnd = false, dev.epoch+1, h.agenda.now
	if dev.runningBatch >= 0 {
		h.batches.at(dev.runningBatch).place = atNoPlace
		dev.runningBatch = -1
	}
	for b := dev.firstWaiting; b >= 0; b = h.batches.at(b).nextInDevice {
		h.batches.at(b).place = atNoPlace
	}
	dev.firstWaiting, dev.lastWaiting = -1, -1
}

// queueRun puts a batch into the queue of its hop's device, once its inputs are there, and starts it if the device
// is free. A sequence of a language model that runs there joins it at once.
func (h *deviceHost) queueRun(slot int32) {
	b := h.batches.at(slot)
	d := h.batches.hopAt(slot, b.hopIndex).Device
	dev := &h.devices[d]
	if dev.isDown {
		b.place = atNoPlace // lost with the device; the policy aborts it
		return
	}
	if h.engines != nil && h.engines.tryJoin(slot, d) {
		return
	}
	b.place, b.nextInDevice = waitsForDevice, -1
	if dev.lastWaiting < 0 {
		dev.firstWaiting = slot
	} else {
		h.batches.at(dev.lastWaiting).nextInDevice = slot
	}
	dev.lastWaiting = slot
	if !dev.busy {
		h.startNextRun(d)
	}
}

// startNextRun starts the first batch in the queue of a free device, if there is one. A batch whose network is not
// loaded there goes back to the policy, and the next one is tried.
func (h *deviceHost) startNextRun(d int32) {
	dev := &h.devices[d]
	slot := dev.firstWaiting
	if slot < 0 {
		return
	}
	b := h.batches.at(slot)

	// Take the batch out of the queue. It returns if its network is not there.
	dev.firstWaiting = b.nextInDevice
	if dev.firstWaiting < 0 {
		dev.lastWaiting = -1
	}
	if h.loader != nil && h.loader.lacksNetwork(slot, d) {
		b.place = atNoPlace
		h.agenda.schedule(h.agenda.now, policy.BatchReturned, b.serial, agendaEntry{kind: isBatchReturned, serial: b.serial, batch: slot, device: d})
		h.startNextRun(d)
		return
	}
	if h.loop.cfg.Verify && h.agenda.now < dev.lastRunEnd {
		h.loop.failRun(fmt.Errorf("device %d starts batch slot %d before it is free at %v", d, slot, dev.lastRunEnd))
	}

	// A language model takes the device until its sequences have ended.
	if h.engines != nil && h.engines.startModel(slot, d) {
		return
	}
	h.startRun(slot, d)
}

// startRun starts a batch on a device that is free. The service (model of run times) gives the time of the run;
// reportDelay is by how much later than its end the policy hears of it.
func (h *deviceHost) startRun(slot, d int32) {
	b, dev := h.batches.at(slot), &h.devices[d]
	dev.busy, dev.runningBatch = true, slot
	b.place = runsOnDevice

	// Ask the service how long the run takes.
	if h.tickObserver != nil {
		h.tickObserver.ObserveTime(h.agenda.now - h.loop.firstArrivalAt)
	}
	if h.idleObserver != nil {
		h.idleObserver.ObserveIdle(h.agenda.now - dev.lastRunEnd)
	}
	duration := h.service.RunTime(h.batches.hopAt(slot, b.hopIndex).Stage, b.size)
	if b.reportDelay = 0; h.servingTimes != nil {
		b.reportDelay = h.servingTimes.ReportDelay()
	}
	if h.loop.flow != nil {
		duration = h.loop.flow.batchTime(slot, duration)
	}

	// Schedule the end, and tell the policy of the start later in this instant.
	_, entry := h.agenda.heap.Add(h.agenda.now+duration, uint8(policy.BatchFinished), b.serial)
	*entry = agendaEntry{kind: isRunEnd, start: h.agenda.now, serial: b.serial, batch: slot, device: d, epoch: dev.epoch, hopIndex: b.hopIndex}
	begun := h.agenda.startedBatches.pushSlot()
	*begun = *entry
	begun.kind = isBatchStarted
}

// finishRun is called when a run on a device ends. The device takes its next batch. Once the policy hears of the
// end, at once or later by reportDelay, the batch goes on to its next hop (stage on a device) or has ended. Runs of
// an aborted batch only free the device.
func (h *deviceHost) finishRun(entry *agendaEntry) {
	dev := &h.devices[entry.device]
	if dev.epoch != entry.epoch {
		return // the device was lost meanwhile
	}
	dev.busyTime += h.loop.cfg.countedSpan().overlap(timeSpan{entry.start, h.agenda.now})
	dev.busy = false
	dev.lastRunEnd = h.agenda.now
	aborted := dev.runningBatch < 0
	dev.runningBatch = -1
	if aborted {
		h.startNextRun(entry.device)
		return
	}

	// If the policy hears of the end later, the device goes on meanwhile.
	b := h.batches.at(entry.batch)
	if h.loop.trace != nil {
		h.loop.trace.writeRun(entry.device, b.model, b.size, entry.start, h.agenda.now)
	}
	if b.reportDelay == 0 {
		h.reportRun(entry)
		return
	}
	b.place = atNoPlace
	reported := *entry
	reported.kind = isRunReported
	h.agenda.schedule(h.agenda.now+b.reportDelay, policy.BatchFinished, b.serial, reported)
	h.startNextRun(entry.device)
}

// reportRun ends a run for the policy: its batch goes on to the next hop (stage on a device) or has ended. A
// dispatch that covers only a part of the pipeline's stages ends as such a part, and its tasks wait for the next
// stage.
func (h *deviceHost) reportRun(entry *agendaEntry) {
	b := h.batches.at(entry.batch)
	model, service, isLastHop, hop, end := b.model, b.service, b.hopIndex+1 == b.numHops, b.firstStage+entry.hopIndex, h.agenda.now-b.reportDelay
	isPart := isLastHop && int32(hop)+1 < b.stages

	// Move the batch on, and let the device take its next one.
	switch {
	case isPart:
		h.returnPart(entry.batch, entry.device)
	case isLastHop:
		b.live, b.place = false, atNoPlace
	default:
		b.hopIndex++
		b.readyAt = h.agenda.now
		h.links.queueTransfer(entry.batch)
	}
	if !h.devices[entry.device].busy {
		h.startNextRun(entry.device)
	}

	// End the requests before the policy hears of the batch.
	if isLastHop && !isPart {
		h.loop.ending.batchRan(entry.batch, entry.device)
	}
	ev := h.loop.beginEvent(policy.BatchFinished)
	ev.Model, ev.Service, ev.Batch, ev.Hop, ev.Device, ev.Start, ev.End = model, service, entry.batch, hop, entry.device, entry.start, end
	h.loop.tellPolicy()
	h.onBatchEnd(entry.device)
}

// onBatchEnd does what waited for the end of a batch on a device: unloads, and dropping session states.
func (h *deviceHost) onBatchEnd(device int32) {
	if h.loader != nil {
		h.loader.unloadUnused(device)
	}
	if h.loop.flow != nil && h.loop.flow.sessions != nil {
		h.loop.flow.sessions.dropOverflow(device)
	}
}

// returnPart ends a batch that ran a part of its pipeline. Its tasks wait for another batch
// that takes them on from the device that holds their tensors.
func (h *deviceHost) returnPart(slot, device int32) {
	b := h.batches.at(slot)
	stage := h.batches.hopAt(slot, b.hopIndex).Stage
	for _, t := range h.batches.members(slot) {
		h.ledger.locations[t].lastStage, h.ledger.locations[t].device = stage, device
		if !h.ledger.leaveBatch(t, policy.TaskWaiting) && h.loop.flow != nil {
			h.ledger.tasks.ReleaseIfUnread(t)
		}
	}
	b.live, b.place = false, atNoPlace
}

// removeFromQueue takes an aborted batch out of the queue of a device, which is linked through the batches. The
// batch must be in it.
func (h *deviceHost) removeFromQueue(d, slot int32) {
	dev := &h.devices[d]
	previous := int32(-1)
	for b := dev.firstWaiting; b != slot; b = h.batches.at(b).nextInDevice {
		previous = b
	}
	next := h.batches.at(slot).nextInDevice
	if previous < 0 {
		dev.firstWaiting = next
	} else {
		h.batches.at(previous).nextInDevice = next
	}
	if next < 0 {
		dev.lastWaiting = previous
	}
}

// busyTime implements host.
func (h *deviceHost) busyTime(d int32) time.Duration { return h.devices[d].busyTime }

// checkIdle returns an error if a device still works, or its language model holds memory, at the end of a run: then
// the simulator has lost something. It implements host.
func (h *deviceHost) checkIdle() error {
	for d := range h.devices {
		if dev := &h.devices[d]; dev.busy || dev.firstWaiting >= 0 {
			return fmt.Errorf("device %d still works when nothing is left to happen", d)
		}
		if h.engines != nil {
			if e := &h.engines.engines[d]; e.service >= 0 || e.instance.UsedKV() > 0 {
				return fmt.Errorf("the language model on device %d is empty and uses %d tokens of KV memory", d, e.instance.UsedKV())
			}
		}
	}
	return nil
}
