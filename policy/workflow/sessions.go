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

// sessionState is the session state that a task leaves behind.
type sessionState struct {
	bytes, recomputeTime int64 // size, and the time in ns to recompute it
	deviceIndex          int32 // where it is; -1 if nowhere
	moveTarget           int32 // where it is being moved to; -1 if nowhere
	nextTask             int32 // the first task that continues it; -1 if none is known
	storedAt             int64 // when it was stored
}

// stateStore handles the session states on all devices.
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

// stateTransfer holds how long a state of a service takes to another place, in parts of usualWork of the time to
// recompute it: the quicker of a move and of recomputing.
type stateTransfer struct {
	sameNodePart, otherNodePart       int64 // on the same node, and across nodes
	movesWithinNode, movesAcrossNodes bool  // whether a move is quicker there
	bytes, recomputeTime              int64 // size, and time to recompute, of a task of the usual work
}

// newStateTransfer returns the transfer times of a service's session states. If the service has none, all are 0.
func newStateTransfer(s flow.SessionState) stateTransfer {
	if s.Bytes <= 0 || s.Recompute <= 0 {
		return stateTransfer{}
	}
	quickerPart := func(move int64) int64 { return min(usualWork, move*usualWork/int64(s.Recompute)) }
	t := stateTransfer{sameNodePart: quickerPart(int64(s.SameNode)), otherNodePart: quickerPart(int64(s.OtherNode)), bytes: s.Bytes, recomputeTime: int64(s.Recompute)}
	t.movesWithinNode, t.movesAcrossNodes = t.sameNodePart < usualWork, t.otherNodePart < usualWork
	return t
}

// stateTransferTime returns how long it takes until a session state (what a service keeps of a request) that is at
// stateDevice can be used at a place. If isMove is true, the state is moved, and the task is ready later by that
// time. Otherwise the task recomputes it and runs longer. Shares are in units of 1/2^20.
func (t *deviceTables) stateTransferTime(service int32, recomputeTime int64, stateDevice, deviceIndex int32) (transferTime int64, isMove bool) {
	switch transfer := &t.stateTransfers[service]; {
	case recomputeTime == 0 || stateDevice == deviceIndex:
		return 0, false
	case stateDevice < 0:
		return recomputeTime, false
	case t.nodeOf[stateDevice] == t.nodeOf[deviceIndex]:
		return recomputeTime * transfer.sameNodePart >> 20, transfer.movesWithinNode
	default:
		return recomputeTime * transfer.otherNodePart >> 20, transfer.movesAcrossNodes
	}
}

// linkState is called for a new task. It finds the session state that the task continues, and computes bytes and
// recompute time of its own, which include that state. Work is in millionths of the usual. A state is continued by
// one task only; an expected (predicted) task does not claim it.
func (s *stateStore) linkState(taskID int32, relativeWork int64) {
	task := &s.registry.tasks[taskID]
	transfer := &s.tables.stateTransfers[task.service]
	task.stateSource, task.state = -1, sessionState{deviceIndex: -1, moveTarget: -1, nextTask: -1}
	if transfer.bytes == 0 {
		return
	}
	sameService := func(input int32) bool { return s.registry.tasks[input].service == task.service }
	isUnclaimed := func(input int32) bool { return s.registry.tasks[input].state.nextTask < 0 }
	task.stateSource = flow.ContinuedTask(task.inputs, sameService, isUnclaimed)
	task.state.bytes, task.state.recomputeTime = flow.ScaleByWork(transfer.bytes, relativeWork), flow.ScaleByWork(transfer.recomputeTime, relativeWork)
	if task.stateSource < 0 {
		return
	}
	previous := &s.registry.tasks[task.stateSource]
	task.state.bytes, task.state.recomputeTime = task.state.bytes+previous.state.bytes, task.state.recomputeTime+previous.state.recomputeTime
	if task.taskNumber >= 0 && previous.state.nextTask < 0 {
		previous.state.nextTask = taskID
	}
}

// deviceOfState returns the place of the state that a task continues, now or once the previous task ends. If it is nowhere,
// it returns -1.
func (s *stateStore) deviceOfState(task *task) int32 {
	switch previous := &s.registry.tasks[task.stateSource]; {
	case s.cluster.options.KeepStates == KeepNone:
		return -1
	case previous.progress == taskEnded:
		return previous.state.deviceIndex
	default:
		return previous.deviceIndex
	}
}

// recomputeTime returns by how many ns longer a task runs at a place because it recomputes the session state that
// it continues. It returns 0 if there is none, or if the state is there or will be moved there.
func (s *stateStore) recomputeTime(task *task, deviceIndex int32) int64 {
	if task.stateSource < 0 || task.stateInTransit && task.deviceIndex == deviceIndex {
		return 0
	}
	previous, stateDevice := &s.registry.tasks[task.stateSource], s.deviceOfState(task)
	if stateDevice == deviceIndex {
		return 0
	}
	if previous.progress != taskEnded && stateDevice >= 0 {
		if transferTime, isMove := s.tables.stateTransferTime(task.service, previous.state.recomputeTime, stateDevice, deviceIndex); !isMove {
			return transferTime
		}
		return 0 // it is moved once it exists
	}
	return previous.state.recomputeTime
}

