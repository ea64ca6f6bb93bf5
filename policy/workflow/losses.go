package workflow

import (
	"time"

	"inferplan/policy"
)

// handleBatchReturned puts the tasks of a batch that returned without a result back into the unplaced ones, and
// places them again. If it returned because the network was not there, the device is no longer taken to have it.
func (p *Policy) handleBatchReturned(now int64, event *policy.Event, actions *policy.Actions) {
	deviceIndex := p.tables.deviceIndexOf[event.Device]
	if policy.ReturnReason(event.Value) == policy.ReturnNotLoaded {
		device := &p.cluster.devices[deviceIndex]
		if n := p.tables.services[device.runningService].network; device.holdsNetwork[n] {
			device.holdsNetwork[n] = false
			p.cluster.copyCount[n]--
			device.usedBytes -= p.tables.networkBytes[n]
		}
	}
	p.toReplan = p.toReplan[:0]
	if taskID := p.sequences.taskOfBatch(event.Batch); taskID >= 0 {
		p.sequences.endSequence(deviceIndex, taskID, now)
		p.requeueTask(taskID)
	} else {
		p.requeueBatch(deviceIndex)
	}
	p.replanRequests(now, actions)
}

// requeueTask makes a task that was in a batch without a result unplaced again, and notes its request to be placed
// anew. If the request is gone, it releases the task.
func (p *Policy) requeueTask(taskID int32) {
	task := &p.registry.tasks[taskID]
	p.admission.settleOwedTime(task, -1)
	task.progress, task.inputsTarget, task.inputsDevice, task.stateInTransit = taskUnplaced, -1, -1, false
	if task.requestNumber < 0 {
		p.registry.releaseTask(taskID)
	} else {
		p.toReplan = append(p.toReplan, task.requestNumber)
	}
}

// requeueBatch makes all tasks of a device's batch wait again.
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

// handleWorkerLost is called when a device is lost. It aborts what runs there, takes all tasks out of its queue,
// forgets its networks and session states, and places the tasks again, on other devices.
func (p *Policy) handleWorkerLost(now int64, deviceIndex int32, actions *policy.Actions) {
	device := &p.cluster.devices[deviceIndex]
	p.toReplan = p.toReplan[:0]

	// Abort what runs.
	switch {
	case device.isBusy && p.tables.isLanguageModel(device.runningService):
		for len(device.runningTasks) > 0 {
			taskID := device.runningTasks[0]
			actions.List = append(actions.List, policy.Action{Kind: policy.Abort, Batch: p.registry.tasks[taskID].sequence.batchNumber, Device: p.tables.planDevice[deviceIndex]})
			p.sequences.endSequence(deviceIndex, taskID, now)
			p.requeueTask(taskID)
		}
	case device.isBusy:
		actions.List = append(actions.List, policy.Action{Kind: policy.Abort, Batch: deviceIndex, Device: p.tables.planDevice[deviceIndex]})
		p.requeueBatch(deviceIndex)
	}

	// Take the queue away.
	for _, taskID := range device.queue {
		task := &p.registry.tasks[taskID]
		task.progress, task.inputsTarget, task.inputsDevice = taskUnplaced, -1, -1
		if task.requestNumber >= 0 {
			p.toReplan = append(p.toReplan, task.requestNumber)
		}
	}
	device.queue, device.isDown = device.queue[:0], true
	p.states.clearDevice(deviceIndex)
	p.cluster.resetDevice(deviceIndex)

	// Inputs that were at the device, or on their way to it, are no longer there.
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

// handleWorkerBack is called when a lost device comes back, with its resident networks and no session states.
// Requests with tasks that found no device are placed again.
func (p *Policy) handleWorkerBack(now int64, deviceIndex int32, actions *policy.Actions) {
	p.cluster.devices[deviceIndex].isDown = false
	p.states.clearDevice(deviceIndex)
	p.cluster.resetDevice(deviceIndex)
	p.cluster.touchDevice(deviceIndex)
	p.toReplan = p.toReplan[:0]
	for r := range p.registry.requests {
		if p.hasUnplacedTask(&p.registry.requests[r]) {
			p.toReplan = append(p.toReplan, int32(r))
		}
	}
	p.replanRequests(now, actions)
}

// strandedTag is the tag of the timer for requests that no device can serve.
const strandedTag = 1

// hasUnplacedTask returns true if a request is open and one of its revealed tasks has no place, because no device
// could take it.
func (p *Policy) hasUnplacedTask(request *request) bool {
	for _, taskID := range request.revealedTasks {
		if request.isOpen && p.registry.tasks[taskID].progress == taskUnplaced {
			return true
		}
	}
	return false
}

// awaitDevice is called when requests have tasks that no device can run. It keeps them waiting, in case a device
// comes back, until their deadlines, and then drops them. The timer wakes it at the next deadline.
func (p *Policy) awaitDevice(now int64, actions *policy.Actions) {
	nextDeadline := farFuture
	for r := range p.registry.requests {
		request := &p.registry.requests[r]
		if request.unrevealedTasks > 0 || !p.hasUnplacedTask(request) {
			continue
		}
		if request.deadline <= now {
			p.dropRequest(now, int32(r), policy.ReasonWorkerLost, actions)
			continue
		}
		nextDeadline = min(nextDeadline, request.deadline)
	}
	if nextDeadline < farFuture {
		actions.List = append(actions.List, policy.Action{Kind: policy.Wake, Tag: strandedTag, At: time.Duration(nextDeadline)})
	}
}

// dropRequest ends a request without an answer. One that was admitted and misses its deadline counts as late for
// the admission's share.
func (p *Policy) dropRequest(now int64, requestNumber int32, reason policy.DropReason, actions *policy.Actions) {
	actions.List = append(actions.List, policy.Action{Kind: policy.Drop, Req: requestNumber, Reason: reason})
	if request := &p.registry.requests[requestNumber]; request.admitted && reason == policy.ReasonDeadline {
		p.admission.adjustShare(now, request, true)
	}
	p.closeRequest(now, requestNumber)
}

// replanRequests places the unplaced tasks of the requests in toReplan. Requests whose next segment is still being
// revealed are placed when that is complete.
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
