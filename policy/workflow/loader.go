package workflow

import "inferplan/policy"

// networkLoader decides which networks and session states devices hold.
type networkLoader struct {
	cluster *cluster
	book    *taskTable
	tables  *deviceTables
	states  *stateStore
}

// loadNext starts the next load on a device's idle copy engine: the network of the first task in the queue that is
// not loaded and for which memory can be freed. Expected tasks (predicted, not revealed) count, too. It is called
// when the queue, the memory or the engine has changed.
func (l *networkLoader) loadNext(place int32, now int64, out *policy.Actions) {
	d := &l.cluster.devices[place]
	if d.loading >= 0 || d.memoryBytes == 0 {
		return
	}
	isStuck := l.cluster.isStuck(d)
	l.cluster.demand.updateValues(now)
	for i, id := range d.queue {
		k := &l.book.tasks[id]
		n := l.tables.services[k.service].network
		if d.loaded[n] {
			continue
		}
		if l.freeMemoryFor(place, i, n, isStuck, out) {
			l.startLoad(place, n, now, out)
			return
		}
		if k.slot >= 0 && !isStuck {
			return // later tasks must not take the memory that it waits for
		}
	}
	l.loadHeldNetwork(place, now, out)
}

// loadHeldNetwork loads a network that the routing (a rule that places tasks instead of the search) wants on a
// device although no task waits for it yet. Only networks that nothing needs are evicted for it.
func (l *networkLoader) loadHeldNetwork(place int32, now int64, out *policy.Actions) {
	if l.cluster.routing == nil {
		return
	}
	d := &l.cluster.devices[place]
	for n := range d.loaded {
		if d.loaded[n] || !l.cluster.routing.HoldsNetwork(int32(n), place) {
			continue
		}
		if missingBytes := l.tables.bytes[n] - (d.memoryBytes - d.usedBytes); missingBytes <= 0 || l.evict(place, -1, unneededClass, missingBytes, out) {
			l.startLoad(place, int32(n), now, out)
			return
		}
	}
}

// startLoad orders the load of a network on a device. Its memory counts as used from now on; the caller has made
// sure that there is enough.
func (l *networkLoader) startLoad(place, network int32, now int64, out *policy.Actions) {
	d := &l.cluster.devices[place]
	d.loading, d.loadEndsAt, d.dirty = network, now+l.tables.loadTime(network, place), true
	d.usedBytes += l.tables.bytes[network]
	l.cluster.copyCount[network]++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: l.tables.deviceAt[place]})
}

// Classes of networks and states on a device, in the order in which they are evicted.
const (
	unneededClass = iota // no task in the queue needs it
	expectedClass        // only expected tasks need it
	laterClass           // revealed tasks behind the one that needs memory need it
	neededClass          // revealed tasks before that one need it
	pinnedClass          // never evicted
)

// freeMemoryFor frees memory for the network of the i-th task in a queue, and returns false if it cannot. Networks are
// evicted in the order of their classes, and within a class those first that were used longest ago or save least. An
// expected task evicts only networks that no task needs. Networks that revealed tasks need are evicted only if the
// device would otherwise stand still for ever: nothing on it can run, and the task could.
func (l *networkLoader) freeMemoryFor(place int32, i int, network int32, isStuck bool, out *policy.Actions) bool {
	d := &l.cluster.devices[place]
	missingBytes := l.tables.bytes[network] - (d.memoryBytes - d.usedBytes)
	if missingBytes <= 0 {
		return true
	}
	maxClass := unneededClass
	if k := &l.book.tasks[d.queue[i]]; k.slot >= 0 {
		maxClass = expectedClass
		if isStuck && k.pendingInputs == 0 && k.inputsAt == place {
			maxClass = neededClass
		}
	}
	return l.evict(place, i, maxClass, missingBytes, out)
}

// evict unloads networks and session states, in the order of their classes and up to maxClass, until missingBytes
// are free. If that cannot be reached, it unloads nothing and returns false. i is the queue position of the task
// for which it is done; tasks behind it may lose their networks first.
func (l *networkLoader) evict(place int32, i, maxClass int, missingBytes int64, out *policy.Actions) bool {
	d := &l.cluster.devices[place]

	// Check that enough can be evicted.
	evictableBytes := int64(0)
	for n, isLoaded := range d.loaded {
		if isLoaded && l.networkClass(place, i, int32(n)) <= maxClass {
			evictableBytes += l.tables.bytes[n]
		}
	}
	for _, id := range d.sessionStates {
		if l.states.stateClass(id) <= maxClass {
			evictableBytes += l.book.tasks[id].session.bytes
		}
	}
	if evictableBytes < missingBytes {
		return false
	}

	// Evict the lowest class first, and the least useful of a class.
	for missingBytes > 0 {
		bestNetwork, class := int32(-1), pinnedClass
		for n, isLoaded := range d.loaded {
			if !isLoaded {
				continue
			}
			if networkClass := l.networkClass(place, i, int32(n)); networkClass <= maxClass && (networkClass < class || networkClass == class && l.evictsBefore(place, int32(n), bestNetwork)) {
				bestNetwork, class = int32(n), networkClass
			}
		}
		if id := l.stateToEvict(place, bestNetwork, class, maxClass); id >= 0 {
			missingBytes -= l.book.tasks[id].session.bytes
			l.states.evictState(id, out)
			continue
		}
		d.loaded[bestNetwork] = false
		l.cluster.copyCount[bestNetwork]--
		d.usedBytes -= l.tables.bytes[bestNetwork]
		missingBytes -= l.tables.bytes[bestNetwork]
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: bestNetwork, Device: l.tables.deviceAt[place]})
	}
	d.dirty = true
	return true
}

