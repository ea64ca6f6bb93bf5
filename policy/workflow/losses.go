package workflow

import (
	"time"

	"inferplan/policy"
)

// handleBatchReturned handles a batch that came back from its device without a result: its tasks are given devices again.
// If it came back because the device did not hold the network, the network no longer counts as loaded there.
func (p *Policy) handleBatchReturned(now int64, event *policy.Event, actions *policy.Actions) {
	deviceIndex := p.tables.deviceIndexOf[event.Device]
	if policy.ReturnReason(event.Value) == policy.ReturnNotLoaded {
		device := &p.cluster.devices[deviceIndex]
		if network := p.tables.services[device.runningService].network; device.holdsNetwork[network] {
			device.holdsNetwork[network] = false
			p.cluster.copyCount[network]--
			device.usedBytes -= p.tables.networkBytes[network]
		}
	}

	// Its tasks have no device now. Place them again.
	p.toReplan = p.toReplan[:0]
	if taskID := p.sequences.taskOfBatch(event.Batch); taskID >= 0 { // the batch is one sequence of a language model
		p.sequences.endSequence(deviceIndex, taskID, now)
		p.requeueTask(taskID)
	} else {
		p.requeueBatch(deviceIndex)
	}
	p.replanRequests(now, actions)
}

// requeueTask makes a task unplaced that was in a batch without a result, and adds its request to toReplan, so that it is given a device again.
// If its request has ended (requestNumber -1), the task is released.
func (p *Policy) requeueTask(taskID int32) {
	task := &p.registry.tasks[taskID]
	p.admission.changeTaskTime(task, addition)
	// Its inputs and session state (KV cache) are brought anew to its next device. Unplaced means that it is to be given one.
	task.progress, task.inputsTarget, task.inputsDevice, task.stateInTransit = taskUnplaced, -1, -1, false
	if task.requestNumber < 0 {
		p.registry.releaseTask(taskID)
	} else {
		p.toReplan = append(p.toReplan, task.requestNumber)
	}
}

// requeueBatch makes a device idle whose batch will bring no result, and takes its tasks from it.
// The requests of these tasks are listed in toReplan, so that the tasks are given a device again.
func (p *Policy) requeueBatch(deviceIndex int32) {
	device := &p.cluster.devices[deviceIndex]
	for _, taskID := range device.runningTasks {
		p.requeueTask(taskID)
	}
	if device.isBusy {
		p.cluster.busyDevices--
	}
	device.runningTasks, device.isBusy, device.planOutdated = device.runningTasks[:0], false, true
	p.cluster.touchDevice(deviceIndex)
}

// handleWorkerLost handles the loss of a device. It aborts what runs there, empties the queue, forgets the networks and session states,
// and gives the tasks other devices.
func (p *Policy) handleWorkerLost(now int64, deviceIndex int32, actions *policy.Actions) {
	device := &p.cluster.devices[deviceIndex]
	p.toReplan = p.toReplan[:0] // numbers of the requests whose tasks lose their device

	// Abort what runs. requeueTask and requeueBatch add the requests to toReplan. The number of a batch in events is that of its sequence, if
	// it is one of a language model, and otherwise the index of its device, which runs one at a time.
	switch {
	case device.isBusy && p.tables.isLanguageModel(device.runningService):
		for len(device.runningTasks) > 0 { // endSequence removes the first of them
			taskID := device.runningTasks[0]
			actions.List = append(actions.List, policy.Action{Kind: policy.Abort, Batch: p.registry.tasks[taskID].sequence.batchNumber, Device: p.tables.planDevice[deviceIndex]})
			p.sequences.endSequence(deviceIndex, taskID, now)
			p.requeueTask(taskID)
		}
	case device.isBusy:
		actions.List = append(actions.List, policy.Action{Kind: policy.Abort, Batch: deviceIndex, Device: p.tables.planDevice[deviceIndex]})
		p.requeueBatch(deviceIndex)
	}

	// Take the queue away, and add its requests.
	for _, taskID := range device.queue {
		task := &p.registry.tasks[taskID]
		task.progress, task.inputsTarget, task.inputsDevice = taskUnplaced, -1, -1
		if task.requestNumber >= 0 {
			p.toReplan = append(p.toReplan, task.requestNumber)
		}
	}
	device.queue, device.isDown = device.queue[:0], true

	// Empty its memory: the session states (KV caches) first, because resetDevice then sets the used bytes for a memory without any.
	p.states.clearDevice(deviceIndex)
	p.cluster.resetDevice(deviceIndex)

	// Inputs that were at the device, or on their way to it, are no longer there. They belong to tasks that ran or waited there, whose requests
	// are in toReplan.
	for _, requestNumber := range p.toReplan {
		for _, taskID := range p.registry.requests[requestNumber].revealedTasks {
			if task := &p.registry.tasks[taskID]; task.inputsTarget == deviceIndex || task.inputsDevice == deviceIndex {
				task.inputsTarget, task.inputsDevice = -1, -1
			}
		}
	}
	if p.cluster.routing != nil {
		p.cluster.routing.DeviceLost(deviceIndex)
	}
	p.replanRequests(now, actions)
}

