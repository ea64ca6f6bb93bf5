package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// sessionStore holds the session states that services keep of requests on devices. A task
// leaves one behind, which contains that of the task before it. The state takes memory until
// the policy drops it, a task continues it, or its request ends. A task that continues it on
// another device, or after it was dropped, takes longer by the time to compute it anew.
// Within a batch these times add up.
type sessionStore struct {
	flow      *flowEnding
	loop      *loop
	workflows *flows.WorkflowTables
	loader    *networkLoader
	counts    SessionResult // what happened to states so far
}

// SessionResult counts the fates of session states.
type SessionResult struct {
	ReusedStates, RecomputedStates int64         // tasks that found the state on their device, and tasks that did not
	MovedStates, DroppedStates     int64         // states that were moved by the policy, and states that were dropped, by it or for lack of memory
	RecomputeTime                  time.Duration // sum over the tasks that did not find theirs
}

// sessionState is the state that a task leaves behind.
type sessionState struct {
	device        int32 // device that holds it, or -1
	previousTask  int32 // task whose state this one continues, or -1
	nextTask      int32 // first task that continues this state, or -1
	moveTarget    int32 // device to which it is being moved, or -1
	bytes         int64
	recomputeTime time.Duration // time to compute it anew
}

// newSessionStore returns the store of session states (what services keep of requests on devices) of a run. If no
// service keeps any, it returns nil. It makes the loader of networks if the host has none, because states move like
// loads.
func newSessionStore(ending *flowEnding) *sessionStore {
	workflows := flows.WorkflowTablesOf(ending.loop.tables)
	if workflows == nil || !slices.ContainsFunc(workflows.SessionStates, func(s flows.SessionState) bool { return s.Bytes > 0 }) {
		return nil
	}
	host := ending.loop.baseHost
	if host.loader == nil {
		host.loader = newNetworkLoader(host)
	}
	return &sessionStore{flow: ending, loop: ending.loop, workflows: workflows, loader: host.loader}
}

// stateOf returns the session state that a task leaves behind.
func (store *sessionStore) stateOf(task int32) *sessionState { return &store.flow.records[task].state }

// hasTask reports whether the run has had a task in this slot. An order of the policy may name one that it has not.
func (store *sessionStore) hasTask(task int32) bool { return int(task) < len(store.flow.records) }

// movesStateOf reports whether an order to load is one to move the session state of a task.
func (order networkOrder) movesStateOf(task int32) bool {
	return order.network < 0 && order.key == int64(task)
}

// taskRevealed is called for each new task. It notes which session state (what a service keeps of a request) the task
// continues, and how large the one that it leaves will be, which contains that one.
func (store *sessionStore) taskRevealed(task int32) {
	run, record := store.loop, &store.flow.records[task]
	service := run.ledger.tasks.List[task].Service
	record.state = sessionState{device: -1, previousTask: -1, nextTask: -1, moveTarget: -1}
	usualState := store.workflows.SessionStateOf(service)
	if usualState.Bytes == 0 {
		return
	}

	// A task continues the state of an input of the same service, preferably one that no task continues yet. previous is
	// that input's task, -1 if there is none.
	isOfService := func(input int32) bool { return run.ledger.tasks.List[input].Service == service }
	isUncontinued := func(input int32) bool { return store.stateOf(input).nextTask < 0 }
	previous := flows.ContinuedTask(run.ledger.tasks.List[task].Inputs, isOfService, isUncontinued)
	record.state.bytes = flows.ScaleByWork(usualState.Bytes, record.work)
	record.state.recomputeTime = time.Duration(flows.ScaleByWork(int64(usualState.Recompute), record.work))
	if previous < 0 {
		return
	}

	// Its own state contains that one.
	previousState := store.stateOf(previous)
	if previousState.nextTask < 0 {
		previousState.nextTask = task
	}
	record.state.previousTask = previous
	record.state.bytes += previousState.bytes
	record.state.recomputeTime += previousState.recomputeTime
}

