package workflow

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// StateKeeping says what becomes of session states.
type StateKeeping uint8

const (
	// KeepByValue keeps a state as long as its bytes save more than those of other states and networks. It moves a state if
	// that is quicker than recomputing it.
	KeepByValue StateKeeping = iota
	// KeepAll keeps every state where it is, unless the device could otherwise do nothing.
	KeepAll
	// KeepNone drops every state at once.
	KeepNone
)

// sessionState is the session state that a task leaves behind: what its service keeps of the request for the next task (a KV cache).
type sessionState struct {
	bytes, recomputeTime int64 // size, and the time in ns to recompute it
	deviceIndex          int32 // device that has it; -1 if none
	moveTarget           int32 // device to which it is being moved; -1 if none
	nextTask             int32 // ID of the first task that continues it; -1 if none is known
	storedAt             int64 // time in ns at which it was stored
}

// stateStore handles the session states on all devices. A session state is what a service keeps of a request for the next task (a KV cache).
type stateStore struct {
	cluster  *cluster
	registry *registry
	tables   *deviceTables
	returns  []returnStats // by service: how often states are continued
}

// returnStats counts how often, and after what time, a task continues a state of a service.
type returnStats struct {
	stored, returned float64 // states stored, and states continued
	gapSum           float64 // sum of the times between, in ns
}

// The prior of the statistics of returns: priorReturns of priorStored states were continued, after priorGap ns in all.
// minExpectedWait bounds the wait for a task that is known from below, in ns.
const (
	priorReturns    = 1
	priorStored     = 2
	priorGap        = 1e9
	minExpectedWait = 1e6
)

// stateTransfer holds how long a session state of a service takes to another device, in parts of the time to recompute it: the quicker of a
// move and of recomputing it there. Parts are in fixed point.
type stateTransfer struct {
	sameNodePart, otherNodePart       int64 // to a device of the same node, and to another node
	movesWithinNode, movesAcrossNodes bool  // whether a move is quicker there
	bytes, recomputeTime              int64 // size, and time in ns to recompute, of the state of a usual task
}

// newStateTransfer returns how long session states of a service take to other devices, from the plan's description of them.
// If the service has none, all values are 0.
func newStateTransfer(description flow.SessionState) stateTransfer {
	if description.Bytes <= 0 || description.Recompute <= 0 {
		return stateTransfer{}
	}
	// quickerPart returns the time of a move, or of recomputing if that is quicker, divided by the time of recomputing, in fixed point.
	quickerPart := func(move int64) int64 { return min(fixedOne, move*fixedOne/int64(description.Recompute)) }
	transfer := stateTransfer{sameNodePart: quickerPart(int64(description.SameNode)), otherNodePart: quickerPart(int64(description.OtherNode)), bytes: description.Bytes, recomputeTime: int64(description.Recompute)}
	// A part of 1 means that a move is no quicker.
	transfer.movesWithinNode, transfer.movesAcrossNodes = transfer.sameNodePart < fixedOne, transfer.otherNodePart < fixedOne
	return transfer
}

// stateTransferTime returns the time in ns that a task takes longer on a device because the session state that it continues is on stateDevice
// (-1 for none), given the time to recompute it. If isMove is true, the state is moved, and the task starts later by addedTime.
// Otherwise the task recomputes the state and runs longer by addedTime. The quicker of the two is chosen.
// stateTransfers has the times of moves as parts of the time to recompute, in fixed point, so that both grow alike with the state; where a
// move is no quicker the part is 1.
func (t *deviceTables) stateTransferTime(service int32, recomputeTime int64, stateDevice, deviceIndex int32) (addedTime int64, isMove bool) {
	switch transfer := &t.stateTransfers[service]; {
	case recomputeTime == 0 || stateDevice == deviceIndex:
		return 0, false
	case stateDevice < 0:
		return recomputeTime, false
	case t.nodeOf[stateDevice] == t.nodeOf[deviceIndex]:
		return recomputeTime * transfer.sameNodePart >> fixedBits, transfer.movesWithinNode
	default:
		return recomputeTime * transfer.otherNodePart >> fixedBits, transfer.movesAcrossNodes
	}
}

