package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkLoader loads and unloads networks (weights of models) on the devices of deviceHost, and moves session states
// between them.
type networkLoader struct {
	*loop
	host     *deviceHost
	memories []deviceMemory // by device
}

// deviceMemory holds the networks and session states in the memory of a device. The device loads one after another
// while batches run.
type deviceMemory struct {
	pendingLoads   []networkOrder // loads that have not begun
	loadRunning    bool           // a load is under way
	networks       []int32        // networks in the memory
	usedBytes      int64          // of networks and session states
	pendingUnloads []networkOrder // unloads that wait for batches
	sessionTasks   []int32        // tasks whose session states are in the memory
	incomingState  int32          // task whose session state is being loaded now, or -1
}

// newNetworkLoader returns the loader of networks for the devices of a run, with the networks on them that the plan puts there.
func newNetworkLoader(host *deviceHost) *networkLoader {
	loader := &networkLoader{loop: host.loop, host: host, memories: make([]deviceMemory, len(host.devices))}
	for deviceIndex := range loader.memories {
		loader.memories[deviceIndex].reset(host.tables, int32(deviceIndex))
	}
	return loader
}

// reset empties the memory of a device and puts the networks of the plan into it. No session state is on its way to it
// (incomingState -1).
func (memory *deviceMemory) reset(tables *policy.Tables, device int32) {
	*memory = deviceMemory{incomingState: -1}
	if int(device) < len(tables.Resident) {
		for _, network := range tables.Resident[device] {
			memory.addNetwork(tables, network)
		}
	}
}

// addNetwork adds a network (an index in Tables.Networks) to the memory, unless it is there already or negative.
func (memory *deviceMemory) addNetwork(tables *policy.Tables, network int32) {
	if network >= 0 && !slices.Contains(memory.networks, network) {
		memory.networks = append(memory.networks, network)
		memory.usedBytes += tables.Networks[network].Bytes
	}
}

// removeNetwork removes a network (an index in Tables.Networks) from the memory of a device, if it is there.
func (memory *deviceMemory) removeNetwork(tables *policy.Tables, network int32) {
	if position := slices.Index(memory.networks, network); position >= 0 {
		memory.networks = slices.Delete(memory.networks, position, position+1)
		memory.usedBytes -= tables.Networks[network].Bytes
	}
}

// handleOrder takes an order of the policy to load or unload a network on a device, or to move a session state there or
// drop it. (A session state is what a service keeps of a request on a device.) Loads of a device run one after the other.
// A load cancels an unload of the same network that still waits. Orders to a device that is down are ignored.
func (loader *networkLoader) handleOrder(order networkOrder) {
	memory := &loader.memories[order.device]
	switch {
	case loader.host.devices[order.device].isDown:
	case order.isLoad:
		// A move is a load whose network is negative. Loads wait in one queue.
		if loader.isSessionOrder(order.network) {
			loader.loop.flow.sessions.moveOrdered(order)
		}
		memory.pendingUnloads = slices.DeleteFunc(memory.pendingUnloads, order.matches)
		memory.pendingLoads = append(memory.pendingLoads, order)
		loader.startNextLoad(order.device)
	default:
		loader.unload(memory, order)
	}
}

// isSessionOrder reports whether an order with this network is about a session state: the network is then negative,
// and the run has session states.
func (loader *networkLoader) isSessionOrder(network int32) bool {
	return network < 0 && loader.loop.flow != nil && loader.loop.flow.sessions != nil
}

// matches reports whether two orders are about the same network, or about the session state of the same task.
func (order networkOrder) matches(other networkOrder) bool {
	return other.network == order.network && other.key == order.key
}

// unload carries out an order to unload from a device's memory, when it comes or, if it had to wait, when no batch uses
// the network any more. It drops a session state, cancels a load of the network that has not begun, or removes the
// network. If batches that are under way will run it on the device, the order waits in pendingUnloads. Otherwise the
// policy is told of the end, later in this instant.
func (loader *networkLoader) unload(memory *deviceMemory, order networkOrder) {
	if loader.isSessionOrder(order.network) {
		loader.loop.flow.sessions.dropState(int32(order.key), order.device)
	} else if pendingIndex := slices.IndexFunc(memory.pendingLoads, order.matches); pendingIndex >= 0 {
		memory.pendingLoads = slices.Delete(memory.pendingLoads, pendingIndex, pendingIndex+1)
	} else if loader.isNetworkInUse(order.device, order.network) {
		memory.pendingUnloads = append(memory.pendingUnloads, order)
		return
	} else {
		memory.removeNetwork(loader.tables, order.network)
		if loader.loop.flow != nil && loader.loop.flow.stats != nil {
			loader.loop.flow.stats.workerChanged(order.device, false)
		}
	}
	loader.agenda.scheduleAfter(0, policy.NetworkUnloaded, agendaEntry{kind: unloadedEntry, subject: order.network, device: order.device, serial: order.key, epoch: loader.host.devices[order.device].faultEpoch})
}

// isNetworkInUse reports whether a batch that is under way will still run a network on a device. Then the network
// must not be unloaded.
func (loader *networkLoader) isNetworkInUse(device, network int32) bool {
	for slot := range loader.loop.batches.list {
		batch := loader.loop.batches.at(int32(slot))
		if !batch.isLive || loader.tables.Pipelines[batch.pipeline].Network != network {
			continue
		}
		for hop := batch.hopIndex; hop < batch.numHops; hop++ {
			if loader.loop.batches.hopAt(int32(slot), hop).Device == device {
				return true
			}
		}
	}
	return false
}

