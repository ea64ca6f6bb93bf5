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
	counts    SessionResult
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

// newSessionStore returns the store of session states (what services keep of requests on devices) of a run. It
// returns nil if no service keeps any.
func newSessionStore(f *flowEnding) *sessionStore {
	workflows := flows.WorkflowTablesOf(f.loop.tables)
	if workflows == nil || !slices.ContainsFunc(workflows.SessionStates, func(s flows.SessionState) bool { return s.Bytes > 0 }) {
		return nil
	}
	h := f.loop.baseHost
	if h.loader == nil {
		h.loader = newNetworkLoader(h)
	}
	return &sessionStore{flow: f, loop: f.loop, workflows: workflows, loader: h.loader}
}

// stateOf returns the state of a task.
func (k *sessionStore) stateOf(t int32) *sessionState { return &k.flow.records[t].state }

// taskRevealed is called for each new task. It notes which session state (what a service keeps of a request) the
// task continues, and how large its own will be, which contains that one.
func (k *sessionStore) taskRevealed(t int32) {
	l, record := k.loop, &k.flow.records[t]
	service := l.ledger.tasks.List[t].Service
	record.state = sessionState{device: -1, previousTask: -1, nextTask: -1, moveTarget: -1}
	s := k.workflows.SessionStateOf(service)
	if s.Bytes == 0 {
		return
	}

	// A task continues the state of an input of the same service, preferably one that no task continues yet.
	previous := flows.ContinuedTask(l.ledger.tasks.List[t].Inputs, func(in int32) bool { return l.ledger.tasks.List[in].Service == service }, func(in int32) bool { return k.stateOf(in).nextTask < 0 })
	record.state.bytes, record.state.recomputeTime = flows.ScaleByWork(s.Bytes, record.work), time.Duration(flows.ScaleByWork(int64(s.Recompute), record.work))
	if previous < 0 {
		return
	}

	// Its own state contains that one.
	previousState := k.stateOf(previous)
	if previousState.nextTask < 0 {
		previousState.nextTask = t
	}
	record.state.previousTask = previous
	record.state.bytes, record.state.recomputeTime = record.state.bytes+previousState.bytes, record.state.recomputeTime+previousState.recomputeTime
}

// countRecomputed is called when a batch starts. It counts the session states that its tasks find on the device or
// not, and returns the time to compute the missing ones, by which the batch takes longer.
func (k *sessionStore) countRecomputed(slot int32) (sum time.Duration) {
	l := k.loop
	device := l.batches.hopAt(slot, 0).Device
	for _, t := range l.batches.members(slot) {
		previous := k.stateOf(t).previousTask
		switch {
		case previous < 0:
		case k.stateOf(previous).device == device:
			k.counts.ReusedStates++
		default:
			k.counts.RecomputedStates++
			sum += k.stateOf(previous).recomputeTime
		}
	}
	k.counts.RecomputeTime += sum
	return sum
}

// recomputedBytes returns the bytes of the states that a starting batch computes anew. It
// counts them, too.
func (k *sessionStore) recomputedBytes(slot int32) (bytes int64) {
	for _, t := range k.loop.batches.members(slot) {
		if previous := k.stateOf(t).previousTask; previous >= 0 && k.stateOf(previous).device != k.loop.batches.hopAt(slot, 0).Device {
			bytes += k.stateOf(previous).bytes
		}
	}
	k.countRecomputed(slot)
	return bytes
}

// storeState puts the state of an ended task onto its device. The state that the task
// continued is discarded, unless another task was the first to continue it.
func (k *sessionStore) storeState(t, device int32) {
	s := k.stateOf(t)
	if s.previousTask >= 0 && k.stateOf(s.previousTask).nextTask == t {
		k.discard(s.previousTask)
	}
	if s.bytes > 0 {
		k.putOnDevice(t, device)
	}
}

// putOnDevice notes that the session state of task t is on a device, and counts its memory there.
func (k *sessionStore) putOnDevice(t, device int32) {
	memory := &k.loader.memories[device]
	memory.sessionTasks = append(memory.sessionTasks, t)
	memory.usedBytes += k.stateOf(t).bytes
	k.stateOf(t).device = device
}

// removeFromDevice notes that the session state of task t is on no device any more, and frees its memory.
func (k *sessionStore) removeFromDevice(t int32) {
	s := k.stateOf(t)
	if s.device < 0 {
		return
	}
	memory := &k.loader.memories[s.device]
	position := slices.Index(memory.sessionTasks, t)
	memory.sessionTasks = slices.Delete(memory.sessionTasks, position, position+1)
	memory.usedBytes -= s.bytes
	s.device = -1
}

// discard ends a session state that no task needs any more: it leaves its device, and a move that waits or is under
// way is cancelled.
func (k *sessionStore) discard(t int32) {
	if int(t) >= len(k.flow.records) {
		return
	}
	s := k.stateOf(t)
	k.removeFromDevice(t)
	if s.moveTarget >= 0 {
		memory := &k.loader.memories[s.moveTarget]
		memory.pendingLoads = slices.DeleteFunc(memory.pendingLoads, func(o networkOrder) bool { return o.network < 0 && o.key == int64(t) })
		if memory.incomingState == t {
			memory.incomingState = -1
		}
		s.moveTarget = -1
	}
}

