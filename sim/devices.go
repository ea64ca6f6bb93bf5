package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/policy"
)

// Kinds of agenda entries of devices and links.
const (
	runEndEntry          uint8 = firstHostKind + iota // a run ends
	transferEndEntry                                  // a transfer ends
	batchStartedEntry                                 // the policy hears that a batch started
	batchReturnedEntry                                // the policy gets a batch back whose network is not loaded
	loadEndEntry                                      // a load of a network or of a session state ends
	unloadedEntry                                     // the policy hears of an unload
	inputsArrivedEntry                                // the inputs of a task have arrived
	generationEndEntry                                // an iteration of a language model ends
	generationStartEntry                              // an iteration of a language model may begin
	runReportedEntry                                  // the policy hears of a run that ended earlier
)

// deviceHost is the host of devices that run batches of stages, and of the links between them. A device runs one
// batch at a time, first-in first-out. A batch goes from hop to hop: a hop is one of its stages on a device, with the
// transfer into it.
type deviceHost struct {
	*loop
	service Service
	devices []device
	links   *linkNetwork
	loader  *networkLoader // nil as long as no network is loaded or unloaded
	engines *llmEngines    // nil if no service is a language model
}

// device is the state of a device with its queue of batches.
type device struct {
	waiting      batchLine
	runningBatch int32         // slot of the batch that runs; -1 if there is none or it was aborted
	faultEpoch   int32         // counts the losses; an agenda entry of an earlier epoch is void
	busy         bool          // a run, or a language model, occupies it
	isDown       bool          // it has failed and not come back
	lastRunEnd   time.Duration // when its last run ended
	busyTime     time.Duration // in the counted time
}

// batchActivity says what a batch that is under way does now.
type batchActivity uint8

const (
	noActivity batchActivity = iota
	waitsForDevice
	runsOnDevice
	generatesTokens // on a language model: it runs, or waits for the next iteration
	waitsForLinks
	crossesLinks
)

// newDeviceHost returns the host (the simulated part that runs batches) of all devices and links of a run. A loader of
// networks is made if some device has limited memory.
func newDeviceHost(loop *loop) *deviceHost {
	host := &deviceHost{
		loop: loop, service: loop.cfg.Service, devices: make([]device, len(loop.tables.Devices)),
	}
	if host.service == nil {
		host.service = ExactService(loop.tables)
	}
	for i := range host.devices {
		host.devices[i] = device{waiting: batchLine{-1, -1}, runningBatch: -1}
	}
	host.links = newLinkNetwork(host)
	if slices.ContainsFunc(loop.tables.Memory, func(bytes int64) bool { return bytes > 0 }) {
		host.loader = newNetworkLoader(host)
	}
	host.engines = newLLMEngines(host)
	return host
}

// handleEntry handles an agenda entry of this host that is due: the end of a run, a transfer or a load, or news for the
// policy. An entry is void if its batch was aborted meanwhile (the slot's batch has another serial number) or its device
// was lost (it has another fault epoch). It implements host. processEntry of the loop calls it.
func (h *deviceHost) handleEntry(entry *agendaEntry) {
	// The kind says which of the entry's fields have a meaning, see agendaEntry.
	switch entry.kind {
	// Runs and transfers.
	case runEndEntry:
		h.finishRun(entry)
	case transferEndEntry:
		h.links.finishTransfer(entry)

	// Events of a batch. They are void if the policy has aborted the batch.
	case batchStartedEntry:
		if batch := h.batches.at(entry.batchSlot()); batch.isLive && batch.serial == entry.serial {
			ev := h.loop.beginBatchEvent(policy.BatchStarted, entry.batchSlot(), entry.device)
			ev.Hop, ev.Start = batch.firstStage+entry.hopIndex, entry.start
			h.loop.tellPolicy()
		}
	case batchReturnedEntry:
		if batch := h.batches.at(entry.batchSlot()); batch.isLive && batch.serial == entry.serial {
			h.loop.returnBatchToPolicy(entry.batchSlot(), entry.device, policy.ReturnNotLoaded, nil)
		}

	// Networks.
	case loadEndEntry:
		h.loader.finishLoad(entry)
	case unloadedEntry:
		if h.devices[entry.device].faultEpoch == entry.epoch {
			ev := h.loop.beginEvent(policy.NetworkUnloaded)
			ev.Network, ev.Device, ev.Key = entry.network(), entry.device, entry.orderKey()
			h.loop.tellPolicy()
		}

	// Iterations of language models.
	case generationEndEntry, generationStartEntry:
		if h.devices[entry.device].faultEpoch != entry.epoch {
			return // the device was lost meanwhile
		}
		if entry.kind == generationEndEntry {
			h.engines.endIteration(entry.device)
		} else {
			h.engines.startIteration(entry.device)
		}
	case runReportedEntry:
		if batch := h.batches.at(entry.batchSlot()); batch.isLive && batch.serial == entry.serial { // otherwise the policy has aborted it
			h.reportRun(entry)
		}

	// Inputs of tasks.
	case inputsArrivedEntry:
		if !h.devices[entry.device].isDown {
			h.loop.flow.inputsArrived(entry)
		}
	}
}

