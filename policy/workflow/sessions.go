package workflow

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// StateKeeping says what becomes of session states.
type Keeping uint8

const (
	// KeepByValue keeps a state as long as its bytes save more than those of other states and networks. It moves a state if
	// that is quicker than recomputing it.
	ByWorth Keeping = iota
	// KeepAll keeps every state where it is, unless the device could otherwise do nothing.
	All
	// KeepNone drops every state at once.
	None
)

// sessionState is the session state that a task leaves behind.
type memo struct {
	bytes, price int64 // size, and the time in ns to recompute it
	place        int32 // where it is; -1 if nowhere
	to           int32 // where it is being moved to; -1 if nowhere
	next         int32 // the first task that continues it; -1 if none is known
	since        int64 // when it was stored
}

// stateStore handles the session states on all devices.
type memos struct{ *cluster }

// stateStore returns the view of the cluster that handles session states.
func (c *cluster) memos() memos { return memos{c} }

// returnStats counts how often, and after what time, a task continues a state of a service.
type returning struct {
	left, came float64 // states stored, and states continued
	gap        float64 // sum of the times between, in ns
}

// stateTransfer holds how long a state of a service takes to another place, in parts of usualWork of the time to
// recompute it: the quicker of a move and of recomputing.
type tolls struct {
	near, far         int64 // on the same node, and across nodes
	moveNear, moveFar bool  // whether a move is quicker there
	bytes, price      int64 // size, and time to recompute, of a task of the usual work
}

// newStateTransfer returns the transfer times of a service's session states. If the service has none, all are 0.
func newTolls(s flow.Session) tolls {
	if s.Bytes <= 0 || s.Recompute <= 0 {
		return tolls{}
	}
	part := func(move int64) int64 { return min(unit, move*unit/int64(s.Recompute)) }
	t := tolls{near: part(int64(s.Near)), far: part(int64(s.Far)), bytes: s.Bytes, price: int64(s.Recompute)}
	t.moveNear, t.moveFar = t.near < unit, t.far < unit
	return t
}

// stateTransferTime returns how long it takes until a state that is at `home` can be used at a place. If isMove is true,
// the state is moved, and the task is ready later by that time. Otherwise the task recomputes it and runs longer.
func (f *fleet) away(s int32, price int64, home, place int32) (took int64, moved bool) {
	switch t := &f.tolls[s]; {
	case price == 0 || home == place:
		return 0, false
	case home < 0:
		return price, false
	case f.nodeOf[home] == f.nodeOf[place]:
		return price * t.near >> 20, t.moveNear
	default:
		return price * t.far >> 20, t.moveFar
	}
}

// linkState finds the state that a task continues, and computes the size of its own. Work is in millionths. A task that
// is only expected does not claim a state.
func (c memos) continues(id int32, work int64) {
	k := &c.tasks[id]
	t := &c.fleet.tolls[k.service]
	k.from, k.memo = -1, memo{place: -1, to: -1, next: -1}
	if t.bytes == 0 {
		return
	}
	own := func(in int32) bool { return c.tasks[in].service == k.service }
	free := func(in int32) bool { return c.tasks[in].memo.next < 0 }
	k.from = flow.Continued(k.inputs, own, free)
	k.memo.bytes, k.memo.price = flow.Part(t.bytes, work), flow.Part(t.price, work)
	if k.from < 0 {
		return
	}
	u := &c.tasks[k.from]
	k.memo.bytes, k.memo.price = k.memo.bytes+u.memo.bytes, k.memo.price+u.memo.price
	if k.slot >= 0 && u.memo.next < 0 {
		u.memo.next = id
	}
}

// stateHome returns the place of the state that a task continues, now or once the previous task ends. If it is nowhere,
// it returns -1.
func (c memos) home(k *task) int32 {
	switch u := &c.tasks[k.from]; {
	case c.opt.Keep == None:
		return -1
	case u.state == ended:
		return u.memo.place
	default:
		return u.place
	}
}

// recomputeTime returns by how much longer a task runs at a place because it recomputes the state that it continues.
func (c memos) toll(k *task, place int32) int64 {
	if k.from < 0 || k.coming && k.place == place {
		return 0
	}
	u, home := &c.tasks[k.from], c.home(k)
	if home == place {
		return 0
	}
	if u.state != ended && home >= 0 {
		if took, moved := c.fleet.away(k.service, u.memo.price, home, place); !moved {
			return took
		}
		return 0 // it is moved once it exists
	}
	return u.memo.price
}

// storeState stores the state of a task that has ended on its device.
func (c memos) keep(now int64, id int32, out *policy.Actions) {
	k := &c.tasks[id]
	if k.from >= 0 && c.tasks[k.from].memo.next == id {
		c.forget(k.from) // this task's state contains it
	}
	m := &k.memo
	if m.bytes == 0 {
		return
	}
	d := &c.devices[k.place]
	d.states = append(d.states, id)
	d.taken += m.bytes
	m.place, m.since = k.place, now
	if c.opt.Keep == None {
		c.dropState(id, out)
	} else if m.next < 0 {
		c.returns[k.service].left++
	}
}

// countReturn counts that a task continues a state that was stored.
func (c memos) came(now int64, k *task) {
	if k.from < 0 {
		return
	}
	if m := &c.tasks[k.from].memo; m.place >= 0 {
		r := &c.returns[k.service]
		r.came, r.gap = r.came+1, r.gap+float64(now-m.since)
	}
}

// forgetState removes a state that no task needs any more, and cancels its move.
func (c memos) forget(id int32) {
	m := &c.tasks[id].memo
	if m.to >= 0 {
		c.devices[m.to].taken -= m.bytes
		c.devices[m.to].dirty = true
		m.to = -1
	}
	c.gone(id)
}

