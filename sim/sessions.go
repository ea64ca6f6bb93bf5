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
type sessions struct {
	f      *flow
	own    *flows.Workflows
	store  *storage
	counts SessionResult
}

// SessionResult counts the fates of session states.
type SessionResult struct {
	Reused, Recomputed int64         // tasks that found the state on their device, and tasks that did not
	Moved, Dropped     int64         // states that were moved by the policy, and states that were dropped, by it or for lack of memory
	Recomputing        time.Duration // sum over the tasks that did not find theirs
}

// sessionState is the state that a task leaves behind.
type sessionState struct { // that holds it, or -1
	device int32 // task whose state this one continues, or -1
	from   int32 // first task that continues this state, or -1
	next   int32 // device to which it is being moved, or -1
	to     int32 // device to which it is being moved, or -1
	bytes  int64
	price  time.Duration // time to compute it anew
}

// newSessionStore returns nil if no service keeps states.
func newSessions(f *flow) *sessions {
	own := flows.WorkflowsOf(f.l.t)
	if own == nil || !slices.ContainsFunc(own.Sessions, func(s flows.Session) bool { return s.Bytes > 0 }) {
		return nil
	}
	h := f.l.base
	if h.storage == nil {
		h.storage = newStorage(h)
	}
	return &sessions{f: f, own: own, store: h.storage}
}

// stateOf returns the state of a task.
func (k *sessions) of(t int32) *sessionState { return &k.f.facts[t].state }

// taskRevealed notes which state a new task continues, and how large its own will be.
func (k *sessions) revealed(t int32) {
	l, fa := k.f.l, &k.f.facts[t]
	service := l.tasks.List[t].Service
	fa.state = sessionState{device: -1, from: -1, next: -1, to: -1}
	s := k.own.SessionOf(service)
	if s.Bytes == 0 {
		return
	}

	// A task continues the state of an input of the same service, preferably one that no task continues yet.
	from := flows.Continued(l.tasks.List[t].Inputs, func(in int32) bool { return l.tasks.List[in].Service == service }, func(in int32) bool { return k.of(in).next < 0 })
	fa.state.bytes, fa.state.price = flows.Part(s.Bytes, fa.work), time.Duration(flows.Part(int64(s.Recompute), fa.work))
	if from < 0 {
		return

		// Its own state contains that one.
	}
	u := k.of(from)
	if u.next < 0 {
		u.next = t
	}
	fa.state.from = from
	fa.state.bytes, fa.state.price = fa.state.bytes+u.bytes, fa.state.price+u.price
}

// countRecomputed counts the states that the tasks of a starting batch find or not, and
// returns the time to compute the missing ones.
func (k *sessions) recomputed(slot int32) (sum time.Duration) {
	l := k.f.l
	device := l.hop(slot, 0).Device
	for _, t := range l.members(slot) {
		from := k.of(t).from
		switch {
		case from < 0:
		case k.of(from).device == device:
			k.counts.Reused++
		default:
			k.counts.Recomputed++
			sum += k.of(from).price
		}
	}
	k.counts.Recomputing += sum
	return sum
}

// recomputedBytes returns the bytes of the states that a starting batch computes anew. It
// counts them, too.
func (k *sessions) anew(slot int32) (bytes int64) {
	for _, t := range k.f.l.members(slot) {
		if from := k.of(t).from; from >= 0 && k.of(from).device != k.f.l.hop(slot, 0).Device {
			bytes += k.of(from).bytes
		}
	}
	k.recomputed(slot)
	return bytes
}

// storeState puts the state of an ended task onto its device. The state that the task
// continued is discarded, unless another task was the first to continue it.
func (k *sessions) leave(t, device int32) {
	s := k.of(t)
	if s.from >= 0 && k.of(s.from).next == t {
		k.forget(s.from)
	}
	if s.bytes > 0 {
		k.put(t, device)
	}
}

// putOnDevice notes that a state is on a device.
func (k *sessions) put(t, device int32) {
	ld := &k.store.by[device]
	ld.states = append(ld.states, t)
	ld.taken += k.of(t).bytes
	k.of(t).device = device
}

// removeFromDevice notes that a state is on no device any more.
func (k *sessions) take(t int32) {
	s := k.of(t)
	if s.device < 0 {
		return
	}
	ld := &k.store.by[s.device]
	at := slices.Index(ld.states, t)
	ld.states = slices.Delete(ld.states, at, at+1)
	ld.taken -= s.bytes
	s.device = -1
}