// storeState stores the session state of a task that has ended in the memory of its device. The state that it
// continued is part of it and is forgotten. With KeepNone it is evicted at once.
func (s *stateStore) storeState(now int64, taskID int32, actions *policy.Actions) {
	task := &s.registry.tasks[taskID]
	if task.stateSource >= 0 && s.registry.tasks[task.stateSource].state.nextTask == taskID {
		s.forgetState(task.stateSource) // this task's state contains it
	}
	state := &task.state
	if state.bytes == 0 {
		return
	}
	device := &s.cluster.devices[task.deviceIndex]
	device.sessionStates = append(device.sessionStates, taskID)
	device.usedBytes += state.bytes
	state.deviceIndex, state.storedAt = task.deviceIndex, now
	if s.cluster.options.KeepStates == KeepNone {
		s.evictState(taskID, actions)
	} else if state.nextTask < 0 {
		s.returns[task.service].stored++
	}
}

// countReturn counts that a task continues a session state that was stored on a device, and after what time. From
// that follows what a stored state is worth.
func (s *stateStore) countReturn(now int64, task *task) {
	if task.stateSource < 0 {
		return
	}
	if state := &s.registry.tasks[task.stateSource].state; state.deviceIndex >= 0 {
		stats := &s.returns[task.service]
		stats.returned, stats.gapSum = stats.returned+1, stats.gapSum+float64(now-state.storedAt)
	}
}

// forgetState removes a state that no task needs any more, and cancels its move.
func (s *stateStore) forgetState(taskID int32) {
	state := &s.registry.tasks[taskID].state
	if state.moveTarget >= 0 {
		s.cluster.devices[state.moveTarget].usedBytes -= state.bytes
		s.cluster.devices[state.moveTarget].planOutdated = true
		state.moveTarget = -1
	}
	s.removeState(taskID)
}