// dispatch is called when the policy has dispatched the batch in a slot. The host then has the batch until its last hop
// (stage on a device) has ended. A batch that begins at the first stage of its pipeline joins the queue of its first
// device. One that begins at a later stage has tasks for which earlier batches have run the stages before. It is first
// transferred, as a whole, from the device that holds the tensors of its last task. It implements host.
func (h *deviceHost) dispatch(batchSlot int32) {
	batch := h.batches.at(batchSlot)
	hop := h.batches.hopAt(batchSlot, 0)
	batch.firstStage = h.tables.Stages[hop.Stage].Hop // position in the pipeline of the first stage that the batch runs
	if batch.firstStage == 0 {
		if batch.model >= 0 { // the report counts the batches of single models
			h.ledger.reportCounts.Batch(batch.model, int(batch.size), h.agenda.now)
		}
		h.queueRun(batchSlot)
		return
	}

	// It begins at a later stage: fetch the tensors of its tasks first, all from one device.
	lastTask := h.batches.members(batchSlot)[batch.size-1]
	batch.sourceDevice = h.ledger.locations[lastTask].device
	batch.readyAt = h.agenda.now
	h.links.queueTransfer(batchSlot)
}

// abort takes a batch that the policy aborts out of the queue in which it waits. A device or link that works on it
// goes on to the end: running work cannot be stopped. It implements host.
func (h *deviceHost) abort(batchSlot int32) {
	batch := h.batches.at(batchSlot)
	hop := h.batches.hopAt(batchSlot, batch.hopIndex)
	switch batch.activity {
	case runsOnDevice:
		h.devices[hop.Device].runningBatch = -1 // finishRun sees that it was aborted
	case generatesTokens:
		h.engines.removeSequence(batchSlot, hop.Device)
	case waitsForDevice:
		h.batches.leaveLine(&h.devices[hop.Device].waiting, deviceLine, batchSlot)
	case waitsForLinks:
		h.links.removeBatch(batchSlot)
	}
	batch.activity = noActivity
}

// evict ends the run with an error, because only instances of language models can evict. It implements host.
func (h *deviceHost) evict(batchSlot int32, _ bool) {
	h.loop.failRun(fmt.Errorf("the policy evicts batch slot %d from device %d, which is no instance", batchSlot, h.batches.hopAt(batchSlot, 0).Device))
}

// handleOrder passes an order of the policy to load or unload a network to the loader, which is made at the first
// order. It implements host.
func (h *deviceHost) handleOrder(order networkOrder) {
	if h.loader == nil {
		h.loader = newNetworkLoader(h)
	}
	h.loader.handleOrder(order)
}

// bringInputs is called when all inputs of a task are ready that the policy has placed on a device. It schedules the time
// at which they have arrived there. The entry is void if the task has another ticket by then, because it was placed
// elsewhere or has ended. It implements host.
func (h *deviceHost) bringInputs(task, device int32) {
	ticket := h.ledger.tasks.List[task].Ticket
	h.agenda.scheduleAfter(h.loop.flow.bringTime(task, device), policy.TransferFinished, agendaEntry{kind: inputsArrivedEntry, start: h.agenda.now, subject: task, device: device, epoch: ticket})
}

