package workflow

import (
	"time"

	"inferplan/policy"
)

// batchRunner runs tasks that have a device: it has the inputs of a task brought to the device, and starts and ends the batches there.
type batchRunner struct {
	cluster   *cluster
	registry  *registry
	tables    *deviceTables
	states    *stateStore
	sequences *sequenceRunner
	fullBatch fullBatchFinder
	loader    *networkLoader
	admission *admission
}

// startTouched is called at the end of each event. It starts a batch and a load, where possible, on each device that the event has changed
// (touchDevice). A start may change further devices, so the list grows meanwhile.
func (b *batchRunner) startTouched(now int64, actions *policy.Actions) {
	for i := 0; i < len(b.cluster.touchedDevices); i++ {
		deviceIndex := b.cluster.touchedDevices[i]
		b.cluster.isTouched[deviceIndex] = false
		if device := &b.cluster.devices[deviceIndex]; !device.isDown {
			b.startBatch(deviceIndex, now, actions)
			b.loader.loadNext(deviceIndex, now, actions)
		}
	}
	b.cluster.touchedDevices = b.cluster.touchedDevices[:0]
}

// startBatch starts a batch on an idle device, if a task in its queue may run: with that task, and all later tasks of its service that may
// run, up to the largest batch. On a device that runs a language model, tasks join it as sequences instead.
// It is called whenever a start may have become possible.
func (b *batchRunner) startBatch(deviceIndex int32, now int64, actions *policy.Actions) {
	device := &b.cluster.devices[deviceIndex]
	if device.isBusy {
		if b.tables.isLanguageModel(device.runningService) {
			b.joinSequences(deviceIndex, now, actions)
		}
		return
	}

	// Find the head of the batch, the first of its tasks in the queue: the first task that may run, or the first one of a full batch that may
	// go before it. A language model starts sequences instead.
	headPosition := b.firstToStart(device, b.fullBatchPosition(device, deviceIndex, now))
	if headPosition < 0 {
		return
	}
	service := b.registry.tasks[device.queue[headPosition]].service
	if b.tables.isLanguageModel(service) {
		b.startSequences(deviceIndex, service, headPosition, now, actions)
		return
	}

	// Book the batch on the device. Its expected end follows from the number of tasks and the largest work factor, and is later by the time
	// to recompute session states (KV caches of earlier tasks) that are not on the device.
	// chooseBatch moves the tasks from the queue into device.runningTasks, and appends them to the tasks of the actions.
	firstTask := int32(len(actions.Tasks))
	workFactor, recomputeTime := b.chooseBatch(deviceIndex, headPosition, service, actions)
	batchSize := int32(len(device.runningTasks))
	device.isBusy, device.planOutdated, device.runningService = true, true, service
	b.cluster.busyDevices++
	device.batchEndsAt = now + b.tables.batchTime(service, deviceIndex, batchSize, workFactor) + recomputeTime
	device.lastUsedAt[b.tables.services[service].network] = now
	for _, taskID := range device.runningTasks {
		b.registry.tasks[taskID].endsAt = device.batchEndsAt
	}

	// Order the dispatch. A device runs one batch at a time, so the device index is the number of the batch in events. Model is -1, because
	// requests of several applications may have tasks in the batch.
	profile := b.tables.profileOn(service, deviceIndex)
	start := time.Duration(now)
	actions.List = append(actions.List, policy.Action{Kind: policy.Dispatch, Pipeline: profile.pipeline, Model: -1, Batch: deviceIndex, Size: batchSize, Device: b.tables.planDevice[deviceIndex],
		TaskFirst: firstTask, HopFirst: int32(len(actions.Hops)), HopCount: 1})
	actions.Hops = append(actions.Hops, policy.Hop{Stage: profile.stage, Device: b.tables.planDevice[deviceIndex], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(device.batchEndsAt)})
}

// firstToStart returns the first queue position, not before a given one, whose task may run on the device and does not wait for a sibling
// (siblingArriving). If there is none, it returns -1.
func (b *batchRunner) firstToStart(device *device, position int) int {
	for i := position; i < len(device.queue); i++ {
		if task := &b.registry.tasks[device.queue[i]]; b.cluster.isRunnable(device, task) && !b.siblingArriving(device, task) {
			return i
		}
	}
	return -1
}

// chooseBatch moves tasks of a service that may run from a device's queue into its batch (runningTasks), from headPosition on and up to the
// largest batch, and appends them to the tasks of the actions. It returns the largest work factor of these tasks, which sets the time of the
// batch, and the time in ns to recompute session states that are not on the device.
func (b *batchRunner) chooseBatch(deviceIndex int32, headPosition int, service int32, actions *policy.Actions) (workFactor, recomputeTime int64) {
	// The tasks that stay are moved to the front of the queue's memory, behind those before the head.
	device, maxBatch := &b.cluster.devices[deviceIndex], int(b.tables.profileOn(service, deviceIndex).maxBatch)
	remainingQueue := device.queue[:headPosition]
	for _, taskID := range device.queue[headPosition:] {
		task := &b.registry.tasks[taskID]
		if len(device.runningTasks) == maxBatch || task.service != service || !b.cluster.isRunnable(device, task) {
			remainingQueue = append(remainingQueue, taskID)
			continue
		}
		recomputeTime += b.states.recomputeTime(task, deviceIndex)
		task.progress, workFactor = taskRunning, max(workFactor, task.workFactor)
		b.admission.changeTaskTime(task, subtraction)
		device.runningTasks, actions.Tasks = append(device.runningTasks, taskID), append(actions.Tasks, task.taskNumber)
	}
	device.queue = remainingQueue
	return workFactor, recomputeTime
}

