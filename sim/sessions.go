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

// sessions are the states that services keep of requests on devices: a task leaves
// one behind, in which that of the task before has gone up. It takes memory until
// the policy drops it, a task goes on with it, or its request ends. A task that
// goes on elsewhere, or after it was dropped, takes longer by what computing it
// anew takes. Such parts of a batch add up.
type sessions struct {
	f      *flow
	own    *flows.Workflows
	store  *storage
	counts SessionResult
}

// SessionResult says what became of the states that tasks went on with.
type SessionResult struct {
	Reused, Recomputed int64 // tasks that found theirs, and that did not
	Moved, Dropped     int64 // states, by the policy or for want of room
	Recomputing        time.Duration
}

// sessionState is the state that a task leaves behind.
type sessionState struct {
	device int32 // where it is; -1: nowhere
	from   int32 // task that its own one goes on with; -1: none
	next   int32 // the first task that goes on with it; -1: none
	to     int32 // device that it is being moved to; -1: none
	bytes  int64
	price  time.Duration
}

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

func (k *sessions) of(t int32) *sessionState { return &k.f.facts[t].state }

// revealed says which state a new task goes on with, and how large its own will be.
func (k *sessions) revealed(t int32) {
	l, fa := k.f.l, &k.f.facts[t]
	service := l.tasks.List[t].Service
	fa.state = sessionState{device: -1, from: -1, next: -1, to: -1}
	s := k.own.SessionOf(service)
	if s.Bytes == 0 {
		return
	}
	from := flows.Continued(l.tasks.List[t].Inputs, func(in int32) bool { return l.tasks.List[in].Service == service }, func(in int32) bool { return k.of(in).next < 0 })
	fa.state.bytes, fa.state.price = flows.Part(s.Bytes, fa.work), time.Duration(flows.Part(int64(s.Recompute), fa.work))
	if from < 0 {
		return
	}
	u := k.of(from)
	if u.next < 0 {
		u.next = t
	}
	fa.state.from = from
	fa.state.bytes, fa.state.price = fa.state.bytes+u.bytes, fa.state.price+u.price
}

// recomputed is what the tasks of a batch that begins now compute anew.
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

// anew is how many bytes of states a batch that begins now computes anew.
func (k *sessions) anew(slot int32) (bytes int64) {
	for _, t := range k.f.l.members(slot) {
		if from := k.of(t).from; from >= 0 && k.of(from).device != k.f.l.hop(slot, 0).Device {
			bytes += k.of(from).bytes
		}
	}
	k.recomputed(slot)
	return bytes
}

// leave puts the state of a task that has ended onto its device. That of the task
// before is gone up in it, unless another one was the first to go on with it.
func (k *sessions) leave(t, device int32) {
	s := k.of(t)
	if s.from >= 0 && k.of(s.from).next == t {
		k.forget(s.from)
	}
	if s.bytes > 0 {
		k.put(t, device)
	}
}

// put notes that a state is on a device.
func (k *sessions) put(t, device int32) {
	ld := &k.store.by[device]
	ld.states = append(ld.states, t)
	ld.taken += k.of(t).bytes
	k.of(t).device = device
}

// take notes that a state is on no device any more.
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

// forget ends a state that nobody needs any more, and its move.
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

// drop takes a state off a device for the policy.
func (k *sessions) drop(t, device int32) {
	if int(t) < len(k.f.facts) && k.of(t).device == device {
		k.take(t)
		k.counts.Dropped++
	}
}

// fit drops the states that a device has no room for, the latest ones first, and
// tells the policy.
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

// asked notes that a state is to be moved to a device.
func (k *sessions) asked(o order) {
	if t := int32(o.key); int(t) < len(k.f.facts) {
		k.of(t).to = o.device
	}
}

// begun notes that a move begins.
func (k *sessions) begun(o order) { k.store.by[o.device].brings = int32(o.key) }

// takes is how long a move takes from now on.
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

// moved ends a move: the state is there and nowhere else, unless it was dropped
// meanwhile or has no room.
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

// lost forgets what was on a device.
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

// finish checks that no state is left when no request is.
func (k *sessions) finish() error {
	for d := range k.store.by {
		if n := len(k.store.by[d].states); n > 0 {
			return fmt.Errorf("device %d holds %d states of sessions when no request is left", d, n)
		}
	}
	return nil
}

func (k *sessions) result(r *Result) { r.setSessions(&k.counts) }

// setSessions puts what became of states into the result and its report.
func (r *Result) setSessions(s *SessionResult) {
	r.Sessions = s
	if r.Report == nil || r.Report.Workflow == nil {
		return
	}
	r.Report.Workflow.Sessions = &formats.SessionReport{Reused: s.Reused, Recomputed: s.Recomputed, Moved: s.Moved, Dropped: s.Dropped, RecomputingUS: document.Micros(s.Recomputing)}
}

// poolSessions adds up runs of workflows with states.
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
