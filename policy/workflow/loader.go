package workflow

import "inferplan/policy"

// networkLoader decides which networks (the weights of models) and session states devices hold.
type networkLoader struct {
	cluster  *cluster
	registry *registry
	tables   *deviceTables
	states   *stateStore
}

// loadNext starts the next load on a device whose copy engine is idle: that of the network of the first task in its queue that is not
// loaded and for which memory can be freed. Expected tasks (predicted, not revealed) count, too.
// It is called when the queue, the memory or the copy engine has changed. Without such a task, a network that a routing (a rule that
// places tasks instead of the search) wants there is loaded.
func (l *networkLoader) loadNext(deviceIndex int32, now int64, actions *policy.Actions) {
	device := &l.cluster.devices[deviceIndex]
	if device.loadingNetwork >= 0 || device.memoryBytes == 0 {
		return
	}

	// A stuck device runs nothing, and no task in its queue may run. There networks that waiting tasks need may be evicted, too, and any task
	// of the queue may be the one that gets it going. Evictions compare what copies of networks save, by the demand of now.
	isStuck := l.cluster.isStuck(device)
	l.cluster.demand.updateValues(now)
	for queuePosition, taskID := range device.queue {
		task := &l.registry.tasks[taskID]
		network := l.tables.services[task.service].network
		if device.holdsNetwork[network] {
			continue
		}
		if l.freeMemoryFor(deviceIndex, queuePosition, network, isStuck, actions) {
			l.startLoad(deviceIndex, network, now, actions)
			return
		}
		if task.isRevealed() && !isStuck {
			return // later tasks must not take the memory that it waits for
		}
	}

	// No network can be loaded for the queue.
	l.loadRoutingNetwork(deviceIndex, now, actions)
}

// loadRoutingNetwork loads a network that the routing (a rule that places tasks instead of the search) wants on a device although no task
// waits for it. Only networks that nothing needs are evicted for it.
func (l *networkLoader) loadRoutingNetwork(deviceIndex int32, now int64, actions *policy.Actions) {
	if l.cluster.routing == nil {
		return
	}
	device := &l.cluster.devices[deviceIndex]
	for network := range device.holdsNetwork {
		if device.holdsNetwork[network] || !l.cluster.routing.HoldsNetwork(int32(network), deviceIndex) {
			continue
		}
		missingBytes := l.tables.networkBytes[network] - (device.memoryBytes - device.usedBytes)
		if missingBytes <= 0 || l.evict(deviceIndex, noPosition, unneededClass, missingBytes, actions) {
			l.startLoad(deviceIndex, int32(network), now, actions)
			return
		}
	}
}

// startLoad orders the load of a network on a device. Its memory counts as used from now on; the caller has made sure that there is enough.
func (l *networkLoader) startLoad(deviceIndex, network int32, now int64, actions *policy.Actions) {
	device := &l.cluster.devices[deviceIndex]
	device.loadingNetwork, device.loadEndsAt, device.planOutdated = network, now+l.tables.loadTime(network, deviceIndex), true
	device.usedBytes += l.tables.networkBytes[network]
	l.cluster.copyCount[network]++
	actions.List = append(actions.List, policy.Action{Kind: policy.Load, Network: network, Device: l.tables.planDevice[deviceIndex]})
}

// Classes of networks and states on a device, in the order in which they are evicted.
const (
	unneededClass = iota // no task in the queue needs it
	expectedClass        // only expected tasks need it
	laterClass           // revealed tasks behind the one that needs memory need it
	neededClass          // revealed tasks before that one need it
	pinnedClass          // never evicted
)

// noPosition stands for the queue position of the task that needs memory if no task does.
const noPosition = -1