// handleWorkerBack handles the return of a lost device, which holds its resident networks and no session states.
// Tasks that had no device are placed again.
func (p *Policy) handleWorkerBack(now int64, deviceIndex int32, actions *policy.Actions) {
	p.cluster.devices[deviceIndex].isDown = false
	p.states.clearDevice(deviceIndex)
	p.cluster.resetDevice(deviceIndex)
	p.cluster.touchDevice(deviceIndex)
	p.toReplan = p.toReplan[:0]
	for requestNumber := range p.registry.requests {
		if p.hasUnplacedTask(&p.registry.requests[requestNumber]) {
			p.toReplan = append(p.toReplan, int32(requestNumber))
		}
	}
	p.replanRequests(now, actions)
}

// strandedTag is the tag of the timer for requests that no device can serve.
const strandedTag = 1

// hasUnplacedTask returns true if a request is open and one of its revealed tasks has no device, because no device that is up could run it.
func (p *Policy) hasUnplacedTask(request *request) bool {
	for _, taskID := range request.revealedTasks {
		if request.isOpen && p.registry.tasks[taskID].progress == taskUnplaced {
			return true
		}
	}
	return false
}

// awaitDevice keeps requests with tasks that no device can run until their deadlines, in case a device comes back.
// Requests past their deadlines are dropped. It asks for a timer (strandedTag) at the earliest deadline of the others, which calls it
// again.
func (p *Policy) awaitDevice(now int64, actions *policy.Actions) {
	nextDeadline := farFuture // if no request waits
	for requestNumber := range p.registry.requests {
		request := &p.registry.requests[requestNumber]
		if request.unrevealedTasks > 0 || !p.hasUnplacedTask(request) {
			continue // its tasks have devices, or are placed when its segment is complete
		}
		if request.deadline <= now {
			p.dropRequest(now, int32(requestNumber), policy.ReasonWorkerLost, actions)
			continue
		}
		nextDeadline = min(nextDeadline, request.deadline)
	}
	if nextDeadline < farFuture {
		actions.List = append(actions.List, policy.Action{Kind: policy.Wake, Tag: strandedTag, At: time.Duration(nextDeadline)})
	}
}

// dropRequest ends a request without an answer, for a reason that the client is told. An admitted request that misses its deadline counts as late in
// the statistics of admission.
func (p *Policy) dropRequest(now int64, requestNumber int32, reason policy.DropReason, actions *policy.Actions) {
	actions.List = append(actions.List, policy.Action{Kind: policy.Drop, Req: requestNumber, Reason: reason})
	if request := &p.registry.requests[requestNumber]; request.admitted && reason == policy.ReasonDeadline {
		p.admission.adjustShare(now, request, true)
	}
	p.closeRequest(now, requestNumber)
}

// replanRequests gives devices to the unplaced tasks of the requests in toReplan. A request whose next segment (tasks revealed together) is
// still being revealed is left out, because all its tasks are placed when the segment is complete.
func (p *Policy) replanRequests(now int64, actions *policy.Actions) {
	for _, requestNumber := range p.toReplan {
		request := &p.registry.requests[requestNumber]
		if !request.isOpen || request.unrevealedTasks > 0 {
			continue
		}
		if !p.placer.placeUnplaced(now, request, actions) {
			p.awaitDevice(now, actions)
		}
	}
}