// fullBatchPosition returns the queue position of the first task of a full batch that a device may run first, if the option FullBatchFirst is
// set, and otherwise 0, the front of the queue. A full batch may run first if the first task in the queue that may run is in it, or can
// still be in time behind it, as addTask finds out.
// A task that waits for a sibling (siblingArriving) does not begin a batch, but joins one that tasks before it in the queue have begun.
func (b *batchRunner) fullBatchPosition(device *device, deviceIndex int32, now int64) int {
	if !b.cluster.options.FullBatchFirst {
		return 0
	}
	finder := &b.fullBatch
	finder.reset()
	for i, taskID := range device.queue {
		task := &b.registry.tasks[taskID]
		if !b.cluster.isRunnable(device, task) {
			continue
		}
		if hasBatch := finder.partialBatches[task.service].size > 0; !hasBatch && b.siblingArriving(device, task) {
			continue
		}
		if position := finder.addTask(b.tables, task, deviceIndex, int32(i), now); position >= 0 {
			return int(position)
		}
	}
	return 0
}

// startSequences starts a language model on an idle device. All tasks of the service from headPosition on in the queue that may run, and
// for which there is KV memory, start as sequences, each a batch of its own. The others stay in the queue.
func (b *batchRunner) startSequences(deviceIndex, service int32, headPosition int, now int64, actions *policy.Actions) {
	device := &b.cluster.devices[deviceIndex]
	remainingQueue := device.queue[:headPosition]
	for _, taskID := range device.queue[headPosition:] {
		if task := &b.registry.tasks[taskID]; task.service == service && b.cluster.isRunnable(device, task) && b.tables.fitsOneMore(service, deviceIndex, int32(len(device.runningTasks)), device.kvTokens, task.workFactor) {
			b.admission.changeTaskTime(task, subtraction)
			b.sequences.startSequence(deviceIndex, taskID, now, actions)
		} else {
			remainingQueue = append(remainingQueue, taskID)
		}
	}
	device.queue = remainingQueue
}

// joinSequences lets tasks of a device's queue join the language model that runs there, in order.
// It stops at the first task that does not fit, or that makes the device drain, which means to take no new sequences so that another
// service gets the device.
func (b *batchRunner) joinSequences(deviceIndex int32, now int64, actions *policy.Actions) {
	device := &b.cluster.devices[deviceIndex]
	remainingQueue, isAccepting := device.queue[:0], true
	for _, taskID := range device.queue {
		// Once the device has stopped to accept sequences it accepts none of the later tasks, so that the order of the queue holds.
		task := &b.registry.tasks[taskID]
		canJoin := task.service == device.runningService && b.cluster.isRunnable(device, task)
		isAccepting = isAccepting && !b.sequences.causesDrain(device, task)
		isAccepting = isAccepting && (!canJoin || b.tables.fitsOneMore(device.runningService, deviceIndex, int32(len(device.runningTasks)), device.kvTokens, task.workFactor))
		if isAccepting && canJoin {
			b.admission.changeTaskTime(task, subtraction)
			b.sequences.startSequence(deviceIndex, taskID, now, actions)
		} else {
			remainingQueue = append(remainingQueue, taskID)
		}
	}
	device.queue = remainingQueue
}

// siblingArriving returns true if a task should wait for a sibling: another task of its request and service in the device's queue whose
// inputs are on their way to the device. The two were placed there to share a batch.
func (b *batchRunner) siblingArriving(device *device, task *task) bool {
	if len(device.queue) == 1 {
		return false
	}
	for _, taskID := range device.queue {
		// Its inputs have ended and were requested for this device, but are not there yet.
		if other := &b.registry.tasks[taskID]; other.isRevealed() && other.requestNumber == task.requestNumber && other.service == task.service && other.pendingInputs == 0 && other.inputsTarget == other.deviceIndex && other.inputsDevice != other.deviceIndex {
			return true
		}
	}
	return false
}