// freeMemoryFor makes sure that a device has memory for the network of the task at a queue position, by eviction, and returns false if it cannot.
// An expected task evicts only networks that no task needs, a revealed one also those that only expected tasks need.
// Networks that revealed tasks need are evicted only if the device is stuck, which means that nothing on it can run, and the task could run.
func (l *networkLoader) freeMemoryFor(deviceIndex int32, queuePosition int, network int32, isStuck bool, actions *policy.Actions) bool {
	device := &l.cluster.devices[deviceIndex]
	missingBytes := l.tables.networkBytes[network] - (device.memoryBytes - device.usedBytes)
	if missingBytes <= 0 {
		return true
	}

	// Find the highest eviction class that may go for this task. Only a task that waits for nothing else gets a stuck device going.
	maxClass := unneededClass
	if task := &l.registry.tasks[device.queue[queuePosition]]; task.isRevealed() {
		maxClass = expectedClass
		if isStuck && task.pendingInputs == 0 && task.inputsDevice == deviceIndex {
			maxClass = neededClass
		}
	}
	return l.evict(deviceIndex, queuePosition, maxClass, missingBytes, actions)
}

// evict unloads networks and session states from a device until missingBytes are free.
// Those of lower eviction classes go first, up to maxClass; a class says how much the device's tasks need something.
// Within a class, what saves least goes first. If so much cannot be freed, it unloads nothing and returns false. queuePosition is that of
// the task which needs the memory, or noPosition: networks that only tasks behind it need are in a lower class.
func (l *networkLoader) evict(deviceIndex int32, queuePosition, maxClass int, missingBytes int64, actions *policy.Actions) bool {
	device := &l.cluster.devices[deviceIndex]

	// Check that enough can be evicted.
	evictableBytes := int64(0)
	for network, isLoaded := range device.holdsNetwork {
		if isLoaded && l.networkClass(deviceIndex, queuePosition, int32(network)) <= maxClass {
			evictableBytes += l.tables.networkBytes[network]
		}
	}
	for _, taskID := range device.sessionStates {
		if l.states.stateClass(taskID) <= maxClass {
			evictableBytes += l.registry.tasks[taskID].sessionState.bytes
		}
	}
	if evictableBytes < missingBytes {
		return false
	}

	// Evict the lowest class first, and the least useful of a class. bestNetwork is the next network to go, -1 if none may.
	for missingBytes > 0 {
		bestNetwork, class := int32(-1), pinnedClass
		for network, isLoaded := range device.holdsNetwork {
			if !isLoaded {
				continue
			}
			networkClass := l.networkClass(deviceIndex, queuePosition, int32(network))
			if networkClass > maxClass {
				continue
			}
			if networkClass < class || networkClass == class && l.evictsBefore(deviceIndex, int32(network), bestNetwork) {
				bestNetwork, class = int32(network), networkClass
			}
		}
		if taskID := l.stateToEvict(deviceIndex, bestNetwork, class, maxClass); taskID >= 0 {
			missingBytes -= l.registry.tasks[taskID].sessionState.bytes
			l.states.evictState(taskID, actions)
			continue
		}

		// No session state goes before the network, so the network is unloaded.
		device.holdsNetwork[bestNetwork] = false
		l.cluster.copyCount[bestNetwork]--
		device.usedBytes -= l.tables.networkBytes[bestNetwork]
		missingBytes -= l.tables.networkBytes[bestNetwork]
		actions.List = append(actions.List, policy.Action{Kind: policy.Unload, Network: bestNetwork, Device: l.tables.planDevice[deviceIndex]})
	}
	device.planOutdated = true
	return true
}

// evictsBefore returns true if one network is evicted from a device before another one of the same class: the one whose copy saves less or,
// without Options.EvictByValue or with equal values, the one that was used longest ago.
func (l *networkLoader) evictsBefore(deviceIndex, first, second int32) bool {
	device := &l.cluster.devices[deviceIndex]
	if l.cluster.options.EvictByValue {
		if firstValue, secondValue := l.cluster.copyValue(first, deviceIndex), l.cluster.copyValue(second, deviceIndex); firstValue != secondValue {
			return firstValue < secondValue
		}
	}
	return device.lastUsedAt[first] < device.lastUsedAt[second]
}