// linkState is called for a new task. It finds the session state that the task continues, if one of its inputs left one, and computes the
// bytes and the recompute time of the task's own state, which contains that one. workMillionths is its work in millionths of a usual task.
// A state is continued by one task only. An expected (predicted) task does not claim it.
func (s *stateStore) linkState(taskID int32, workMillionths int64) {
	task := &s.registry.tasks[taskID]
	transfer := &s.tables.stateTransfers[task.service]
	task.stateSource, task.sessionState = -1, sessionState{deviceIndex: -1, moveTarget: -1, nextTask: -1}
	if transfer.bytes == 0 {
		return
	}

	// Find the input whose state it continues, and set the size of what it adds itself.
	sameService := func(input int32) bool { return s.registry.tasks[input].service == task.service }
	isUnclaimed := func(input int32) bool { return s.registry.tasks[input].sessionState.nextTask < 0 }
	task.stateSource = flow.ContinuedTask(task.inputs, sameService, isUnclaimed)
	task.sessionState.bytes, task.sessionState.recomputeTime = flow.ScaleByWork(transfer.bytes, workMillionths), flow.ScaleByWork(transfer.recomputeTime, workMillionths)
	if task.stateSource < 0 {
		return
	}

	// Its state contains the one that it continues, which a revealed task claims.
	previous := &s.registry.tasks[task.stateSource]
	task.sessionState.bytes, task.sessionState.recomputeTime = task.sessionState.bytes+previous.sessionState.bytes, task.sessionState.recomputeTime+previous.sessionState.recomputeTime
	if task.isRevealed() && previous.sessionState.nextTask < 0 {
		previous.sessionState.nextTask = taskID
	}
}

// deviceOfState returns the device that has the session state which a task continues, now or once the task that leaves it has ended.
// If no device will have it, it returns -1.
func (s *stateStore) deviceOfState(task *task) int32 {
	switch previous := &s.registry.tasks[task.stateSource]; {
	case s.cluster.options.KeepStates == KeepNone:
		return -1
	case previous.progress == taskEnded: // the state is where it was stored, or moved to; -1 if it was evicted
		return previous.sessionState.deviceIndex
	default:
		return previous.deviceIndex
	}
}

// recomputeTime returns by how many ns longer a task runs on a device because it recomputes the session state that it continues.
// If it continues none, or the state is on the device or is moved there, it returns 0.
func (s *stateStore) recomputeTime(task *task, deviceIndex int32) int64 {
	isOnItsWay := task.stateInTransit && task.deviceIndex == deviceIndex // states are moved to the device of the task
	if task.stateSource < 0 || isOnItsWay {
		return 0
	}
	previous, stateDevice := &s.registry.tasks[task.stateSource], s.deviceOfState(task)
	if stateDevice == deviceIndex {
		return 0
	}

	// A state exists once the task that leaves it has ended. One that does not exist yet will be moved or recomputed, whichever is quicker. For
	// one that exists, fetchState orders a move where it can; without a move under way it counts as recomputed.
	if previous.progress != taskEnded && stateDevice >= 0 {
		addedTime, isMove := s.tables.stateTransferTime(task.service, previous.sessionState.recomputeTime, stateDevice, deviceIndex)
		if isMove {
			return 0 // the task starts later instead
		}
		return addedTime
	}
	return previous.sessionState.recomputeTime
}

