package workflow

import "inferplan/policy"

// networkLoader decides which networks and session states devices hold.
type networkLoader struct{ *cluster }

// loadNext starts the next load on a device's idle copy engine: the network of the first task in the queue, expected
// tasks included, that is not loaded and for which memory can be freed.
func (l *networkLoader) loadNext(place int32, now int64, out *policy.Actions) {
	d := &l.devices[place]
	if d.loading >= 0 || d.memoryBytes == 0 {
		return
	}
	isStuck := l.isStuck(d)
	l.updateCopyValues(now)
	for i, id := range d.queue {
		k := &l.tasks[id]
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

// loadHeldNetwork loads a network that the routing wants on a device although no task waits for it yet.
func (l *networkLoader) loadHeldNetwork(place int32, now int64, out *policy.Actions) {
	if l.routing == nil {
		return
	}
	d := &l.devices[place]
	for n := range d.loaded {
		if d.loaded[n] || !l.routing.HoldsNetwork(int32(n), place) {
			continue
		}
		if missingBytes := l.tables.bytes[n] - (d.memoryBytes - d.usedBytes); missingBytes <= 0 || l.evict(place, -1, unneededClass, missingBytes, out) {
			l.startLoad(place, int32(n), now, out)
			return
		}
	}
}

// startLoad starts a load. The caller has made sure that there is memory.
func (l *networkLoader) startLoad(place, network int32, now int64, out *policy.Actions) {
	d := &l.devices[place]
	d.loading, d.loadEndsAt, d.dirty = network, now+l.loadTime(network, place), true
	d.usedBytes += l.tables.bytes[network]
	l.copyCount[network]++
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
	d := &l.devices[place]
	missingBytes := l.tables.bytes[network] - (d.memoryBytes - d.usedBytes)
	if missingBytes <= 0 {
		return true
	}
	maxClass := unneededClass
	if k := &l.tasks[d.queue[i]]; k.slot >= 0 {
		maxClass = expectedClass
		if isStuck && k.pendingInputs == 0 && k.inputsAt == place {
			maxClass = neededClass
		}
	}
	return l.evict(place, i, maxClass, missingBytes, out)
}

// evict unloads networks and session states, up to a class, until a number of bytes is free. If that cannot be reached,
// it unloads nothing and returns false.
func (l *networkLoader) evict(place int32, i, maxClass int, missingBytes int64, out *policy.Actions) bool {
	d := &l.devices[place]

	// Check that enough can be evicted.
	evictableBytes := int64(0)
	for n, isLoaded := range d.loaded {
		if isLoaded && l.networkClass(place, i, int32(n)) <= maxClass {
			evictableBytes += l.tables.bytes[n]
		}
	}
	for _, id := range d.sessionStates {
		if l.cluster.stateStore().stateClass(id) <= maxClass {
			evictableBytes += l.tasks[id].session.bytes
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
			missingBytes -= l.tasks[id].session.bytes
			l.cluster.stateStore().evictState(id, out)
			continue
		}
		d.loaded[bestNetwork] = false
		l.copyCount[bestNetwork]--
		d.usedBytes -= l.tables.bytes[bestNetwork]
		missingBytes -= l.tables.bytes[bestNetwork]
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: bestNetwork, Device: l.tables.deviceAt[place]})
	}
	d.dirty = true
	return true
}

// evictsBefore returns true if network a is evicted before network b of the same class.
func (l *networkLoader) evictsBefore(place, a, b int32) bool {
	d := &l.devices[place]
	if l.options.EvictByValue {
		if valueA, valueB := l.copyValue(a, place), l.copyValue(b, place); valueA != valueB {
			return valueA < valueB
		}
	}
	return d.lastUsedAt[a] < d.lastUsedAt[b]
}

// stateToEvict returns the session state on a device that is evicted before a given network and before all other states.
// If the network goes first, it returns -1.
func (l *networkLoader) stateToEvict(place, network int32, class, maxClass int) int32 {
	d, bestState, minValue := &l.devices[place], int32(-1), 0.0
	for _, id := range d.sessionStates {
		stateClass := l.cluster.stateStore().stateClass(id)
		if stateClass > maxClass || stateClass > class {
			continue
		}
		value := l.cluster.stateStore().stateValue(id)
		if stateClass == class && bestState < 0 {
			if l.options.EvictByValue && value >= l.copyValue(network, place) || !l.options.EvictByValue && l.tasks[id].session.storedAt >= d.lastUsedAt[network] {
				continue
			}
		}
		if bestState < 0 || stateClass < class || value < minValue {
			bestState, class, minValue = id, stateClass, value
		}
	}
	return bestState
}

// networkClass returns the class of a network with respect to the i-th task in a queue. For a load that no task needs, i
// is -1.
func (l *networkLoader) networkClass(place int32, i int, network int32) int {
	d := &l.devices[place]
	if d.busy && l.tables.services[d.service].network == network {
		return pinnedClass
	}
	if i < 0 && l.routing != nil && l.routing.HoldsNetwork(network, place) {
		return pinnedClass
	}
	class := unneededClass
	for position, id := range d.queue {
		k := &l.tasks[id]
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

// handleNetworkEvent records that a network or a state was loaded on a device, or unloaded from it.
func (l *networkLoader) handleNetworkEvent(now int64, ev *policy.Event) {
	place := l.tables.placeOf[ev.Device]
	d := &l.devices[place]

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
			l.copyCount[ev.Network]++
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
			l.copyCount[ev.Network]--
			d.usedBytes -= l.tables.bytes[ev.Network]
		}
	}
	d.dirty = true
	l.touchDevice(place)
}
