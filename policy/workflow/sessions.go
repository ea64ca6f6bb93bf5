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
	place                int32 // where it is; -1 if nowhere
	movingTo             int32 // where it is being moved to; -1 if nowhere
	nextTask             int32 // the first task that continues it; -1 if none is known
	storedAt             int64 // when it was stored
}

// stateStore handles the session states on all devices.
type stateStore struct {
	cluster *cluster
	book    *taskTable
	tables  *deviceTables
	returns []returnStats // by service: how often states are continued
}

// returnStats counts how often, and after what time, a task continues a state of a service.
type returnStats struct {
	stored, returned float64 // states stored, and states continued
	gapSum           float64 // sum of the times between, in ns
}

// stateTransfer holds how long a state of a service takes to another place, in parts of usualWork of the time to
// recompute it: the quicker of a move and of recomputing.
type stateTransfer struct {
	sameNode, otherNode      int64 // on the same node, and across nodes
	movesOnNode, movesAcross bool  // whether a move is quicker there
	bytes, recomputeTime     int64 // size, and time to recompute, of a task of the usual work
}

// newStateTransfer returns the transfer times of a service's session states. If the service has none, all are 0.
func newStateTransfer(s flow.SessionState) stateTransfer {
	if s.Bytes <= 0 || s.Recompute <= 0 {
		return stateTransfer{}
	}
	quickerPart := func(move int64) int64 { return min(usualWork, move*usualWork/int64(s.Recompute)) }
	t := stateTransfer{sameNode: quickerPart(int64(s.SameNode)), otherNode: quickerPart(int64(s.OtherNode)), bytes: s.Bytes, recomputeTime: int64(s.Recompute)}
	t.movesOnNode, t.movesAcross = t.sameNode < usualWork, t.otherNode < usualWork
	return t
}

// stateTransferTime returns how long it takes until a session state (what a service keeps of a request) that is at
// stateHome can be used at a place. If isMove is true, the state is moved, and the task is ready later by that
// time. Otherwise the task recomputes it and runs longer. Shares are in units of 1/2^20.
func (f *deviceTables) stateTransferTime(s int32, recomputeTime int64, stateHome, place int32) (transferTime int64, isMove bool) {
	switch transfer := &f.stateTransfers[s]; {
	case recomputeTime == 0 || stateHome == place:
		return 0, false
	case stateHome < 0:
		return recomputeTime, false
	case f.nodeOf[stateHome] == f.nodeOf[place]:
		return recomputeTime * transfer.sameNode >> 20, transfer.movesOnNode
	default:
		return recomputeTime * transfer.otherNode >> 20, transfer.movesAcross
	}
}

// linkState is called for a new task. It finds the session state that the task continues, and computes bytes and
// recompute time of its own, which include that state. Work is in millionths of the usual. A state is continued by
// one task only; an expected (predicted) task does not claim it.
func (c *stateStore) linkState(id int32, work int64) {
	k := &c.book.tasks[id]
	t := &c.tables.stateTransfers[k.service]
	k.stateFrom, k.session = -1, sessionState{place: -1, movingTo: -1, nextTask: -1}
	if t.bytes == 0 {
		return
	}
	sameService := func(in int32) bool { return c.book.tasks[in].service == k.service }
	isUnclaimed := func(in int32) bool { return c.book.tasks[in].session.nextTask < 0 }
	k.stateFrom = flow.ContinuedTask(k.inputs, sameService, isUnclaimed)
	k.session.bytes, k.session.recomputeTime = flow.ScaleByWork(t.bytes, work), flow.ScaleByWork(t.recomputeTime, work)
	if k.stateFrom < 0 {
		return
	}
	previous := &c.book.tasks[k.stateFrom]
	k.session.bytes, k.session.recomputeTime = k.session.bytes+previous.session.bytes, k.session.recomputeTime+previous.session.recomputeTime
	if k.slot >= 0 && previous.session.nextTask < 0 {
		previous.session.nextTask = id
	}
}

// stateHome returns the place of the state that a task continues, now or once the previous task ends. If it is nowhere,
// it returns -1.
func (c *stateStore) stateHome(k *task) int32 {
	switch previous := &c.book.tasks[k.stateFrom]; {
	case c.cluster.options.KeepStates == KeepNone:
		return -1
	case previous.state == taskEnded:
		return previous.session.place
	default:
		return previous.place
	}
}

