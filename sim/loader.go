package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkLoader loads and unloads the networks of the devices of deviceHost.
type networkLoader struct {
	*deviceHost
	memories []deviceMemory // by device
}

// deviceMemory holds the networks and session states of a device. It loads one after another
// while batches run.
type deviceMemory struct {
	pendingLoads   []networkOrder // loads that have not begun
	loadRunning    bool           // a load is under way
	networks       []int32        // networks in the memory
	usedBytes      int64          // of networks and session states
	pendingUnloads []networkOrder // unloads that wait for batches
	sessionTasks   []int32        // tasks whose session states are in the memory
	incomingState  int32          // task whose session state is on its way, or -1
}

// newNetworkLoader puts the networks of the plan onto the devices.
func newNetworkLoader(h *deviceHost) *networkLoader {
	st := &networkLoader{deviceHost: h, memories: make([]deviceMemory, len(h.devices))}
	for d := range st.memories {
		st.memories[d].reset(h.t, int32(d))
	}
	return st
}

// reset empties a device and puts the networks of the plan onto it.
func (o *deviceMemory) reset(t *policy.Tables, device int32) {
	*o = deviceMemory{incomingState: -1}
	if int(device) < len(t.Resident) {
		for _, n := range t.Resident[device] {
			o.addNetwork(t, n)
		}
	}
}

// addNetwork adds a network, unless it is there already.
func (o *deviceMemory) addNetwork(t *policy.Tables, network int32) {
	if network >= 0 && !slices.Contains(o.networks, network) {
		o.networks = append(o.networks, network)
		o.usedBytes += t.Networks[network].Bytes
	}
}

// removeNetwork removes a network, if it is there.
func (o *deviceMemory) removeNetwork(t *policy.Tables, network int32) {
	if position := slices.Index(o.networks, network); position >= 0 {
		o.networks = slices.Delete(o.networks, position, position+1)
		o.usedBytes -= t.Networks[network].Bytes
	}
}

// handleOrder queues a load, or unloads a network. A load cancels an unload of the same
// network that still waits.
func (st *networkLoader) handleOrder(o networkOrder) {
	memory := &st.memories[o.device]
	switch {
	case st.devices[o.device].isDown:
	case o.load:
		if st.isSessionOrder(o.network) {
			st.flow.sessions.moveOrdered(o)
		}
		memory.pendingUnloads = slices.DeleteFunc(memory.pendingUnloads, o.matches)
		memory.pendingLoads = append(memory.pendingLoads, o)
		st.startNextLoad(o.device)
	default:
		st.unload(memory, o)
	}
}

// isSessionOrder reports whether an order is about a session state of this run instead of a
// network.
func (st *networkLoader) isSessionOrder(network int32) bool {
	return network < 0 && st.flow != nil && st.flow.sessions != nil
}

// matches reports whether two orders are about the same network or session state.
func (o networkOrder) matches(w networkOrder) bool { return w.network == o.network && w.key == o.key }

// unload cancels a load that has not begun, or removes a network that no batch on the device
// uses. If batches use it, the unload waits for them.
func (st *networkLoader) unload(memory *deviceMemory, o networkOrder) {
	if st.isSessionOrder(o.network) {
		st.flow.sessions.dropState(int32(o.key), o.device)
	} else if pendingIndex := slices.IndexFunc(memory.pendingLoads, o.matches); pendingIndex >= 0 {
		memory.pendingLoads = slices.Delete(memory.pendingLoads, pendingIndex, pendingIndex+1)
	} else if st.isNetworkInUse(o.device, o.network) {
		memory.pendingUnloads = append(memory.pendingUnloads, o)
		return
	} else {
		memory.removeNetwork(st.t, o.network)
		if st.flow != nil && st.flow.stats != nil {
			st.flow.stats.workerChanged(o.device, false)
		}
	}
	st.schedule(st.now, policy.NetworkUnloaded, st.nextSequence(), agendaEntry{kind: isNetworkUnloaded, batch: o.network, device: o.device, serial: o.key, epoch: st.devices[o.device].epoch})
}

// isNetworkInUse reports whether a batch on a device, or on its way there, runs a network.
func (st *networkLoader) isNetworkInUse(device, network int32) bool {
	for slot := range st.batches {
		b := &st.batches[slot]
		if !b.live || st.t.Pipelines[b.pipeline].Network != network {
			continue
		}
		for i := b.hopIndex; i < b.numHops; i++ {
			if st.hopAt(int32(slot), i).Device == device {
				return true
			}
		}
	}
	return false
}