// evictsBefore returns true if network a is evicted before network b of the same class: the one whose copy saves
// less or, without values, that was used longest ago.
func (l *networkLoader) evictsBefore(place, a, b int32) bool {
	d := &l.cluster.devices[place]
	if l.cluster.options.EvictByValue {
		if valueA, valueB := l.cluster.copyValue(a, place), l.cluster.copyValue(b, place); valueA != valueB {
			return valueA < valueB
		}
	}
	return d.lastUsedAt[a] < d.lastUsedAt[b]
}

// stateToEvict returns the session state on a device that is evicted before a given network of a class and before
// all other states: one of a lower class or, within the class, one that saves less or was stored earlier than the
// network was used. If the network goes first, it returns -1.
func (l *networkLoader) stateToEvict(place, network int32, class, maxClass int) int32 {
	d, bestState, minValue := &l.cluster.devices[place], int32(-1), 0.0
	for _, id := range d.sessionStates {
		stateClass := l.states.stateClass(id)
		if stateClass > maxClass || stateClass > class {
			continue
		}
		value := l.states.stateValue(id)
		if stateClass == class && bestState < 0 {
			if l.cluster.options.EvictByValue && value >= l.cluster.copyValue(network, place) || !l.cluster.options.EvictByValue && l.book.tasks[id].session.storedAt >= d.lastUsedAt[network] {
				continue
			}
		}
		if bestState < 0 || stateClass < class || value < minValue {
			bestState, class, minValue = id, stateClass, value
		}
	}
	return bestState
}

// networkClass returns the eviction class of a network on a device: pinned while it runs, needed by a task up to
// position i of the queue, by a later one, by an expected (predicted) one only, or unneeded. i is the position of
// the task that wants memory; for a load that no task needs it is -1.
func (l *networkLoader) networkClass(place int32, i int, network int32) int {
	d := &l.cluster.devices[place]
	if d.busy && l.tables.services[d.service].network == network {
		return pinnedClass
	}
	if i < 0 && l.cluster.routing != nil && l.cluster.routing.HoldsNetwork(network, place) {
		return pinnedClass
	}
	class := unneededClass
	for position, id := range d.queue {
		k := &l.book.tasks[id]
		switch {
		case l.tables.services[k.service].network != network:
		case k.slot < 0:
			class = max(class, expectedClass)
		case position > i:
			class = max(class, laterClass)
		default:
			return neededClass
		}
	}
	return class
}

// handleNetworkEvent records that the load or unload of a network, or of a session state, has ended on a device. A
// Value other than 0 means that it failed. Memory was counted when it was ordered, so only failures change it here.
func (l *networkLoader) handleNetworkEvent(now int64, ev *policy.Event) {
	place := l.tables.placeOf[ev.Device]
	d := &l.cluster.devices[place]

	// An event without a network is about a session state.
	if ev.Network < 0 {
		if ev.Kind == policy.NetworkLoaded {
			l.handleStateMoved(ev)
		} else {
			l.handleStateLost(ev)
		}
		return
	}

	// The end of an unload changes nothing, unless it failed.
	if ev.Kind == policy.NetworkUnloaded {
		if ev.Value != 0 && !d.loaded[ev.Network] { // the unload failed, so it stays
			d.loaded[ev.Network] = true
			l.cluster.copyCount[ev.Network]++
			d.usedBytes += l.tables.bytes[ev.Network]
			d.dirty = true
		}
		return
	}

	// The end of a load.
	if d.loading == ev.Network {
		d.loading = -1
		if ev.Value == 0 {
			d.loaded[ev.Network], d.lastUsedAt[ev.Network] = true, now
		} else {
			l.cluster.copyCount[ev.Network]--
			d.usedBytes -= l.tables.bytes[ev.Network]
		}
	}
	d.dirty = true
	l.cluster.touchDevice(place)
}
