package workflow

import (
	"slices"
	"time"

	"inferplan/policy"
)

// sequenceRunner runs the tasks of language models as sequences. A device runs one service at a time.
// If that is a language model, each task is a batch of its own, which begins with the next iteration.
// Tasks join as long as there is KV memory, and until a task of another service waits before them that could run.
// Then the device drains: it takes no new sequences.
//
// The speed of a sequence depends on the number n of sequences beside it: it does 1/T(n) of itself per unit of time, where T(n) is the time
// of a batch of n. So its expected end moves with every sequence that comes or goes.
type sequenceRunner struct {
	cluster          *cluster
	registry         *registry
	tables           *deviceTables
	states           *stateStore
	taskOfSequence   []int32 // by batch number less the number of devices: ID of the task that runs as this sequence; -1 if none
	freeBatchNumbers []int32 // batch numbers of sequences that have ended
}

// sequence is the progress of a task that runs on a language model.
type sequence struct {
	batchNumber   int32   // number by which events and actions name its batch
	kvTokens      int64   // KV tokens that it will hold, as expected
	remainingPart float64 // part of it that remains to be done, as expected; 1 is the whole task without recomputing
}

// startSequence starts a task as a sequence on a device whose language model it needs, beside those that run there, and appends the
// dispatch to the actions. Each sequence is a batch of its own.
func (r *sequenceRunner) startSequence(deviceIndex, taskID int32, now int64, actions *policy.Actions) {
	device, task := &r.cluster.devices[deviceIndex], &r.registry.tasks[taskID]
	recomputeTime := r.states.recomputeTime(task, deviceIndex)

	// An idle device begins to run the model.
	if !device.isBusy {
		device.isBusy, device.runningService = true, task.service
		device.batchEndsAt, device.progressCountedAt, device.kvTokens = now, now, 0
		r.cluster.busyDevices++
	}

	// Every sequence makes the others slower. So count what these have done up to now, before their number grows.
	r.advanceProgress(device, deviceIndex, now)

	// Add the sequence. What remains of it is counted in parts of the time (sequenceTime) that the task takes beside as many sequences as run
	// now: 1 for the task itself, and the part for recomputing the session state (KV cache of an earlier task) that it continues, if it has to.
	sequence := sequence{batchNumber: r.takeBatchNumber(taskID), kvTokens: r.tables.tokensOf(task.service, task.workFactor)}
	task.progress = taskRunning
	device.runningTasks = append(device.runningTasks, taskID)
	device.kvTokens += sequence.kvTokens
	sequenceTime := r.tables.batchTime(task.service, deviceIndex, int32(len(device.runningTasks)), task.workFactor)
	sequence.remainingPart = 1 + float64(recomputeTime)/float64(sequenceTime)
	task.sequence = sequence
	device.lastUsedAt[r.tables.services[task.service].network] = now
	r.updateEnds(device, deviceIndex, now) // of all sequences, with the new one beside the others

	// Order the dispatch. Model is -1, as for batches of tasks that may be of several applications.
	profile, start := r.tables.profileOn(task.service, deviceIndex), time.Duration(now)
	actions.List = append(actions.List, policy.Action{Kind: policy.Dispatch, Pipeline: profile.pipeline, Model: -1, Batch: sequence.batchNumber, Size: 1, Device: r.tables.planDevice[deviceIndex],
		TaskFirst: int32(len(actions.Tasks)), HopFirst: int32(len(actions.Hops)), HopCount: 1})
	actions.Tasks = append(actions.Tasks, task.taskNumber)
	actions.Hops = append(actions.Hops, policy.Hop{Stage: profile.stage, Device: r.tables.planDevice[deviceIndex], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(task.endsAt)})
}