// finishBatch ends the tasks of a batch that has finished on a device. Each task of a language model is a batch of its own (a sequence), so
// there only the task with this batch number ends. finishBatch is called when a batch has brought its result. At the end of the event,
// startTouched starts what the device can do next.
func (b *batchRunner) finishBatch(deviceIndex, batchNumber int32, now int64, actions *policy.Actions) {
	device := &b.cluster.devices[deviceIndex]
	if taskID := b.sequences.taskOfBatch(batchNumber); taskID >= 0 { // the batch is one sequence
		b.sequences.endSequence(deviceIndex, taskID, now) // this also notes that the device's plan is outdated
		b.endTask(taskID, now, actions)
	} else {
		device.isBusy, device.planOutdated = false, true
		b.cluster.busyDevices--
		device.lastUsedAt[b.tables.services[device.runningService].network] = now
		for _, taskID := range device.runningTasks {
			b.endTask(taskID, now, actions)
		}
		device.runningTasks = device.runningTasks[:0]
	}

	// The session states that the tasks have left may not fit beside the others.
	b.loader.trimToMemory(now, deviceIndex, actions)
	b.cluster.touchDevice(deviceIndex)
}

// endTask marks a task as ended, stores the session state that it leaves for the next task of its request, and counts it as an ended input
// of the tasks that read it. If its request has ended before (requestNumber -1), the task is only released.
func (b *batchRunner) endTask(taskID int32, now int64, actions *policy.Actions) {
	task := &b.registry.tasks[taskID]
	task.progress, task.endsAt = taskEnded, now
	if task.requestNumber < 0 {
		b.registry.releaseTask(taskID)
		return
	}
	b.cluster.countTask(now, task.service, -1)
	b.states.storeState(now, taskID, actions)

	// Revealed and expected tasks of the request may read its output.
	request := &b.registry.requests[task.requestNumber]
	b.markInputEnded(now, request.revealedTasks, taskID, actions)
	b.markInputEnded(now, request.expectedTasks, taskID, actions)
}

// markInputEnded counts an ended task among the inputs of those tasks of a list, readers, that read its output.
// A revealed task all of whose inputs have ended may run once the inputs are at its device.
func (b *batchRunner) markInputEnded(now int64, readers []int32, taskID int32, actions *policy.Actions) {
	for _, readerID := range readers {
		task := &b.registry.tasks[readerID]
		for _, input := range task.inputs { // a task may read an output twice
			if input == taskID {
				task.pendingInputs--
			}
		}
		if task.pendingInputs == 0 && task.progress == taskQueued && task.isRevealed() {
			b.makeRunnable(now, readerID, actions)
		}
	}
}

// gatherInputs has the inputs of a task that has just been given a device brought there.
// If all of them have ended, the task may run when they are there.
func (b *batchRunner) gatherInputs(now int64, taskID int32, actions *policy.Actions) {
	task := &b.registry.tasks[taskID]
	if task.pendingInputs == 0 {
		b.makeRunnable(now, taskID, actions)
	} else if b.hasRemoteInputs(task) {
		b.requestInputs(taskID, actions)
	}
}

// makeRunnable is called for a task in a device's queue whose inputs have all ended. If the inputs are at the device, the task may run now.
// Otherwise they are requested, and it may run when they arrive. The session state that it continues is fetched, too.
func (b *batchRunner) makeRunnable(now int64, taskID int32, actions *policy.Actions) {
	task := &b.registry.tasks[taskID]
	b.fetchState(now, taskID, actions)
	if task.inputsDevice == task.deviceIndex {
		b.cluster.touchDevice(task.deviceIndex)
		return
	}
	if !b.hasRemoteInputs(task) { // the inputs were left on this device, or come from the client
		task.inputsDevice = task.deviceIndex
		b.cluster.devices[task.deviceIndex].planOutdated = true
		b.cluster.touchDevice(task.deviceIndex)
		return
	}
	b.requestInputs(taskID, actions)
}

// requestInputs requests that the inputs of a task are brought to its device, unless that has been requested before.
func (b *batchRunner) requestInputs(taskID int32, actions *policy.Actions) {
	if task := &b.registry.tasks[taskID]; task.inputsTarget != task.deviceIndex {
		task.inputsTarget, task.inputsDevice = task.deviceIndex, -1
		actions.List = append(actions.List, policy.Action{Kind: policy.Place, Task: task.taskNumber, Device: b.tables.planDevice[task.deviceIndex]})
	}
}

// hasRemoteInputs returns true if a task reads the output of a task on another device.
func (b *batchRunner) hasRemoteInputs(task *task) bool {
	for _, input := range task.inputs {
		if input >= 0 && b.registry.tasks[input].deviceIndex != task.deviceIndex {
			return true
		}
	}
	return false
}

// markInputsArrived handles the event that the inputs of a task have arrived at a device. If the task still waits there, it may run.
// Events of transfers within a batch are ignored.
func (b *batchRunner) markInputsArrived(event *policy.Event) {
	if event.Batch >= 0 {
		return
	}
	taskID, deviceIndex := b.registry.taskByNumber[event.Task], b.tables.deviceIndexOf[event.Device]
	if task := &b.registry.tasks[taskID]; task.taskNumber == event.Task && task.progress == taskQueued && task.deviceIndex == deviceIndex {
		task.inputsDevice = deviceIndex
		b.cluster.devices[deviceIndex].planOutdated = true
		b.cluster.touchDevice(deviceIndex)
	}
}