// unloadUnused carries out the unloads whose batches have ended.
func (st *networkLoader) unloadUnused(device int32) {
	memory := &st.memories[device]
	for i := 0; i < len(memory.pendingUnloads); i++ {
		if o := memory.pendingUnloads[i]; !st.isNetworkInUse(device, o.network) {
			memory.pendingUnloads = slices.Delete(memory.pendingUnloads, i, i+1)
			i--
			st.unload(memory, o)
		}
	}
}

// startNextLoad begins the next load of a device, if none runs.
func (st *networkLoader) startNextLoad(device int32) {
	memory := &st.memories[device]
	if memory.loadRunning || len(memory.pendingLoads) == 0 {
		return
	}
	o := memory.pendingLoads[0]
	memory.pendingLoads = memory.pendingLoads[:copy(memory.pendingLoads, memory.pendingLoads[1:])]
	memory.loadRunning = true
	if st.isSessionOrder(o.network) {
		st.flow.sessions.moveBegun(o)
	} else if st.flow != nil && st.flow.work != nil {
		st.flow.work.loadBegun(o.device)
	}
	entry := agendaEntry{kind: isNetworkLoaded, start: st.now, batch: o.network, device: device, serial: o.key, epoch: st.devices[device].epoch}
	st.schedule(st.now+st.loadTimeOf(o), policy.NetworkLoaded, st.nextSequence(), entry)
}

// loadTimeOf returns how long a load takes: as the run or the service says, else cold (index
// 1 of the table), else no time.
func (st *networkLoader) loadTimeOf(o networkOrder) time.Duration {
	if st.cfg.LoadTime != nil {
		return st.cfg.LoadTime(o.network, o.device)
	}
	if st.isSessionOrder(o.network) {
		return st.flow.sessions.moveTime(o)
	}
	if st.servingTimes != nil && o.network >= 0 {
		if st.tickObserver != nil {
			st.tickObserver.ObserveTime(st.now - st.firstArrivalAt)
		}
		if duration, ok := st.servingTimes.LoadTime(o.network); ok {
			return duration
		}
	}
	if o.network < 0 || st.t.Networks[o.network].LoadTimes == nil {
		return 0
	}
	return st.t.Networks[o.network].LoadTimes[st.t.Devices[o.device].Kind][1]
}

// finishLoad ends a load and tells the policy. The load fails if the memory is full.
func (st *networkLoader) finishLoad(entry *agendaEntry) {
	d := entry.device
	if st.devices[d].epoch != entry.epoch {
		return // the device was lost meanwhile
	}
	memory, network := &st.memories[d], entry.batch
	memory.loadRunning = false
	reason := int64(0)
	if st.isSessionOrder(network) {
		// Enter the network or the session state.
		reason = int64(st.flow.sessions.finishMove(memory, entry))
	} else if hasMemoryLimit(st.t, d) && network >= 0 && !slices.Contains(memory.networks, network) && memory.usedBytes+st.t.Networks[network].Bytes > st.t.Memory[d] {
		reason = int64(policy.ReturnFull)
	} else {
		memory.addNetwork(st.t, network)
		if st.flow != nil && st.flow.stats != nil {
			st.flow.stats.workerChanged(d, true)
		}
	}

	// Tell those who follow the devices, and start the next load before the policy hears of this one.
	if st.flow != nil && st.flow.work != nil && network >= 0 {
		st.flow.work.loadEnded(d, entry.start)
	}
	st.startNextLoad(d)
	ev := st.loop.beginEvent(policy.NetworkLoaded)
	ev.Network, ev.Device, ev.Key, ev.Value, ev.Start, ev.End = network, d, entry.serial, reason, entry.start, st.now
	st.tellPolicy()
}

// lacksNetwork reports whether the network of a batch is missing on the device of its hop.
func (st *networkLoader) lacksNetwork(slot, device int32) bool {
	return hasMemoryLimit(st.t, device) && !slices.Contains(st.memories[device].networks, st.t.Pipelines[st.batches[slot].pipeline].Network)
}

// hasMemoryLimit reports whether networks can be loaded onto and unloaded from a device.
func hasMemoryLimit(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}