// recomputeTime returns by how many ns longer a task runs at a place because it recomputes the session state that
// it continues. It returns 0 if there is none, or if the state is there or will be moved there.
func (c *stateStore) recomputeTime(k *task, place int32) int64 {
	if k.stateFrom < 0 || k.stateInTransit && k.place == place {
		return 0
	}
	previous, stateHome := &c.book.tasks[k.stateFrom], c.stateHome(k)
	if stateHome == place {
		return 0
	}
	if previous.state != taskEnded && stateHome >= 0 {
		if transferTime, isMove := c.tables.stateTransferTime(k.service, previous.session.recomputeTime, stateHome, place); !isMove {
			return transferTime
		}
		return 0 // it is moved once it exists
	}
	return previous.session.recomputeTime
}

// storeState stores the session state of a task that has ended in the memory of its device. The state that it
// continued is part of it and is forgotten. With KeepNone it is evicted at once.
func (c *stateStore) storeState(now int64, id int32, out *policy.Actions) {
	k := &c.book.tasks[id]
	if k.stateFrom >= 0 && c.book.tasks[k.stateFrom].session.nextTask == id {
		c.forgetState(k.stateFrom) // this task's state contains it
	}
	m := &k.session
	if m.bytes == 0 {
		return
	}
	d := &c.cluster.devices[k.place]
	d.sessionStates = append(d.sessionStates, id)
	d.usedBytes += m.bytes
	m.place, m.storedAt = k.place, now
	if c.cluster.options.KeepStates == KeepNone {
		c.evictState(id, out)
	} else if m.nextTask < 0 {
		c.returns[k.service].stored++
	}
}

// countReturn counts that a task continues a session state that was stored on a device, and after what time. From
// that follows what a stored state is worth.
func (c *stateStore) countReturn(now int64, k *task) {
	if k.stateFrom < 0 {
		return
	}
	if m := &c.book.tasks[k.stateFrom].session; m.place >= 0 {
		r := &c.returns[k.service]
		r.returned, r.gapSum = r.returned+1, r.gapSum+float64(now-m.storedAt)
	}
}

// forgetState removes a state that no task needs any more, and cancels its move.
func (c *stateStore) forgetState(id int32) {
	m := &c.book.tasks[id].session
	if m.movingTo >= 0 {
		c.cluster.devices[m.movingTo].usedBytes -= m.bytes
		c.cluster.devices[m.movingTo].dirty = true
		m.movingTo = -1
	}
	c.removeState(id)
}

// removeState removes a session state from its device, with its bytes. If it is on no device, nothing changes.
func (c *stateStore) removeState(id int32) {
	m := &c.book.tasks[id].session
	if m.place < 0 {
		return
	}
	d := &c.cluster.devices[m.place]
	i := slices.Index(d.sessionStates, id)
	d.sessionStates = slices.Delete(d.sessionStates, i, i+1)
	d.usedBytes -= m.bytes
	d.dirty = true
	m.place = -1
}

// clearDevice forgets the session states on a lost device, and those on their way to it, which stay where they
// were. The caller resets the device's bytes.
func (c *stateStore) clearDevice(place int32) {
	d := &c.cluster.devices[place]
	for i := range c.book.tasks {
		if m := &c.book.tasks[i].session; m.movingTo == place {
			m.movingTo = -1
			if m.nextTask >= 0 {
				c.book.tasks[m.nextTask].stateInTransit = false
			}
		}
	}
	for _, id := range d.sessionStates {
		c.book.tasks[id].session.place = -1
	}
	d.sessionStates = d.sessionStates[:0]
}

// evictState unloads a state from its device to free memory.
func (c *stateStore) evictState(id int32, out *policy.Actions) {
	k := &c.book.tasks[id]
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: -1, Key: int64(k.slot), Device: c.tables.deviceAt[k.session.place]})
	c.removeState(id)
}