// setDeviceUp makes a device fail (up is false) or come back (true), when a fault of the run is due, and tells the
// policy. When a device is lost, the batches that run or wait there are lost with it; the policy aborts them when it
// hears of it. The device forgets the networks that were loaded while serving, and comes back with those of the plan.
// Session states (what services keep of requests there) are lost, too. It implements host.
func (h *deviceHost) setDeviceUp(deviceIndex int32, up bool) {
	device := &h.devices[deviceIndex]
	isUp := !device.isDown
	if isUp == up {
		return // it is in that state already
	}
	device.isDown = !up

	// Tell the statistics of the run, as far as it has these: those of applications, and those of the work of workflows.
	// For the latter a device that fails or comes back has no load under way.
	if h.loop.flow != nil && h.loop.flow.stats != nil {
		h.loop.flow.stats.deviceFault(deviceIndex, up)
	}
	if h.loop.flow != nil && h.loop.flow.work != nil {
		h.loop.flow.work.deviceLost(deviceIndex)
	}

	// Clear a lost device: its queue, its language model, its session states and its memory. The memory gets the networks
	// of the plan at once, with which the device comes back.
	kind := policy.WorkerBack
	if !up {
		kind = policy.WorkerLost
		h.clearQueue(device)
		h.loop.frontEnd.endRun(h.agenda.now, deviceIndex)
		if h.engines != nil {
			h.engines.loseDevice(deviceIndex)
		}
		if h.loader != nil {
			if h.loop.flow != nil && h.loop.flow.sessions != nil {
				h.loop.flow.sessions.deviceLost(deviceIndex)
			}
			h.loader.memories[deviceIndex].reset(h.tables, deviceIndex)
		}
	}
	h.loop.beginEvent(kind).Device = deviceIndex
	h.loop.tellPolicy()
}

// clearQueue is called when a device is lost, and removes all batches from it. The new fault epoch makes the agenda
// entries of its runs void. The policy aborts the batches when it hears of the loss.
func (h *deviceHost) clearQueue(device *device) {
	device.faultEpoch++
	device.busy, device.lastRunEnd = false, h.agenda.now
	if device.runningBatch >= 0 {
		h.batches.at(device.runningBatch).activity = noActivity
		device.runningBatch = -1
	}
	for batchSlot := device.waiting.first; batchSlot >= 0; batchSlot = h.batches.at(batchSlot).nextInLine[deviceLine] {
		h.batches.at(batchSlot).activity = noActivity
	}
	device.waiting = batchLine{-1, -1}
}

// queueRun is called when a batch has reached the device of its current hop (stage on a device), with its tensors. It puts
// the batch into the queue of that device, and starts it if the device is free. A sequence for the language model that
// runs there joins it at once instead.
func (h *deviceHost) queueRun(batchSlot int32) {
	batch := h.batches.at(batchSlot)
	deviceIndex := h.batches.hopAt(batchSlot, batch.hopIndex).Device
	device := &h.devices[deviceIndex]
	if device.isDown {
		batch.activity = noActivity // lost with the device; the policy aborts it
		return
	}

	// A sequence joins the language model that runs there.
	if h.engines != nil && h.engines.tryJoin(batchSlot, deviceIndex) {
		return
	}

	// Append the batch to the queue, and start it on a free device.
	batch.activity = waitsForDevice
	h.batches.joinLine(&device.waiting, deviceLine, batchSlot)
	if !device.busy {
		h.startNextRun(deviceIndex)
	}
}

// startNextRun is called when a device has become free or a batch has reached a free one. It starts the first batch in
// the queue, if there is one. A batch whose network is not loaded there goes back to the policy, later in this instant,
// and the next one is tried.
func (h *deviceHost) startNextRun(deviceIndex int32) {
	device := &h.devices[deviceIndex]
	batchSlot := device.waiting.first
	if batchSlot < 0 {
		return
	}
	batch := h.batches.at(batchSlot)

	// Take the batch out of the queue. It returns if its network is not there.
	h.batches.leaveLine(&device.waiting, deviceLine, batchSlot)
	if h.loader != nil && h.loader.lacksNetwork(batchSlot, deviceIndex) {
		batch.activity = noActivity
		h.agenda.schedule(h.agenda.now, policy.BatchReturned, batch.serial, agendaEntry{kind: batchReturnedEntry, serial: batch.serial, subject: batchSlot, device: deviceIndex})
		h.startNextRun(deviceIndex)
		return
	}
	if h.loop.cfg.Verify && h.agenda.now < device.lastRunEnd {
		h.loop.failRun(fmt.Errorf("device %d starts batch slot %d before it is free at %v", deviceIndex, batchSlot, device.lastRunEnd))
	}

	// A language model takes the device until its sequences have ended.
	if h.engines != nil && h.engines.startModel(batchSlot, deviceIndex) {
		return
	}
	h.startRun(batchSlot, deviceIndex)
}