// removeState removes a session state from its device, with its bytes. If it is on no device, nothing changes.
func (s *stateStore) removeState(taskID int32) {
	state := &s.registry.tasks[taskID].state
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

// clearDevice forgets the session states on a lost device, and those on their way to it, which stay where they
// were. The caller resets the device's bytes.
func (s *stateStore) clearDevice(deviceIndex int32) {
	device := &s.cluster.devices[deviceIndex]
	for i := range s.registry.tasks {
		if state := &s.registry.tasks[i].state; state.moveTarget == deviceIndex {
			state.moveTarget = -1
			if state.nextTask >= 0 {
				s.registry.tasks[state.nextTask].stateInTransit = false
			}
		}
	}
	for _, taskID := range device.sessionStates {
		s.registry.tasks[taskID].state.deviceIndex = -1
	}
	device.sessionStates = device.sessionStates[:0]
}

// evictState unloads a state from its device to free memory.
func (s *stateStore) evictState(taskID int32, actions *policy.Actions) {
	task := &s.registry.tasks[taskID]
	actions.List = append(actions.List, policy.Action{Kind: policy.Unload, Network: -1, Key: int64(task.taskNumber), Device: s.tables.planDevice[task.state.deviceIndex]})
	s.removeState(taskID)
}

// stateClass returns the eviction class of a session state on a device; lower classes are evicted first. It is
// pinned while the task that continues it runs there, needed while it moves, and otherwise by the option
// KeepStates.
func (s *stateStore) stateClass(taskID int32) int {
	state := &s.registry.tasks[taskID].state
	if state.nextTask >= 0 {
		switch successor := &s.registry.tasks[state.nextTask]; {
		case successor.progress == taskRunning && successor.deviceIndex == state.deviceIndex:
			return pinnedClass
		case state.moveTarget >= 0:
			return neededClass
		case s.cluster.options.KeepStates == KeepByValue && (successor.progress == taskRunning || successor.progress == taskQueued && successor.deviceIndex != state.deviceIndex):
			return unneededClass // the task recomputes it
		case s.cluster.options.KeepStates == KeepByValue:
			return expectedClass
		}
	}
	if s.cluster.options.KeepStates == KeepAll {
		return neededClass
	}
	return unneededClass
}

// stateValue returns what a byte of a state saves, per ns that it is kept:
//
//	returnShare · recomputeTime / expectedWait / bytes
//
// returnShare is the share of states of the service that a later task continued, with one and two added so that few
// samples say little. expectedWait is the mean time until then, at least 1 ms. If the next task is known, it is
// certain to return, at its own time.
func (s *stateStore) stateValue(taskID int32) float64 {
	task := &s.registry.tasks[taskID]
	state, stats := &task.state, &s.returns[task.service]
	returnShare, expectedWait := (stats.returned+1)/(stats.stored+2), (stats.gapSum+1e9)/(stats.returned+1)
	if state.nextTask >= 0 {
		successor := &s.registry.tasks[state.nextTask]
		if successor.progress == taskQueued && successor.deviceIndex != state.deviceIndex {
			return 0
		}
		returnShare, expectedWait = 1, float64(max(1e6, successor.endsAt-s.cluster.demand.valuedAt))
	}
	return returnShare * float64(state.recomputeTime) / expectedWait / float64(state.bytes)
}

// fetchState orders the session state that a placed task continues to be moved to its place, if that is quicker
// than recomputing it and there is memory. The state must be stored elsewhere, not be moving, and be kept by value
// (KeepByValue).
func (b *batchRunner) fetchState(now int64, taskID int32, actions *policy.Actions) {
	task := &b.registry.tasks[taskID]
	if task.stateSource < 0 || task.stateInTransit {
		return
	}
	previous := &b.registry.tasks[task.stateSource]
	state := &previous.state
	if state.deviceIndex < 0 || state.deviceIndex == task.deviceIndex || state.nextTask != taskID || state.moveTarget >= 0 || b.cluster.options.KeepStates != KeepByValue {
		return
	}
	moveTime, isMove := b.tables.stateTransferTime(task.service, state.recomputeTime, state.deviceIndex, task.deviceIndex)
	if !isMove || !b.loader.freeSpareMemory(now, task.deviceIndex, state.bytes, actions) {
		return
	}
	device := &b.cluster.devices[task.deviceIndex]
	device.usedBytes, device.planOutdated = device.usedBytes+state.bytes, true
	state.moveTarget, task.stateInTransit, task.stateArrivesAt = task.deviceIndex, true, now+moveTime
	actions.List = append(actions.List, policy.Action{Kind: policy.Load, Network: -1, Key: int64(previous.taskNumber), Device: b.tables.planDevice[task.deviceIndex]})
}

// freeSpareMemory frees bytes on a device by evicting what no task there needs. It returns false if that is not enough.
func (l *networkLoader) freeSpareMemory(now int64, deviceIndex int32, bytes int64, actions *policy.Actions) bool {
	device := &l.cluster.devices[deviceIndex]
	missingBytes := bytes - (device.memoryBytes - device.usedBytes)
	l.cluster.demand.updateValues(now)
	return device.memoryBytes == 0 || missingBytes <= 0 || l.evict(deviceIndex, -1, unneededClass, missingBytes, actions)
}

// trimToMemory evicts session states and networks, lower classes first, until a device holds no more than its
// memory. It is called after a batch, whose states were stored without asking.
func (l *networkLoader) trimToMemory(now int64, deviceIndex int32, actions *policy.Actions) {
	device := &l.cluster.devices[deviceIndex]
	if len(device.sessionStates) == 0 {
		return
	}
	l.cluster.demand.updateValues(now)
	for class := unneededClass; device.memoryBytes > 0 && device.usedBytes > device.memoryBytes && class < pinnedClass; class++ {
		l.evict(deviceIndex, -1, class, device.usedBytes-device.memoryBytes, actions)
	}
}

// handleStateMoved records that the move of a session state to a device has ended. If ev.Value is not 0, it has
// failed, and the state is where it was. Moves that were cancelled meanwhile are ignored.
func (l *networkLoader) handleStateMoved(event *policy.Event) {
	if event.Key < 0 || int(event.Key) >= len(l.registry.taskByNumber) {
		return
	}
	taskID, deviceIndex := l.registry.taskByNumber[event.Key], l.tables.deviceIndexOf[event.Device]
	task := &l.registry.tasks[taskID]
	state := &task.state
	if int64(task.taskNumber) != event.Key || task.progress == taskFree || state.moveTarget != deviceIndex {
		return
	}
	state.moveTarget = -1
	device := &l.cluster.devices[deviceIndex]
	if event.Value != 0 {
		device.usedBytes -= state.bytes
	} else {
		l.states.removeState(taskID)
		device.sessionStates = append(device.sessionStates, taskID)
		state.deviceIndex = deviceIndex
	}
	if state.nextTask >= 0 {
		l.registry.tasks[state.nextTask].stateInTransit = false
		l.cluster.devices[max(0, l.registry.tasks[state.nextTask].deviceIndex)].planOutdated = true
		l.cluster.touchDevice(max(0, l.registry.tasks[state.nextTask].deviceIndex))
	}
	device.planOutdated = true
	l.cluster.touchDevice(deviceIndex)
}

// handleStateLost records that a session state did not fit into its device's memory and was dropped there.
func (l *networkLoader) handleStateLost(event *policy.Event) {
	if event.Key < 0 || int(event.Key) >= len(l.registry.taskByNumber) {
		return
	}
	taskID := l.registry.taskByNumber[event.Key]
	if task := &l.registry.tasks[taskID]; int64(task.taskNumber) == event.Key && task.progress == taskEnded && task.state.deviceIndex == l.tables.deviceIndexOf[event.Device] {
		l.states.removeState(taskID)
	}
}