// storeState stores the session state of a task that has ended in the memory of its device.
// The state that the task continued is part of it and is forgotten. With Options.KeepStates KeepNone, the state is evicted at once.
func (s *stateStore) storeState(now int64, taskID int32, actions *policy.Actions) {
	task := &s.registry.tasks[taskID]
	if task.stateSource >= 0 && s.registry.tasks[task.stateSource].sessionState.nextTask == taskID {
		s.forgetState(task.stateSource) // this task's state contains it
	}
	state := &task.sessionState
	if state.bytes == 0 {
		return // the service keeps no states
	}

	// Store it even if the memory of the device is full: trimToMemory evicts other things after the batch.
	device := &s.cluster.devices[task.deviceIndex]
	device.sessionStates = append(device.sessionStates, taskID)
	device.usedBytes += state.bytes
	state.deviceIndex, state.storedAt = task.deviceIndex, now
	if s.cluster.options.KeepStates == KeepNone {
		s.evictState(taskID, actions)
		return
	}

	// The statistics of returns estimate how likely it is that a task comes which continues a state. So the state counts there only if no such
	// task is known yet.
	if state.nextTask < 0 {
		s.returns[task.service].stored++
	}
}

// countReturn counts, for the statistics of the task's service, that a task continues a session state which is stored on a device, and
// after what time. By these statistics stateValue estimates what a stored state saves.
func (s *stateStore) countReturn(now int64, task *task) {
	if task.stateSource < 0 {
		return
	}
	if state := &s.registry.tasks[task.stateSource].sessionState; state.deviceIndex >= 0 {
		stats := &s.returns[task.service]
		stats.returned, stats.gapSum = stats.returned+1, stats.gapSum+float64(now-state.storedAt)
	}
}

// forgetState removes the session state of a task, given by its ID, when no task needs it any more, and cancels its move to another device.
func (s *stateStore) forgetState(taskID int32) {
	state := &s.registry.tasks[taskID].sessionState
	if state.moveTarget >= 0 { // the device to which it is moved has reserved its bytes
		s.cluster.devices[state.moveTarget].usedBytes -= state.bytes
		s.cluster.devices[state.moveTarget].planOutdated = true
		state.moveTarget = -1
	}
	s.removeState(taskID)
}

// removeState removes the session state of a task, given by its ID, from the device that has it, and frees its bytes.
// If no device has it, nothing changes.
func (s *stateStore) removeState(taskID int32) {
	state := &s.registry.tasks[taskID].sessionState
	if state.deviceIndex < 0 {
		return
	}
	device := &s.cluster.devices[state.deviceIndex]
	i := slices.Index(device.sessionStates, taskID)
	device.sessionStates = slices.Delete(device.sessionStates, i, i+1)
	device.usedBytes -= state.bytes
	device.planOutdated = true
	state.deviceIndex = -1
}

// clearDevice forgets the session states on a device that is lost or comes back, and the moves to it; a state that was moved stays where it was.
// The caller sets the device's used bytes (resetDevice).
func (s *stateStore) clearDevice(deviceIndex int32) {
	device := &s.cluster.devices[deviceIndex]

	// End the moves to the device. The tasks that wait for them recompute the states.
	for i := range s.registry.tasks {
		if state := &s.registry.tasks[i].sessionState; state.moveTarget == deviceIndex {
			state.moveTarget = -1
			if state.nextTask >= 0 {
				s.registry.tasks[state.nextTask].stateInTransit = false
			}
		}
	}

	// Forget the states on the device.
	for _, taskID := range device.sessionStates {
		s.registry.tasks[taskID].sessionState.deviceIndex = -1
	}
	device.sessionStates = device.sessionStates[:0]
}

// evictState unloads the session state of a task, given by its ID, from the device that has it, to free memory.
func (s *stateStore) evictState(taskID int32, actions *policy.Actions) {
	task := &s.registry.tasks[taskID]
	actions.List = append(actions.List, policy.Action{Kind: policy.Unload, Network: -1, Key: int64(task.taskNumber), Device: s.tables.planDevice[task.sessionState.deviceIndex]})
	s.removeState(taskID)
}