// countRecomputed is called when a batch starts. It counts the session states that its tasks find on the device or
// not, and returns the time to compute the missing ones, by which the run takes longer.
func (store *sessionStore) countRecomputed(batchSlot int32) (sum time.Duration) {
	run := store.loop
	device := run.batches.hopAt(batchSlot, 0).Device
	for _, task := range run.batches.members(batchSlot) {
		previous := store.stateOf(task).previousTask
		switch {
		case previous < 0:
		case store.stateOf(previous).device == device:
			store.counts.ReusedStates++
		default:
			store.counts.RecomputedStates++
			sum += store.stateOf(previous).recomputeTime
		}
	}
	store.counts.RecomputeTime += sum
	return sum
}

// recomputedBytes is called when a batch starts. It returns the bytes of the session states that the batch computes
// anew, because they are not on its device, and counts them, too.
func (store *sessionStore) recomputedBytes(batchSlot int32) (bytes int64) {
	device := store.loop.batches.hopAt(batchSlot, 0).Device
	for _, task := range store.loop.batches.members(batchSlot) {
		if previous := store.stateOf(task).previousTask; previous >= 0 && store.stateOf(previous).device != device {
			bytes += store.stateOf(previous).bytes
		}
	}
	store.countRecomputed(batchSlot)
	return bytes
}

// storeState is called when a task ends on a device. It stores there the session state (what the service keeps of the
// request) that the task leaves. The state that the task continued is discarded, unless another task was the first to
// continue it.
func (store *sessionStore) storeState(task, device int32) {
	state := store.stateOf(task)
	if state.previousTask >= 0 && store.stateOf(state.previousTask).nextTask == task {
		store.discard(state.previousTask)
	}
	if state.bytes > 0 {
		store.storeOnDevice(task, device)
	}
}

// storeOnDevice notes that the session state of a task is on a device, and counts its memory there.
func (store *sessionStore) storeOnDevice(task, device int32) {
	memory := &store.loader.memories[device]
	memory.sessionTasks = append(memory.sessionTasks, task)
	memory.usedBytes += store.stateOf(task).bytes
	store.stateOf(task).device = device
}

// removeFromDevice notes that the session state of a task is on no device any more, and frees its memory. If it is on
// none, nothing happens.
func (store *sessionStore) removeFromDevice(task int32) {
	state := store.stateOf(task)
	if state.device < 0 {
		return
	}
	memory := &store.loader.memories[state.device]
	position := slices.Index(memory.sessionTasks, task)
	memory.sessionTasks = slices.Delete(memory.sessionTasks, position, position+1)
	memory.usedBytes -= state.bytes
	state.device = -1
}

// discard ends the session state of a task (what its service keeps of the request on a device), when the task that
// continues it has ended or nothing can read it any more: it leaves its device, and a move that waits or is under way is
// cancelled.
func (store *sessionStore) discard(task int32) {
	if !store.hasTask(task) {
		return
	}
	store.removeFromDevice(task)
	state := store.stateOf(task)
	if state.moveTarget < 0 {
		return
	}

	// Cancel its move to moveTarget: the order if it waits there, or the state that is being taken in, so that finishMove
	// finds none.
	memory := &store.loader.memories[state.moveTarget]
	memory.pendingLoads = slices.DeleteFunc(memory.pendingLoads, func(order networkOrder) bool { return order.movesStateOf(task) })
	if memory.incomingState == task {
		memory.incomingState = -1
	}
	state.moveTarget = -1
}

// dropState removes the session state of a task from a device, on order of the policy or for lack of memory. If it is
// not there, nothing happens.
func (store *sessionStore) dropState(task, device int32) {
	if store.hasTask(task) && store.stateOf(task).device == device {
		store.removeFromDevice(task)
		store.counts.DroppedStates++
	}
}

// dropOverflow drops the session states that do not fit the memory of a device, the latest ones first, and tells the
// policy. It is called when a batch has ended there.
func (store *sessionStore) dropOverflow(device int32) {
	memory := &store.loader.memories[device]
	for hasMemoryLimit(store.loop.tables, device) && memory.usedBytes > store.loop.tables.Memory[device] && len(memory.sessionTasks) > 0 {
		task := memory.sessionTasks[len(memory.sessionTasks)-1]
		store.dropState(task, device)
		ev := store.loop.beginEvent(policy.NetworkUnloaded)
		ev.Network, ev.Device, ev.Key = -1, device, int64(task)
		store.loop.tellPolicy()
	}
}