// removeState removes a state from its device.
func (c memos) gone(id int32) {
	m := &c.tasks[id].memo
	if m.place < 0 {
		return
	}
	d := &c.devices[m.place]
	i := slices.Index(d.states, id)
	d.states = slices.Delete(d.states, i, i+1)
	d.taken -= m.bytes
	d.dirty = true
	m.place = -1
}

// clearDevice forgets the states on a device, and those on their way to it.
func (c memos) emptied(place int32) {
	d := &c.devices[place]
	for i := range c.tasks {
		if m := &c.tasks[i].memo; m.to == place {
			m.to = -1
			if m.next >= 0 {
				c.tasks[m.next].coming = false
			}
		}
	}
	for _, id := range d.states {
		c.tasks[id].memo.place = -1
	}
	d.states = d.states[:0]
}

// evictState unloads a state from its device to free memory.
func (c memos) dropState(id int32, out *policy.Actions) {
	k := &c.tasks[id]
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: -1, Key: int64(k.slot), Device: c.fleet.ids[k.memo.place]})
	c.gone(id)
}

// stateClass returns the eviction class of a state on a device.
func (c memos) classOfState(id int32) int {
	m := &c.tasks[id].memo
	if m.next >= 0 {
		switch u := &c.tasks[m.next]; {
		case u.state == running && u.place == m.place:
			return kept
		case m.to >= 0:
			return neededClass
		case c.opt.Keep == ByWorth && (u.state == running || u.state == queued && u.place != m.place):
			return spareClass // the task recomputes it
		case c.opt.Keep == ByWorth:
			return aheadClass
		}
	}
	if c.opt.Keep == All {
		return neededClass
	}
	return spareClass
}

// stateValue returns what a byte of a state saves, per ns that it is kept:
//
//	returnShare · recomputeTime / expectedWait / bytes
func (c memos) worthOfState(id int32) float64 {
	k := &c.tasks[id]
	m, r := &k.memo, &c.returns[k.service]
	share, wait := (r.came+1)/(r.left+2), (r.gap+1e9)/(r.came+1)
	if m.next >= 0 {
		u := &c.tasks[m.next]
		if u.state == queued && u.place != m.place {
			return 0
		}
		share, wait = 1, float64(max(1e6, u.end-c.demand.valued))
	}
	return share * float64(m.price) / wait / float64(m.bytes)
}

// fetchState has the state that a placed task continues moved to its place, if that is quicker than recomputing it and
// there is memory.
func (b *batches) fetch(now int64, id int32, out *policy.Actions) {
	k := &b.tasks[id]
	if k.from < 0 || k.coming {
		return
	}
	u := &b.tasks[k.from]
	m := &u.memo
	if m.place < 0 || m.place == k.place || m.next != id || m.to >= 0 || b.opt.Keep != ByWorth {
		return
	}
	took, moved := b.fleet.away(k.service, m.price, m.place, k.place)
	if !moved || !b.loads.room(now, k.place, m.bytes, out) {
		return
	}
	d := &b.devices[k.place]
	d.taken, d.dirty = d.taken+m.bytes, true
	m.to, k.coming, k.there = k.place, true, now+took
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: -1, Key: int64(u.slot), Device: b.fleet.ids[k.place]})
}

// freeSpareMemory frees bytes on a device by evicting what no task there needs. It returns false if that is not enough.
func (l *loads) room(now int64, place int32, bytes int64, out *policy.Actions) bool {
	d := &l.devices[place]
	need := bytes - (d.memory - d.taken)
	l.value(now)
	return d.memory == 0 || need <= 0 || l.evict(place, -1, spareClass, need, out)
}

// trimToMemory evicts networks and states until a device holds no more than its memory.
func (l *loads) fit(now int64, place int32, out *policy.Actions) {
	d := &l.devices[place]
	if len(d.states) == 0 {
		return
	}
	l.value(now)
	for class := spareClass; d.memory > 0 && d.taken > d.memory && class < kept; class++ {
		l.evict(place, -1, class, d.taken-d.memory, out)
	}
}

// handleStateMoved records that the move of a state has ended. If ev.Value is not 0, it has failed.
func (l *loads) stateMoved(ev *policy.Event) {
	if ev.Key < 0 || int(ev.Key) >= len(l.bySlot) {
		return
	}
	id, place := l.bySlot[ev.Key], l.fleet.places[ev.Device]
	k := &l.tasks[id]
	m := &k.memo
	if int64(k.slot) != ev.Key || k.state == unused || m.to != place {
		return
	}
	m.to = -1
	d := &l.devices[place]
	if ev.Value != 0 {
		d.taken -= m.bytes
	} else {
		l.cluster.memos().gone(id)
		d.states = append(d.states, id)
		m.place = place
	}
	if m.next >= 0 {
		l.tasks[m.next].coming = false
		l.devices[max(0, l.tasks[m.next].place)].dirty = true
		l.touchDevice(max(0, l.tasks[m.next].place))
	}
	d.dirty = true
	l.touchDevice(place)
}

// handleStateLost records that a state did not fit into its device's memory.
func (l *loads) stateLost(ev *policy.Event) {
	if ev.Key < 0 || int(ev.Key) >= len(l.bySlot) {
		return
	}
	id := l.bySlot[ev.Key]
	if k := &l.tasks[id]; int64(k.slot) == ev.Key && k.state == ended && k.memo.place == l.fleet.places[ev.Device] {
		l.cluster.memos().gone(id)
	}
}
