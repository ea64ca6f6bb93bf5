package workflow

import "inferplan/policy"

// loads decide what devices hold.
type loads struct{ *cluster }

// loadNext gives the copy engine of a device its next load: the network of the
// first task in the queue, expected ones included, that is not there.
func (l *loads) loadNext(place int32, now int64, out *policy.Actions) {
	d := &l.devices[place]
	if d.loading >= 0 || d.memory == 0 {
		return
	}
	stuck := l.stuck(d)
	l.value(now)
	for i, id := range d.queue {
		k := &l.tasks[id]
		n := l.fleet.services[k.service].network
		if d.loaded[n] {
			continue
		}
		if l.makeRoom(place, i, n, stuck, out) {
			l.load(place, n, now, out)
			return
		}
		if k.slot >= 0 && !stuck {
			return // what comes behind must not take its room
		}
	}
	l.loadReplica(place, now, out)
}

// loadReplica loads what a routing holds on a device and no task waits for yet.
func (l *loads) loadReplica(place int32, now int64, out *policy.Actions) {
	if l.route == nil {
		return
	}
	d := &l.devices[place]
	for n := range d.loaded {
		if d.loaded[n] || !l.route.Holds(int32(n), place) {
			continue
		}
		if need := l.fleet.bytes[n] - (d.memory - d.taken); need <= 0 || l.evict(place, -1, spareClass, need, out) {
			l.load(place, int32(n), now, out)
			return
		}
	}
}

// load starts a load that there is room for.
func (l *loads) load(place, network int32, now int64, out *policy.Actions) {
	d := &l.devices[place]
	d.loading, d.there, d.dirty = network, now+l.loadTime(network, place), true
	d.taken += l.fleet.bytes[network]
	l.copies[network]++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: l.fleet.ids[place]})
}

// Classes of networks on a device, in the order in which they make room.
const (
	spareClass  = iota // no task in the queue asks for it
	aheadClass         // expected tasks alone ask for it
	behindClass        // revealed tasks behind the one that needs room ask for it
	neededClass        // revealed tasks before it
	kept
)

// makeRoom makes room for the network of the i-th task in a queue. Networks go
// that were of use longest ago, in the order of their classes: expected tasks
// take spare ones alone. What revealed tasks ask for goes only where the device
// would stand still for ever: nothing there can run, and the task could.
func (l *loads) makeRoom(place int32, i int, network int32, stuck bool, out *policy.Actions) bool {
	d := &l.devices[place]
	need := l.fleet.bytes[network] - (d.memory - d.taken)
	if need <= 0 {
		return true
	}
	most := spareClass
	if k := &l.tasks[d.queue[i]]; k.slot >= 0 {
		most = aheadClass
		if stuck && k.pending == 0 && k.arrived == place {
			most = neededClass
		}
	}
	return l.evict(place, i, most, need, out)
}

// evict unloads networks up to a class until so many bytes are free, or none.
func (l *loads) evict(place int32, i, most int, need int64, out *policy.Actions) bool {
	d := &l.devices[place]
	can := int64(0)
	for n, is := range d.loaded {
		if is && l.classOf(place, i, int32(n)) <= most {
			can += l.fleet.bytes[n]
		}
	}
	for _, id := range d.states {
		if l.cluster.memos().classOfState(id) <= most {
			can += l.tasks[id].memo.bytes
		}
	}
	if can < need {
		return false
	}
	for need > 0 {
		best, class := int32(-1), kept
		for n, is := range d.loaded {
			if !is {
				continue
			}
			if c := l.classOf(place, i, int32(n)); c <= most && (c < class || c == class && l.sooner(place, int32(n), best)) {
				best, class = int32(n), c
			}
		}
		if id := l.lesser(place, best, class, most); id >= 0 {
			need -= l.tasks[id].memo.bytes
			l.cluster.memos().dropState(id, out)
			continue
		}
		d.loaded[best] = false
		l.copies[best]--
		d.taken -= l.fleet.bytes[best]
		need -= l.fleet.bytes[best]
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: best, Device: l.fleet.ids[place]})
	}
	d.dirty = true
	return true
}

// sooner tells whether a network goes sooner than another of its class.
func (l *loads) sooner(place, a, b int32) bool {
	d := &l.devices[place]
	if l.opt.Worth {
		if x, y := l.worth(a, place), l.worth(b, place); x != y {
			return x < y
		}
	}
	return d.last[a] < d.last[b]
}

// lesser is the state on a device that goes before a network of a class, and before
// all other states; -1: there is none.
func (l *loads) lesser(place, network int32, class, most int) int32 {
	d, best, least := &l.devices[place], int32(-1), 0.0
	for _, id := range d.states {
		c := l.cluster.memos().classOfState(id)
		if c > most || c > class {
			continue
		}
		saves := l.cluster.memos().worthOfState(id)
		if c == class && best < 0 {
			if l.opt.Worth && saves >= l.worth(network, place) || !l.opt.Worth && l.tasks[id].memo.since >= d.last[network] {
				continue
			}
		}
		if best < 0 || c < class || saves < least {
			best, class, least = id, c, saves
		}
	}
	return best
}

// classOf is the class of a network for the i-th task in a queue; i is -1 for a
// load that no task asks for.
func (l *loads) classOf(place int32, i int, network int32) int {
	d := &l.devices[place]
	if d.busy && l.fleet.services[d.service].network == network {
		return kept
	}
	if i < 0 && l.route != nil && l.route.Holds(network, place) {
		return kept
	}
	class := spareClass
	for at, id := range d.queue {
		k := &l.tasks[id]
		switch {
		case l.fleet.services[k.service].network != network:
		case k.slot < 0:
			class = max(class, aheadClass)
		case at > i:
			class = max(class, behindClass)
		default:
			return neededClass
		}
	}
	return class
}

// network notes what a device holds.
func (l *loads) network(now int64, ev *policy.Event) {
	place := l.fleet.places[ev.Device]
	d := &l.devices[place]
	if ev.Network < 0 {
		if ev.Kind == policy.NetworkLoaded {
			l.stateMoved(ev)
		} else {
			l.stateLost(ev)
		}
		return
	}
	if ev.Kind == policy.NetworkUnloaded {
		if ev.Value != 0 && !d.loaded[ev.Network] { // it stays
			d.loaded[ev.Network] = true
			l.copies[ev.Network]++
			d.taken += l.fleet.bytes[ev.Network]
			d.dirty = true
		}
		return
	}
	if d.loading == ev.Network {
		d.loading = -1
		if ev.Value == 0 {
			d.loaded[ev.Network], d.last[ev.Network] = true, now
		} else {
			l.copies[ev.Network]--
			d.taken -= l.fleet.bytes[ev.Network]
		}
	}
	d.dirty = true
	l.touchDevice(place)
}