// stateToEvict returns the session state that is evicted from a device next, by the ID of the task that left it, or -1 if `network`, with its
// eviction class networkClass, goes before all states. It is the network that goes before all other networks; -1 if none may go.
// A state of a lower class goes before the network. Within the class it goes first if it saves less (Options.EvictByValue), or without that
// option if it was stored before the network was last used. States of classes above maxClass stay.
func (l *networkLoader) stateToEvict(deviceIndex, network int32, networkClass, maxClass int) int32 {
	// bestState is the state that goes first so far. bestClass is its class or, as long as there is none, that of the network.
	device, bestState, bestClass, minValue := &l.cluster.devices[deviceIndex], int32(-1), networkClass, 0.0
	for _, taskID := range device.sessionStates {
		stateClass := l.states.stateClass(taskID)
		if stateClass > maxClass || stateClass > bestClass {
			continue
		}

		// Compare a state of the network's class with the network. Once some state goes before that, states are compared with each other only.
		value := l.states.stateValue(taskID)
		if stateClass == bestClass && bestState < 0 {
			goesFirst := l.registry.tasks[taskID].sessionState.storedAt < device.lastUsedAt[network]
			if l.cluster.options.EvictByValue {
				goesFirst = value < l.cluster.copyValue(network, deviceIndex)
			}
			if !goesFirst {
				continue
			}
		}

		// Of several states, the one of the lowest class goes first, then the one that saves least.
		if bestState < 0 || stateClass < bestClass || value < minValue {
			bestState, bestClass, minValue = taskID, stateClass, value
		}
	}
	return bestState
}

// networkClass returns the eviction class of a network on a device, when the task at queuePosition needs memory: pinned while the network
// runs, needed by a task up to that position, by a later one, by expected (predicted) tasks only, or unneeded. With
// noPosition no task needs the memory; then networks that the routing (a rule that places tasks instead of the search) wants are pinned.
func (l *networkLoader) networkClass(deviceIndex int32, queuePosition int, network int32) int {
	device := &l.cluster.devices[deviceIndex]
	if device.isBusy && l.tables.services[device.runningService].network == network {
		return pinnedClass
	}
	if queuePosition == noPosition && l.cluster.routing != nil && l.cluster.routing.HoldsNetwork(network, deviceIndex) {
		return pinnedClass
	}

	// The task in the queue that needs the network most decides.
	class := unneededClass
	for position, taskID := range device.queue {
		task := &l.registry.tasks[taskID]
		switch {
		case l.tables.services[task.service].network != network:
		case !task.isRevealed():
			class = max(class, expectedClass)
		case position > queuePosition:
			class = max(class, laterClass)
		default:
			return neededClass
		}
	}
	return class
}

// handleNetworkEvent handles the event that the load or unload of a network, or of a session state, has ended on a device.
// A Value other than 0 means that it failed. The bytes were counted when it was ordered, so only failures change them here.
func (l *networkLoader) handleNetworkEvent(now int64, event *policy.Event) {
	deviceIndex := l.tables.deviceIndexOf[event.Device]
	device := &l.cluster.devices[deviceIndex]

	// An event without a network is about a session state.
	if event.Network < 0 {
		if event.Kind == policy.NetworkLoaded {
			l.handleStateMoved(event)
		} else {
			l.handleStateLost(event)
		}
		return
	}

	// The end of an unload changes nothing, unless it failed.
	if event.Kind == policy.NetworkUnloaded {
		if event.Value != 0 && !device.holdsNetwork[event.Network] { // the unload failed, so it stays
			device.holdsNetwork[event.Network] = true
			l.cluster.copyCount[event.Network]++
			device.usedBytes += l.tables.networkBytes[event.Network]
			device.planOutdated = true
		}
		return
	}

	// The end of a load. A device that was lost meanwhile loads nothing any more.
	if device.loadingNetwork == event.Network {
		device.loadingNetwork = -1
		if event.Value == 0 {
			device.holdsNetwork[event.Network], device.lastUsedAt[event.Network] = true, now
		} else {
			l.cluster.copyCount[event.Network]--
			device.usedBytes -= l.tables.networkBytes[event.Network]
		}
	}
	device.planOutdated = true
	l.cluster.touchDevice(deviceIndex)
}