// stateClass returns the eviction class of the session state (KV cache) of a task, given by its ID. Classes are evicted in the order
// unneeded, expected, needed; what is pinned is never evicted. A state is pinned while the task that continues it (nextTask, -1 if none is
// known) runs on its device, and needed while it is moved. With KeepAll all other states are needed. With KeepByValue those are expected
// which nextTask may still find on its device. The rest is unneeded.
func (s *stateStore) stateClass(taskID int32) int {
	state := &s.registry.tasks[taskID].sessionState
	if state.nextTask >= 0 {
		// The task that continues it is known.
		successor := &s.registry.tasks[state.nextTask]
		isElsewhere := successor.deviceIndex != state.deviceIndex
		switch {
		case successor.progress == taskRunning && !isElsewhere:
			return pinnedClass
		case state.moveTarget >= 0:
			return neededClass
		case s.cluster.options.KeepStates == KeepByValue && isElsewhere && (successor.progress == taskRunning || successor.progress == taskQueued):
			return unneededClass // no move is under way, so the task counts as one that recomputes the state there
		case s.cluster.options.KeepStates == KeepByValue:
			return expectedClass
		}
	}
	if s.cluster.options.KeepStates == KeepAll {
		return neededClass
	}
	return unneededClass
}

// stateValue returns what a byte of the session state of a task, given by its ID, saves, in ns of recomputing per ns that it is stored:
//
//	returnShare · recomputeTime / expectedWait / bytes
//
// returnShare is the share of states of the service that a later task continued, and expectedWait the mean time until then.
// Both begin with a prior (priorReturns of priorStored states, after priorGap in all), so that few samples say little.
// If the next task is known, the state is certain to be continued, at the expected end of that task. States with lower values are evicted first.
func (s *stateStore) stateValue(taskID int32) float64 {
	task := &s.registry.tasks[taskID]
	state, stats := &task.sessionState, &s.returns[task.service]
	returnShare, expectedWait := (stats.returned+priorReturns)/(stats.stored+priorStored), (stats.gapSum+priorGap)/(stats.returned+priorReturns)
	if state.nextTask >= 0 {
		successor := &s.registry.tasks[state.nextTask]
		if successor.progress == taskQueued && successor.deviceIndex != state.deviceIndex {
			return 0 // that task recomputes it elsewhere
		}
		returnShare, expectedWait = 1, float64(max(minExpectedWait, successor.endsAt-s.cluster.demand.valuedAt)) // valuedAt is about now
	}
	return returnShare * float64(state.recomputeTime) / expectedWait / float64(state.bytes)
}

// fetchState orders that the session state which a task continues is moved to the task's device, if that is quicker than recomputing it and
// memory can be freed. It does nothing unless the state is stored on another device, is not being moved, no other task continues it
// (nextTask), and Options.KeepStates is KeepByValue.
func (b *batchRunner) fetchState(now int64, taskID int32, actions *policy.Actions) {
	task := &b.registry.tasks[taskID]
	if task.stateSource < 0 || task.stateInTransit {
		return
	}
	previous := &b.registry.tasks[task.stateSource]
	state := &previous.sessionState
	if state.deviceIndex < 0 || state.deviceIndex == task.deviceIndex || state.nextTask != taskID || state.moveTarget >= 0 || b.cluster.options.KeepStates != KeepByValue {
		return
	}

	// A move must be quicker than recomputing the state, and have memory.
	moveTime, isMove := b.tables.stateTransferTime(task.service, state.recomputeTime, state.deviceIndex, task.deviceIndex)
	if !isMove || !b.loader.freeSpareMemory(now, task.deviceIndex, state.bytes, actions) {
		return
	}

	// Order the move. Its memory counts as used from now on.
	device := &b.cluster.devices[task.deviceIndex]
	device.usedBytes, device.planOutdated = device.usedBytes+state.bytes, true
	state.moveTarget, task.stateInTransit, task.stateArrivesAt = task.deviceIndex, true, now+moveTime
	actions.List = append(actions.List, policy.Action{Kind: policy.Load, Network: -1, Key: int64(previous.taskNumber), Device: b.tables.planDevice[task.deviceIndex]})
}