// takeBatchNumber returns the number by which events name the batch of a new sequence, and records its task.
// Numbers below the number of devices name the batches of other services, one for each device. Numbers of ended sequences are used again.
func (r *sequenceRunner) takeBatchNumber(taskID int32) int32 {
	freeCount := len(r.freeBatchNumbers)
	if freeCount == 0 { // add a number
		r.taskOfSequence = append(r.taskOfSequence, taskID)
		return int32(len(r.cluster.devices) + len(r.taskOfSequence) - 1)
	}
	batchNumber := r.freeBatchNumbers[freeCount-1]
	r.freeBatchNumbers = r.freeBatchNumbers[:freeCount-1]
	r.taskOfSequence[int(batchNumber)-len(r.cluster.devices)] = taskID
	return batchNumber
}

// taskOfBatch returns the ID of the task that runs as the sequence with this batch number. If the batch is none of a language model, it returns -1.
func (r *sequenceRunner) taskOfBatch(batchNumber int32) int32 {
	if i := int(batchNumber) - len(r.cluster.devices); i >= 0 && i < len(r.taskOfSequence) {
		return r.taskOfSequence[i]
	}
	return -1
}

// advanceProgress lowers the remaining part of each sequence of a device by what it has done since the last call.
// All run more slowly the more there are, so it is called before their number changes. In a time t each does t/T of itself, where T is the
// time of a batch of as many tasks as there are sequences.
func (r *sequenceRunner) advanceProgress(device *device, deviceIndex int32, now int64) {
	sequenceCount := int32(len(device.runningTasks))
	for _, taskID := range device.runningTasks {
		task := &r.registry.tasks[taskID]
		donePart := float64(now-device.progressCountedAt) / float64(r.tables.batchTime(task.service, deviceIndex, sequenceCount, task.workFactor))
		task.sequence.remainingPart = max(0, task.sequence.remainingPart-donePart)
	}
	device.progressCountedAt = now
}

// updateEnds computes the expected ends of the sequences of a device, and of the last of them, if no other one joins.
// It is called after their number has changed, because the speed of all depends on it.
func (r *sequenceRunner) updateEnds(device *device, deviceIndex int32, now int64) {
	sequenceCount := int32(len(device.runningTasks))
	device.batchEndsAt, device.planOutdated = now, true
	for _, taskID := range device.runningTasks {
		task := &r.registry.tasks[taskID]
		task.endsAt = now + int64(task.sequence.remainingPart*float64(r.tables.batchTime(task.service, deviceIndex, sequenceCount, task.workFactor)))
		device.batchEndsAt = max(device.batchEndsAt, task.endsAt)
	}
}

// endSequence removes a sequence (a task of a language model) from its device, when it ends, comes back without a result, or is aborted.
// The others then run faster, so their expected ends are computed anew. Without sequences the device is idle.
func (r *sequenceRunner) endSequence(deviceIndex, taskID int32, now int64) {
	device, task := &r.cluster.devices[deviceIndex], &r.registry.tasks[taskID]
	r.advanceProgress(device, deviceIndex, now)

	// Remove it, and free its batch number. Numbers of sequences follow those of the devices.
	i := slices.Index(device.runningTasks, taskID)
	device.runningTasks = slices.Delete(device.runningTasks, i, i+1)
	device.kvTokens -= task.sequence.kvTokens
	r.freeBatchNumbers = append(r.freeBatchNumbers, task.sequence.batchNumber)
	r.taskOfSequence[int(task.sequence.batchNumber)-len(r.cluster.devices)] = -1
	device.lastUsedAt[r.tables.services[device.runningService].network] = now
	if len(device.runningTasks) == 0 {
		device.isBusy = false
		r.cluster.busyDevices--
	}
	r.updateEnds(device, deviceIndex, now)
	r.cluster.touchDevice(deviceIndex)
}

// causesDrain returns true if a task that waits on a device makes the language model there drain, which means to take no new sequences.
// The task is of another service and waits only for the device and its network. That network is loaded, or it can be loaded only when
// memory is freed.
func (r *sequenceRunner) causesDrain(device *device, task *task) bool {
	if !task.isRevealed() || task.service == device.runningService || task.pendingInputs > 0 || task.inputsDevice != task.deviceIndex || task.stateInTransit {
		return false
	}
	network := r.tables.services[task.service].network
	return device.holdsNetwork[network] || device.loadingNetwork < 0 && r.tables.networkBytes[network] > device.memoryBytes-device.usedBytes
}