// discard ends a state that no task needs any more, and its move.
func (k *sessions) forget(t int32) {
	if int(t) >= len(k.f.facts) {
		return
	}
	s := k.of(t)
	k.take(t)
	if s.to >= 0 {
		ld := &k.store.by[s.to]
		ld.waiting = slices.DeleteFunc(ld.waiting, func(o order) bool { return o.network < 0 && o.key == int64(t) })
		if ld.brings == t {
			ld.brings = -1
		}
		s.to = -1
	}
}

// dropState removes a state from a device, on order of the policy or for lack of memory.
func (k *sessions) drop(t, device int32) {
	if int(t) < len(k.f.facts) && k.of(t).device == device {
		k.take(t)
		k.counts.Dropped++
	}
}

// dropOverflow drops the states that do not fit the memory of a device, the latest ones
// first, and tells the policy.
func (k *sessions) fit(device int32) {
	ld := &k.store.by[device]
	for bounded(k.f.l.t, device) && ld.taken > k.f.l.t.Memory[device] && len(ld.states) > 0 {
		t := ld.states[len(ld.states)-1]
		k.drop(t, device)
		ev := k.f.l.begin(policy.NetworkUnloaded)
		ev.Network, ev.Device, ev.Key = -1, device, int64(t)
		k.f.l.tell()
	}
}

// moveOrdered notes that a state is to be moved to a device.
func (k *sessions) asked(o order) {
	if t := int32(o.key); int(t) < len(k.f.facts) {
		k.of(t).to = o.device
	}
}

// moveBegun notes that a move begins.
func (k *sessions) begun(o order) { k.store.by[o.device].brings = int32(o.key) }

// moveTime returns how long a move takes from now on: in proportion to its bytes, and less
// within a node.
func (k *sessions) takes(o order) time.Duration {
	t, tab := int32(o.key), k.f.l.t
	if int(t) >= len(k.f.facts) || k.of(t).device < 0 {
		return 0
	}
	s := k.own.SessionOf(k.f.l.tasks.List[t].Service)
	whole := s.Far
	if tab.Devices[k.of(t).device].Node == tab.Devices[o.device].Node {
		whole = s.Near
	}
	return time.Duration(float64(whole) * float64(k.of(t).bytes) / float64(s.Bytes))
}

// finishMove ends a move. The state is then on the new device only. If it was dropped
// meanwhile or does not fit, finishMove returns the reason.
func (k *sessions) moved(ld *loader, it *item) policy.Return {
	t := ld.brings
	ld.brings = -1
	if t < 0 || k.of(t).to != it.device {
		it.serial = -1 // it is nobody's any more
		return policy.ReturnNotLoaded
	}
	s := k.of(t)
	s.to = -1
	switch tab := k.f.l.t; {
	case s.device < 0:
		return policy.ReturnNotLoaded
	case s.device == it.device:
		return 0
	case bounded(tab, it.device) && ld.taken+s.bytes > tab.Memory[it.device]:
		return policy.ReturnFull
	}
	k.take(t)
	k.put(t, it.device)
	k.counts.Moved++
	return 0
}

// deviceLost removes all states from a device that failed.
func (k *sessions) lost(device int32) {
	ld := &k.store.by[device]
	for _, t := range ld.states {
		k.of(t).device = -1
	}
	ld.states = ld.states[:0]
	for t := range k.f.facts {
		if s := k.of(int32(t)); s.to == device {
			s.to = -1
		}
	}
}

// checkEmpty returns an error if a device still holds states.
func (k *sessions) finish() error {
	for d := range k.store.by {
		if n := len(k.store.by[d].states); n > 0 {
			return fmt.Errorf("device %d holds %d states of sessions when no request is left", d, n)
		}
	}
	return nil
}

// addResult puts the counts into the result.
func (k *sessions) result(r *Result) { r.setSessions(&k.counts) }

// setSessions puts the counts of session states into the result and its report.
func (r *Result) setSessions(s *SessionResult) {
	r.Sessions = s
	if r.Report == nil || r.Report.Workflow == nil {
		return
	}
	r.Report.Workflow.Sessions = &formats.SessionReport{Reused: s.Reused, Recomputed: s.Recomputed, Moved: s.Moved, Dropped: s.Dropped, RecomputingUS: document.Micros(s.Recomputing)}
}

// poolSessions adds up the counts of runs.
func poolSessions(out *Result, runs []*Result) {
	if runs[0].Sessions == nil {
		return
	}
	all := &SessionResult{}
	for _, r := range runs {
		s := r.Sessions
		all.Reused, all.Recomputed, all.Moved = all.Reused+s.Reused, all.Recomputed+s.Recomputed, all.Moved+s.Moved
		all.Dropped, all.Recomputing = all.Dropped+s.Dropped, all.Recomputing+s.Recomputing
	}
	out.setSessions(all)
}