// freeSpareMemory makes sure that a number of bytes are free on a device, by evicting networks and session states that no task there needs.
// If that is not enough, it evicts nothing and returns false.
func (l *networkLoader) freeSpareMemory(now int64, deviceIndex int32, bytes int64, actions *policy.Actions) bool {
	device := &l.cluster.devices[deviceIndex]
	missingBytes := bytes - (device.memoryBytes - device.usedBytes)
	l.cluster.demand.updateValues(now)
	return device.memoryBytes == 0 || missingBytes <= 0 || l.evict(deviceIndex, noPosition, unneededClass, missingBytes, actions)
}

// trimToMemory evicts session states and networks, lower eviction classes first, until a device holds no more than its memory.
// It is called after a batch, because the states that the batch has left are stored without freeing memory for them first.
func (l *networkLoader) trimToMemory(now int64, deviceIndex int32, actions *policy.Actions) {
	device := &l.cluster.devices[deviceIndex]
	if len(device.sessionStates) == 0 {
		return
	}
	l.cluster.demand.updateValues(now)
	for class := unneededClass; device.memoryBytes > 0 && device.usedBytes > device.memoryBytes && class < pinnedClass; class++ {
		l.evict(deviceIndex, noPosition, class, device.usedBytes-device.memoryBytes, actions)
	}
}

// handleStateMoved handles the event that the move of a session state to a device has ended.
// If its Value is not 0, the move has failed, and the state is where it was. A move that was cancelled meanwhile is ignored.
// The event's Key is the number of the task that left the state.
func (l *networkLoader) handleStateMoved(event *policy.Event) {
	if event.Key < 0 || int(event.Key) >= len(l.registry.taskByNumber) {
		return
	}
	taskID, deviceIndex := l.registry.taskByNumber[event.Key], l.tables.deviceIndexOf[event.Device]
	task := &l.registry.tasks[taskID]
	state := &task.sessionState
	if int64(task.taskNumber) != event.Key || task.progress == taskFree || state.moveTarget != deviceIndex {
		return // the task has been released, or the move cancelled
	}

	// If the move has succeeded, the state is on this device now. Otherwise its bytes are free again.
	state.moveTarget = -1
	device := &l.cluster.devices[deviceIndex]
	if event.Value != 0 {
		device.usedBytes -= state.bytes
	} else {
		l.states.removeState(taskID)
		device.sessionStates = append(device.sessionStates, taskID)
		state.deviceIndex = deviceIndex
	}

	// The task that waits for the state may run, or recomputes it.
	if state.nextTask >= 0 {
		l.registry.tasks[state.nextTask].stateInTransit = false
		waitingDevice := max(0, l.registry.tasks[state.nextTask].deviceIndex) // device 0 if the task has none; that does no harm
		l.cluster.devices[waitingDevice].planOutdated = true
		l.cluster.touchDevice(waitingDevice)
	}
	device.planOutdated = true
	l.cluster.touchDevice(deviceIndex)
}

// handleStateLost handles the event that a session state did not fit into its device's memory and was dropped there.
// The event's Key is the number of the task that left it.
func (l *networkLoader) handleStateLost(event *policy.Event) {
	if event.Key < 0 || int(event.Key) >= len(l.registry.taskByNumber) {
		return
	}
	taskID := l.registry.taskByNumber[event.Key]
	if task := &l.registry.tasks[taskID]; int64(task.taskNumber) == event.Key && task.progress == taskEnded && task.sessionState.deviceIndex == l.tables.deviceIndexOf[event.Device] {
		l.states.removeState(taskID)
	}
}