// dropState removes a state from a device, on order of the policy or for lack of memory.
func (k *sessionStore) dropState(t, device int32) {
	if int(t) < len(k.flow.records) && k.stateOf(t).device == device {
		k.removeFromDevice(t)
		k.counts.DroppedStates++
	}
}

// dropOverflow drops the states that do not fit the memory of a device, the latest ones
// first, and tells the policy.
func (k *sessionStore) dropOverflow(device int32) {
	memory := &k.loader.memories[device]
	for hasMemoryLimit(k.loop.tables, device) && memory.usedBytes > k.loop.tables.Memory[device] && len(memory.sessionTasks) > 0 {
		t := memory.sessionTasks[len(memory.sessionTasks)-1]
		k.dropState(t, device)
		ev := k.loop.beginEvent(policy.NetworkUnloaded)
		ev.Network, ev.Device, ev.Key = -1, device, int64(t)
		k.loop.tellPolicy()
	}
}

// moveOrdered notes that a state is to be moved to a device.
func (k *sessionStore) moveOrdered(o networkOrder) {
	if t := int32(o.key); int(t) < len(k.flow.records) {
		k.stateOf(t).moveTarget = o.device
	}
}

// moveBegun notes that a move begins.
func (k *sessionStore) moveBegun(o networkOrder) {
	k.loader.memories[o.device].incomingState = int32(o.key)
}

// moveTime returns how long a move takes from now on: in proportion to its bytes, and less
// within a node.
func (k *sessionStore) moveTime(o networkOrder) time.Duration {
	t, tables := int32(o.key), k.loop.tables
	if int(t) >= len(k.flow.records) || k.stateOf(t).device < 0 {
		return 0
	}
	s := k.workflows.SessionStateOf(k.loop.ledger.tasks.List[t].Service)
	fullTime := s.OtherNode
	if tables.Devices[k.stateOf(t).device].Node == tables.Devices[o.device].Node {
		fullTime = s.SameNode
	}
	return time.Duration(float64(fullTime) * float64(k.stateOf(t).bytes) / float64(s.Bytes))
}

// finishMove is called when the move of a session state to a device ends. The state is then on the new device only,
// and 0 is returned. If it was dropped meanwhile, or does not fit and so stays where it was, the reason is
// returned.
func (k *sessionStore) finishMove(memory *deviceMemory, entry *agendaEntry) policy.ReturnReason {
	t := memory.incomingState
	memory.incomingState = -1
	if t < 0 || k.stateOf(t).moveTarget != entry.device {
		entry.serial = -1 // it is nobody's any more
		return policy.ReturnNotLoaded
	}
	s := k.stateOf(t)
	s.moveTarget = -1
	switch tables := k.loop.tables; {
	case s.device < 0:
		return policy.ReturnNotLoaded
	case s.device == entry.device:
		return 0
	case hasMemoryLimit(tables, entry.device) && memory.usedBytes+s.bytes > tables.Memory[entry.device]:
		return policy.ReturnFull
	}
	k.removeFromDevice(t)
	k.putOnDevice(t, entry.device)
	k.counts.MovedStates++
	return 0
}

// deviceLost removes all session states from a device that failed, and cancels the moves to it. States on other
// devices stay.
func (k *sessionStore) deviceLost(device int32) {
	memory := &k.loader.memories[device]
	for _, t := range memory.sessionTasks {
		k.stateOf(t).device = -1
	}
	memory.sessionTasks = memory.sessionTasks[:0]
	for t := range k.flow.records {
		if s := k.stateOf(int32(t)); s.moveTarget == device {
			s.moveTarget = -1
		}
	}
}

// checkEmpty returns an error if a device still holds states.
func (k *sessionStore) checkEmpty() error {
	for d := range k.loader.memories {
		if n := len(k.loader.memories[d].sessionTasks); n > 0 {
			return fmt.Errorf("device %d holds %d states of sessions when no request is left", d, n)
		}
	}
	return nil
}

// addResult puts the counts into the result.
func (k *sessionStore) addResult(r *Result) { r.setSessions(&k.counts) }

// setSessions puts the counts of session states (reused, recomputed, moved, dropped) into the result and, if it has
// one of workflows, its report.
func (r *Result) setSessions(s *SessionResult) {
	r.Sessions = s
	if r.Report == nil || r.Report.Workflow == nil {
		return
	}
	r.Report.Workflow.Sessions = &formats.SessionReport{ReusedStates: s.ReusedStates, RecomputedStates: s.RecomputedStates, MovedStates: s.MovedStates, DroppedStates: s.DroppedStates, RecomputingUS: document.Micros(s.RecomputeTime)}
}

// poolSessions adds up the counts of session states over several runs and puts the sums into the pooled result.
// Without such counts it does nothing.
func poolSessions(pooled *Result, results []*Result) {
	if results[0].Sessions == nil {
		return
	}
	total := &SessionResult{}
	for _, r := range results {
		s := r.Sessions
		total.ReusedStates, total.RecomputedStates, total.MovedStates = total.ReusedStates+s.ReusedStates, total.RecomputedStates+s.RecomputedStates, total.MovedStates+s.MovedStates
		total.DroppedStates, total.RecomputeTime = total.DroppedStates+s.DroppedStates, total.RecomputeTime+s.RecomputeTime
	}
	pooled.setSessions(total)
}