// startRun is called when a batch is the first in the queue of a free device: it starts the run. The service, which is
// the model of the times that work takes, says how long the run takes, and how much later than at its end the policy
// hears of it (batch.reportDelay). Both ends of the run are put on the agenda: its end, and the news of its start, which
// the policy gets later in this instant.
func (h *deviceHost) startRun(batchSlot, deviceIndex int32) {
	batch, device := h.batches.at(batchSlot), &h.devices[deviceIndex]
	device.busy, device.runningBatch = true, batchSlot
	batch.activity = runsOnDevice
	h.loop.frontEnd.startRun(h.agenda.now, deviceIndex)

	// Tell the service the time since the first request, and how long the device was idle. Its answers may depend on them.
	h.service.ObserveStart(h.agenda.now-h.loop.firstArrivalAt, h.agenda.now-device.lastRunEnd)

	// Ask it how long the run takes, and when the policy hears of its end. In runs whose requests have several tasks
	// (loop.flow), tasks of more than the usual work and missing session states make the run longer.
	duration := h.service.RunTime(h.batches.hopAt(batchSlot, batch.hopIndex).Stage, batch.size)
	batch.reportDelay = h.service.ReportDelay()
	if h.loop.flow != nil {
		duration = h.loop.flow.batchTime(batchSlot, duration)
	}

	// Schedule the end. Entries of one instant come by the kind of event that they mean to the policy, here BatchFinished,
	// and then by the serial number of the batch. The entry of the start is a copy with another kind, and is due at once:
	// such entries have a queue of their own.
	entry := h.agenda.scheduleInPlace(h.agenda.now+duration, policy.BatchFinished, batch.serial)
	*entry = agendaEntry{kind: runEndEntry, start: h.agenda.now, serial: batch.serial, subject: batchSlot, device: deviceIndex, epoch: device.faultEpoch, hopIndex: batch.hopIndex}
	startedEntry := h.agenda.startedBatches.Add()
	*startedEntry = *entry
	startedEntry.kind = batchStartedEntry
}

// finishRun is called when a run on a device ends, by its entry on the agenda. The device takes its next batch. Once the
// policy hears of the end, at once or later by batch.reportDelay, the batch goes on to its next hop (stage on a device)
// or has ended. The run of an aborted batch only frees the device.
func (h *deviceHost) finishRun(entry *agendaEntry) {
	device := &h.devices[entry.device]
	if device.faultEpoch != entry.epoch {
		return // the device was lost meanwhile
	}
	device.busyTime += h.loop.cfg.countedSpan().overlap(timeSpan{entry.start, h.agenda.now})
	h.loop.frontEnd.endRun(h.agenda.now, entry.device)
	device.busy = false
	device.lastRunEnd = h.agenda.now
	aborted := device.runningBatch < 0 // abort leaves the device busy without a batch
	device.runningBatch = -1
	if aborted {
		h.startNextRun(entry.device)
		return
	}

	// Write the run into the trace, if there is one. If the policy hears of the end later, the device goes on meanwhile.
	batch := h.batches.at(entry.batchSlot())
	if h.loop.trace != nil {
		h.loop.trace.writeRun(entry.device, batch, entry.start, h.agenda.now)
	}
	if batch.reportDelay == 0 {
		h.reportRun(entry)
		return
	}
	batch.activity = noActivity
	reported := *entry
	reported.kind = runReportedEntry
	h.agenda.schedule(h.agenda.now+batch.reportDelay, policy.BatchFinished, batch.serial, reported)
	h.startNextRun(entry.device)
}