// stateClass returns the eviction class of a session state on a device; lower classes are evicted first. It is
// pinned while the task that continues it runs there, needed while it moves, and otherwise by the option
// KeepStates.
func (c *stateStore) stateClass(id int32) int {
	m := &c.book.tasks[id].session
	if m.nextTask >= 0 {
		switch u := &c.book.tasks[m.nextTask]; {
		case u.state == taskRunning && u.place == m.place:
			return pinnedClass
		case m.movingTo >= 0:
			return neededClass
		case c.cluster.options.KeepStates == KeepByValue && (u.state == taskRunning || u.state == taskQueued && u.place != m.place):
			return unneededClass // the task recomputes it
		case c.cluster.options.KeepStates == KeepByValue:
			return expectedClass
		}
	}
	if c.cluster.options.KeepStates == KeepAll {
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
func (c *stateStore) stateValue(id int32) float64 {
	k := &c.book.tasks[id]
	m, r := &k.session, &c.returns[k.service]
	returnShare, expectedWait := (r.returned+1)/(r.stored+2), (r.gapSum+1e9)/(r.returned+1)
	if m.nextTask >= 0 {
		u := &c.book.tasks[m.nextTask]
		if u.state == taskQueued && u.place != m.place {
			return 0
		}
		returnShare, expectedWait = 1, float64(max(1e6, u.endsAt-c.cluster.demand.valuedAt))
	}
	return returnShare * float64(m.recomputeTime) / expectedWait / float64(m.bytes)
}

// fetchState orders the session state that a placed task continues to be moved to its place, if that is quicker
// than recomputing it and there is memory. The state must be stored elsewhere, not be moving, and be kept by value
// (KeepByValue).
func (b *batchRunner) fetchState(now int64, id int32, out *policy.Actions) {
	k := &b.book.tasks[id]
	if k.stateFrom < 0 || k.stateInTransit {
		return
	}
	previous := &b.book.tasks[k.stateFrom]
	m := &previous.session
	if m.place < 0 || m.place == k.place || m.nextTask != id || m.movingTo >= 0 || b.cluster.options.KeepStates != KeepByValue {
		return
	}
	moveTime, isMove := b.tables.stateTransferTime(k.service, m.recomputeTime, m.place, k.place)
	if !isMove || !b.loader.freeSpareMemory(now, k.place, m.bytes, out) {
		return
	}
	d := &b.cluster.devices[k.place]
	d.usedBytes, d.dirty = d.usedBytes+m.bytes, true
	m.movingTo, k.stateInTransit, k.stateArrivesAt = k.place, true, now+moveTime
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: -1, Key: int64(previous.slot), Device: b.tables.deviceAt[k.place]})
}

// freeSpareMemory frees bytes on a device by evicting what no task there needs. It returns false if that is not enough.
func (l *networkLoader) freeSpareMemory(now int64, place int32, bytes int64, out *policy.Actions) bool {
	d := &l.cluster.devices[place]
	missingBytes := bytes - (d.memoryBytes - d.usedBytes)
	l.cluster.demand.updateValues(now)
	return d.memoryBytes == 0 || missingBytes <= 0 || l.evict(place, -1, unneededClass, missingBytes, out)
}

// trimToMemory evicts session states and networks, lower classes first, until a device holds no more than its
// memory. It is called after a batch, whose states were stored without asking.
func (l *networkLoader) trimToMemory(now int64, place int32, out *policy.Actions) {
	d := &l.cluster.devices[place]
	if len(d.sessionStates) == 0 {
		return
	}
	l.cluster.demand.updateValues(now)
	for class := unneededClass; d.memoryBytes > 0 && d.usedBytes > d.memoryBytes && class < pinnedClass; class++ {
		l.evict(place, -1, class, d.usedBytes-d.memoryBytes, out)
	}
}

// handleStateMoved records that the move of a session state to a device has ended. If ev.Value is not 0, it has
// failed, and the state is where it was. Moves that were cancelled meanwhile are ignored.
func (l *networkLoader) handleStateMoved(ev *policy.Event) {
	if ev.Key < 0 || int(ev.Key) >= len(l.book.taskInSlot) {
		return
	}
	id, place := l.book.taskInSlot[ev.Key], l.tables.placeOf[ev.Device]
	k := &l.book.tasks[id]
	m := &k.session
	if int64(k.slot) != ev.Key || k.state == taskFree || m.movingTo != place {
		return
	}
	m.movingTo = -1
	d := &l.cluster.devices[place]
	if ev.Value != 0 {
		d.usedBytes -= m.bytes
	} else {
		l.states.removeState(id)
		d.sessionStates = append(d.sessionStates, id)
		m.place = place
	}
	if m.nextTask >= 0 {
		l.book.tasks[m.nextTask].stateInTransit = false
		l.cluster.devices[max(0, l.book.tasks[m.nextTask].place)].dirty = true
		l.cluster.touchDevice(max(0, l.book.tasks[m.nextTask].place))
	}
	d.dirty = true
	l.cluster.touchDevice(place)
}

// handleStateLost records that a session state did not fit into its device's memory and was dropped there.
func (l *networkLoader) handleStateLost(ev *policy.Event) {
	if ev.Key < 0 || int(ev.Key) >= len(l.book.taskInSlot) {
		return
	}
	id := l.book.taskInSlot[ev.Key]
	if k := &l.book.tasks[id]; int64(k.slot) == ev.Key && k.state == taskEnded && k.session.place == l.tables.placeOf[ev.Device] {
		l.states.removeState(id)
	}
}