// moveOrdered notes that the policy has ordered to move a session state, that of the task order.key, to a device.
func (store *sessionStore) moveOrdered(order networkOrder) {
	if task := int32(order.key); store.hasTask(task) {
		store.stateOf(task).moveTarget = order.device
	}
}

// moveBegun notes that the ordered move of a session state to a device begins: the state is on its way there.
func (store *sessionStore) moveBegun(order networkOrder) {
	store.loader.memories[order.device].incomingState = int32(order.key)
}

// moveTime returns how long an ordered move of a session state takes from now on: in proportion to its bytes, and less
// within a node. If the state is on no device, it returns 0. SameNode and OtherNode are the times of a state of usual
// size within a node and between nodes.
func (store *sessionStore) moveTime(order networkOrder) time.Duration {
	task, tables := int32(order.key), store.loop.tables
	if !store.hasTask(task) || store.stateOf(task).device < 0 {
		return 0
	}
	usualState := store.workflows.SessionStateOf(store.loop.ledger.tasks.List[task].Service)
	fullTime := usualState.OtherNode
	if tables.Devices[store.stateOf(task).device].Node == tables.Devices[order.device].Node {
		fullTime = usualState.SameNode
	}
	return time.Duration(float64(fullTime) * float64(store.stateOf(task).bytes) / float64(usualState.Bytes))
}

// finishMove is called when the move of a session state (what a service keeps of a request) to the device of the entry
// ends; `memory` is that of the device. It returns 0 if the state is then on that device only, and ReturnFull if it
// does not fit; then it stays where it was. It returns ReturnNotLoaded if the state was dropped from its device
// meanwhile, or if the move is void: its task is over, or the state was since ordered to another device. For a void
// move it also sets the key of the event, the task that the policy named (entry.orderKey), to -1.
func (store *sessionStore) finishMove(memory *deviceMemory, entry *agendaEntry) policy.ReturnReason {
	task := memory.incomingState
	memory.incomingState = -1
	if task < 0 || store.stateOf(task).moveTarget != entry.device {
		entry.serial = -1
		return policy.ReturnNotLoaded
	}

	// The state may have been dropped, be on the device already, or have no space.
	state := store.stateOf(task)
	state.moveTarget = -1
	switch tables := store.loop.tables; {
	case state.device < 0:
		return policy.ReturnNotLoaded
	case state.device == entry.device:
		return 0
	case hasMemoryLimit(tables, entry.device) && memory.usedBytes+state.bytes > tables.Memory[entry.device]:
		return policy.ReturnFull
	}

	// It is now on the new device only.
	store.removeFromDevice(task)
	store.storeOnDevice(task, entry.device)
	store.counts.MovedStates++
	return 0
}

// deviceLost removes all session states from a device that failed, and cancels the moves to it. States on other
// devices stay.
func (store *sessionStore) deviceLost(device int32) {
	memory := &store.loader.memories[device]
	for _, task := range memory.sessionTasks {
		store.stateOf(task).device = -1
	}
	memory.sessionTasks = memory.sessionTasks[:0]
	for task := range store.flow.records {
		if state := store.stateOf(int32(task)); state.moveTarget == device {
			state.moveTarget = -1
		}
	}
}

// checkEmpty returns an error if a device still holds session states at the end of a run.
func (store *sessionStore) checkEmpty() error {
	for deviceIndex := range store.loader.memories {
		if states := len(store.loader.memories[deviceIndex].sessionTasks); states > 0 {
			return fmt.Errorf("device %d holds %d states of sessions when no request is left", deviceIndex, states)
		}
	}
	return nil
}

// addResult puts the counts of session states into the result, at the end of the run.
func (store *sessionStore) addResult(r *Result) { r.Sessions = &store.counts }

// reportSessions puts the counts of session states (reused, recomputed, moved, dropped) into the report of workflows.
func (r *Result) reportSessions() {
	counts := r.Sessions
	if counts == nil || r.Report.Workflow == nil {
		return
	}
	r.Report.Workflow.Sessions = &formats.SessionReport{ReusedStates: counts.ReusedStates, RecomputedStates: counts.RecomputedStates, MovedStates: counts.MovedStates, DroppedStates: counts.DroppedStates, RecomputingUS: document.Micros(counts.RecomputeTime)}
}