// unloadUnused is called when a batch has ended on a device. It carries out the unloads that waited for that.
func (loader *networkLoader) unloadUnused(device int32) {
	memory := &loader.memories[device]
	for i := 0; i < len(memory.pendingUnloads); i++ {
		if order := memory.pendingUnloads[i]; !loader.isNetworkInUse(device, order.network) {
			memory.pendingUnloads = slices.Delete(memory.pendingUnloads, i, i+1)
			i-- // the next order has moved to this index
			loader.unload(memory, order)
		}
	}
}

// startNextLoad is called when a load was ordered or has ended. It begins the next ordered load of a device, if none
// runs: a device loads one network, or takes in one session state (what a service keeps of a request), at a time. The
// end of the load is put on the agenda.
func (loader *networkLoader) startNextLoad(device int32) {
	memory := &loader.memories[device]
	if memory.loadRunning || len(memory.pendingLoads) == 0 {
		return
	}

	// Take the first order out of the queue, whose memory stays. Tell the session states or the statistics that it begins.
	order := memory.pendingLoads[0]
	memory.pendingLoads = memory.pendingLoads[:copy(memory.pendingLoads, memory.pendingLoads[1:])]
	memory.loadRunning = true
	if loader.isSessionOrder(order.network) {
		loader.loop.flow.sessions.moveBegun(order)
	} else if loader.loop.flow != nil && loader.loop.flow.work != nil {
		loader.loop.flow.work.loadBegun(order.device)
	}

	// Its end is void if the device is lost before (the fault epoch is then another one).
	entry := agendaEntry{kind: loadEndEntry, start: loader.agenda.now, subject: order.network, device: device, serial: order.key, epoch: loader.host.devices[device].faultEpoch}
	loader.agenda.scheduleAfter(loader.loadTimeOf(order), policy.NetworkLoaded, entry)
}

// loadTimeOf returns how long an ordered load takes: as the run's configuration or the recorded times say, else the
// cold time of the plan (from disk), else no time. For a session state it is the time of its move.
func (loader *networkLoader) loadTimeOf(order networkOrder) time.Duration {
	if loader.loop.cfg.LoadTime != nil {
		return loader.loop.cfg.LoadTime(order.network, order.device)
	}
	if loader.isSessionOrder(order.network) {
		return loader.loop.flow.sessions.moveTime(order)
	}

	if order.network < 0 {
		return 0
	}

	// A recorded time, which the service may have by the time of the load, goes before the plan's.
	const idleTime = 0
	loader.host.service.ObserveStart(loader.agenda.now-loader.loop.firstArrivalAt, idleTime)
	if duration, ok := loader.host.service.LoadTime(order.network); ok {
		return duration
	}
	if loader.tables.Networks[order.network].LoadTimes == nil {
		return 0
	}
	const coldLoad = 1 // index of the time from disk; that from the host's memory has index 0
	return loader.tables.Networks[order.network].LoadTimes[loader.tables.Devices[order.device].Kind][coldLoad]
}

// finishLoad is called when a load of a device ends, and tells the policy. The load fails with the reason ReturnFull if
// the memory of the device has no space for the network. Entries from before a loss of the device (another fault epoch)
// are void. A load of a session state (the context of a conversation, a network below 0) ends its move. Then the next
// load begins, and the event NetworkLoaded gives the reason as its Value, 0 for success.
func (loader *networkLoader) finishLoad(entry *agendaEntry) {
	deviceIndex := entry.device
	if loader.host.devices[deviceIndex].faultEpoch != entry.epoch {
		return // the device was lost meanwhile
	}
	memory, network := &loader.memories[deviceIndex], entry.network()
	memory.loadRunning = false

	// Enter the network or the session state, if there is space. reason is a policy.ReturnReason, or 0 for success.
	isNew := network >= 0 && !slices.Contains(memory.networks, network)
	lacksSpace := isNew && hasMemoryLimit(loader.tables, deviceIndex) && memory.usedBytes+loader.tables.Networks[network].Bytes > loader.tables.Memory[deviceIndex]
	reason := int64(0)
	if loader.isSessionOrder(network) {
		reason = int64(loader.loop.flow.sessions.finishMove(memory, entry))
	} else if lacksSpace {
		reason = int64(policy.ReturnFull)
	} else {
		memory.addNetwork(loader.tables, network)
		if loader.loop.flow != nil && loader.loop.flow.stats != nil {
			loader.loop.flow.stats.workerChanged(deviceIndex, true)
		}
	}

	// Tell the statistics of workflows, and start the next load before the policy hears of this one.
	if loader.loop.flow != nil && loader.loop.flow.work != nil && network >= 0 {
		loader.loop.flow.work.loadEnded(deviceIndex, entry.start)
	}
	loader.startNextLoad(deviceIndex)
	ev := loader.loop.beginEvent(policy.NetworkLoaded)
	ev.Network, ev.Device, ev.Key, ev.Value, ev.Start, ev.End = network, deviceIndex, entry.orderKey(), reason, entry.start, loader.agenda.now
	loader.loop.tellPolicy()
}

// lacksNetwork reports whether a device with limited memory does not hold the network that a batch needs there.
func (loader *networkLoader) lacksNetwork(batchSlot, device int32) bool {
	return hasMemoryLimit(loader.tables, device) && !slices.Contains(loader.memories[device].networks, loader.tables.Pipelines[loader.loop.batches.at(batchSlot).pipeline].Network)
}

// hasMemoryLimit reports whether the memory of a device is limited, so that networks are loaded and unloaded there.
func hasMemoryLimit(tables *policy.Tables, device int32) bool {
	return int(device) < len(tables.Memory) && tables.Memory[device] > 0
}
