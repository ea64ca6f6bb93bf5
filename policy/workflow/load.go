package workflow

import "inferplan/policy"

// networkLoader decides which networks and session states devices hold.
type loads struct{ *cluster }

// loadNext starts the next load on a device's idle copy engine: the network of the first task in the queue, expected
// tasks included, that is not loaded and for which memory can be freed.
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
			return // later tasks must not take the memory that it waits for
		}
	}
	l.loadReplica(place, now, out)
}

// loadHeldNetwork loads a network that the routing wants on a device although no task waits for it yet.
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

// startLoad starts a load. The caller has made sure that there is memory.
func (l *loads) load(place, network int32, now int64, out *policy.Actions) {
	d := &l.devices[place]
	d.loading, d.there, d.dirty = network, now+l.loadTime(network, place), true
	d.taken += l.fleet.bytes[network]
	l.copies[network]++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: l.fleet.ids[place]})
}

// Classes of networks and states on a device, in the order in which they are evicted.
const (
	spareClass  = iota // no task in the queue needs it
	aheadClass         // only expected tasks need it
	behindClass        // revealed tasks behind the one that needs memory need it
	neededClass        // revealed tasks before that one need it
	kept               // never evicted
)

// freeMemoryFor frees memory for the network of the i-th task in a queue, and returns false if it cannot. Networks are
// evicted in the order of their classes, and within a class those first that were used longest ago or save least. An
// expected task evicts only networks that no task needs. Networks that revealed tasks need are evicted only if the
// device would otherwise stand still for ever: nothing on it can run, and the task could.
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

// evict unloads networks and session states, up to a class, until a number of bytes is free. If that cannot be reached,
// it unloads nothing and returns false.
func (l *loads) evict(place int32, i, most int, need int64, out *policy.Actions) bool {
	d := &l.devices[place]

	// Check that enough can be evicted.
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

	// Evict the lowest class first, and the least useful of a class.
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

// evictsBefore returns true if network a is evicted before network b of the same class.
func (l *loads) sooner(place, a, b int32) bool {
	d := &l.devices[place]
	if l.opt.Worth {
		if x, y := l.worth(a, place), l.worth(b, place); x != y {
			return x < y
		}
	}
	return d.last[a] < d.last[b]
}

// stateToEvict returns the session state on a device that is evicted before a given network and before all other states.
// If the network goes first, it returns -1.
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

// networkClass returns the class of a network with respect to the i-th task in a queue. For a load that no task needs, i
// is -1.
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

// handleNetworkEvent records that a network or a state was loaded on a device, or unloaded from it.
func (l *loads) network(now int64, ev *policy.Event) {
	place := l.fleet.places[ev.Device]
	d := &l.devices[place]

	// An event without a network is about a session state.
	if ev.Network < 0 {
		if ev.Kind == policy.NetworkLoaded {
			l.stateMoved(ev)
		} else {
			l.stateLost(ev)
		}
		return
	}

	// The end of an unload changes nothing, unless it failed.
	if ev.Kind == policy.NetworkUnloaded {
		if ev.Value != 0 && !d.loaded[ev.Network] { // the unload failed, so it stays
			d.loaded[ev.Network] = true
			l.copies[ev.Network]++
			d.taken += l.fleet.bytes[ev.Network]
			d.dirty = true
		}
		return
	}

	// The end of a load.
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