// reportRun is called when the policy hears of the end of a run, which entry is about: the batch goes on to the next
// hop (stage on a device) or has ended. A batch that was dispatched to only a part of the pipeline's stages ends as
// such a part, and its tasks wait for another batch. Indexes of hops count from the first stage that the batch runs
// (batch.firstStage); the policy is told the position of the stage in the pipeline.
func (h *deviceHost) reportRun(entry *agendaEntry) {
	batch := h.batches.at(entry.batchSlot())

	// Note what the event will say, because the batch changes below. batch.hopIndex is still the hop of the entry. If the
	// policy hears of the run later than at its end, it ended reportDelay ago. isLastHop says that the batch was
	// dispatched no further, and isPart that its pipeline has more stages behind this one.
	model, service, stagePosition := batch.model, batch.service, batch.firstStage+entry.hopIndex
	end := h.agenda.now - batch.reportDelay
	isLastHop := batch.hopIndex+1 == batch.numHops
	isPart := isLastHop && int32(stagePosition)+1 < batch.stages

	// Move the batch on, and let the device take its next one.
	switch {
	case isPart:
		h.returnPart(entry.batchSlot(), entry.device)
	case isLastHop:
		batch.isLive, batch.activity = false, noActivity
	default:
		batch.hopIndex++
		batch.readyAt = h.agenda.now
		h.links.queueTransfer(entry.batchSlot())
	}
	if !h.devices[entry.device].busy {
		h.startNextRun(entry.device)
	}

	// Apply the rule of the run by which requests end: it answers those of the batch, or reveals the tasks that follow.
	// Then tell the policy of the run, and do what waited for that.
	if isLastHop && !isPart {
		h.loop.ending.batchRan(entry.batchSlot(), entry.device)
	}
	ev := h.loop.beginEvent(policy.BatchFinished)
	ev.Model, ev.Service, ev.Batch, ev.Hop = model, service, entry.batchSlot(), stagePosition
	ev.Device, ev.Start, ev.End = entry.device, entry.start, end
	h.loop.tellPolicy()
	h.resumeAfterBatch(entry.device)
}

// resumeAfterBatch is called when a batch has ended a run on a device and the policy has heard of it. It carries out
// what waited for that: unloads of networks, and drops of session states (what services keep of requests) for which
// there is no memory.
func (h *deviceHost) resumeAfterBatch(device int32) {
	if h.loader != nil {
		h.loader.unloadUnused(device)
	}
	if h.loop.flow != nil && h.loop.flow.sessions != nil {
		h.loop.flow.sessions.dropOverflow(device)
	}
}

// returnPart ends a batch that has run its last hop, on a device, although its pipeline has further stages. Its tasks
// wait for another batch that takes them on from that device, which holds their tensors.
func (h *deviceHost) returnPart(batchSlot, device int32) {
	batch := h.batches.at(batchSlot)
	stage := h.batches.hopAt(batchSlot, batch.hopIndex).Stage

	// Note where the tensors of its tasks are. A task whose request has ended meanwhile waits no longer, and its slot is
	// freed unless other tasks have yet to read its output.
	for _, task := range h.batches.members(batchSlot) {
		h.ledger.locations[task].lastStage, h.ledger.locations[task].device = stage, device
	}
	h.loop.endWithoutResult(batchSlot)
	batch.activity = noActivity
}

// busyTime returns how long a device ran in the counted time. It implements host.
func (h *deviceHost) busyTime(deviceIndex int32) time.Duration {
	return h.devices[deviceIndex].busyTime
}

// checkIdle is called at the end of a run. It returns an error if a device still works, or its language model holds
// memory: then the simulator has lost something. It implements host. A service of -1 means that no language model runs
// on a device.
func (h *deviceHost) checkIdle() error {
	for deviceIndex := range h.devices {
		if device := &h.devices[deviceIndex]; device.busy || device.waiting.first >= 0 {
			return fmt.Errorf("device %d still works when nothing is left to happen", deviceIndex)
		}
		if h.engines != nil {
			if engine := &h.engines.engines[deviceIndex]; engine.service >= 0 || engine.simulation.UsedKV() > 0 {
				return fmt.Errorf("the language model on device %d is empty and uses %d tokens of KV memory", deviceIndex, engine.simulation.UsedKV())
			}
		}
	}
	return nil
}
