package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkLoader loads and unloads the networks of the devices of deviceHost.
type networkLoader struct {
	host     *deviceHost
	loop     *loop
	agenda   *agenda
	tables   *policy.Tables
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

// newNetworkLoader returns the loader of networks for the devices of a run, with the resident networks of the plan
// on them.
func newNetworkLoader(h *deviceHost) *networkLoader {
	st := &networkLoader{host: h, loop: h.loop, agenda: h.agenda, tables: h.tables, memories: make([]deviceMemory, len(h.devices))}
	for d := range st.memories {
		st.memories[d].reset(h.tables, int32(d))
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

// handleOrder takes an order of the policy to load or unload a network on a device, or to move a session state.
// Loads of a device run one after the other. A load cancels an unload of the same network that still waits. Orders
// to a device that is down are ignored.
func (st *networkLoader) handleOrder(o networkOrder) {
	memory := &st.memories[o.device]
	switch {
	case st.host.devices[o.device].isDown:
	case o.load:
		if st.isSessionOrder(o.network) {
			st.loop.flow.sessions.moveOrdered(o)
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
	return network < 0 && st.loop.flow != nil && st.loop.flow.sessions != nil
}

// matches reports whether two orders are about the same network or session state.
func (o networkOrder) matches(w networkOrder) bool { return w.network == o.network && w.key == o.key }

// unload carries out an order to unload: it cancels a load that has not begun, drops a session state, or removes a
// network that no batch on the device uses. If batches use it, the unload waits for them. The policy hears of the
// end.
func (st *networkLoader) unload(memory *deviceMemory, o networkOrder) {
	if st.isSessionOrder(o.network) {
		st.loop.flow.sessions.dropState(int32(o.key), o.device)
	} else if pendingIndex := slices.IndexFunc(memory.pendingLoads, o.matches); pendingIndex >= 0 {
		memory.pendingLoads = slices.Delete(memory.pendingLoads, pendingIndex, pendingIndex+1)
	} else if st.isNetworkInUse(o.device, o.network) {
		memory.pendingUnloads = append(memory.pendingUnloads, o)
		return
	} else {
		memory.removeNetwork(st.tables, o.network)
		if st.loop.flow != nil && st.loop.flow.stats != nil {
			st.loop.flow.stats.workerChanged(o.device, false)
		}
	}
	st.agenda.scheduleAfter(0, policy.NetworkUnloaded, agendaEntry{kind: isNetworkUnloaded, batch: o.network, device: o.device, serial: o.key, epoch: st.host.devices[o.device].epoch})
}

// isNetworkInUse reports whether a batch that is under way will still run a network on a device. Then the network
// must not be unloaded.
func (st *networkLoader) isNetworkInUse(device, network int32) bool {
	for slot := range st.loop.batches.list {
		b := st.loop.batches.at(int32(slot))
		if !b.live || st.tables.Pipelines[b.pipeline].Network != network {
			continue
		}
		for i := b.hopIndex; i < b.numHops; i++ {
			if st.loop.batches.hopAt(int32(slot), i).Device == device {
				return true
			}
		}
	}
	return false
}

// unloadUnused is called when a batch has ended on a device. It carries out the unloads that waited for that.
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

// startNextLoad begins the next load of a device, if none runs: a device loads one network, or takes in one session
// state, at a time. The end is an agenda entry.
func (st *networkLoader) startNextLoad(device int32) {
	memory := &st.memories[device]
	if memory.loadRunning || len(memory.pendingLoads) == 0 {
		return
	}
	o := memory.pendingLoads[0]
	memory.pendingLoads = memory.pendingLoads[:copy(memory.pendingLoads, memory.pendingLoads[1:])]
	memory.loadRunning = true
	if st.isSessionOrder(o.network) {
		st.loop.flow.sessions.moveBegun(o)
	} else if st.loop.flow != nil && st.loop.flow.work != nil {
		st.loop.flow.work.loadBegun(o.device)
	}
	entry := agendaEntry{kind: isNetworkLoaded, start: st.agenda.now, batch: o.network, device: device, serial: o.key, epoch: st.host.devices[device].epoch}
	st.agenda.scheduleAfter(st.loadTimeOf(o), policy.NetworkLoaded, entry)
}

// loadTimeOf returns how long a load takes: as the run's configuration or the recorded times say, else the cold
// time of the plan (index 1 of the table), else no time. For a session state it is the time of its move.
func (st *networkLoader) loadTimeOf(o networkOrder) time.Duration {
	if st.loop.cfg.LoadTime != nil {
		return st.loop.cfg.LoadTime(o.network, o.device)
	}
	if st.isSessionOrder(o.network) {
		return st.loop.flow.sessions.moveTime(o)
	}
	if st.host.servingTimes != nil && o.network >= 0 {
		if st.host.tickObserver != nil {
			st.host.tickObserver.ObserveTime(st.agenda.now - st.loop.firstArrivalAt)
		}
		if duration, ok := st.host.servingTimes.LoadTime(o.network); ok {
			return duration
		}
	}
	if o.network < 0 || st.tables.Networks[o.network].LoadTimes == nil {
		return 0
	}
	return st.tables.Networks[o.network].LoadTimes[st.tables.Devices[o.device].Kind][1]
}

// finishLoad ends a load and tells the policy. The load fails with the reason ReturnFull if the memory of the
// device has no space for the network. Entries from before a loss of the device (another epoch) are void.
func (st *networkLoader) finishLoad(entry *agendaEntry) {
	d := entry.device
	if st.host.devices[d].epoch != entry.epoch {
		return // the device was lost meanwhile
	}
	memory, network := &st.memories[d], entry.batch
	memory.loadRunning = false

	// Enter the network or the session state.
	reason := int64(0)
	if st.isSessionOrder(network) {
		reason = int64(st.loop.flow.sessions.finishMove(memory, entry))
	} else if hasMemoryLimit(st.tables, d) && network >= 0 && !slices.Contains(memory.networks, network) && memory.usedBytes+st.tables.Networks[network].Bytes > st.tables.Memory[d] {
		reason = int64(policy.ReturnFull)
	} else {
		memory.addNetwork(st.tables, network)
		if st.loop.flow != nil && st.loop.flow.stats != nil {
			st.loop.flow.stats.workerChanged(d, true)
		}
	}

	// Tell those who follow the devices, and start the next load before the policy hears of this one.
	if st.loop.flow != nil && st.loop.flow.work != nil && network >= 0 {
		st.loop.flow.work.loadEnded(d, entry.start)
	}
	st.startNextLoad(d)
	ev := st.loop.beginEvent(policy.NetworkLoaded)
	ev.Network, ev.Device, ev.Key, ev.Value, ev.Start, ev.End = network, d, entry.serial, reason, entry.start, st.agenda.now
	st.loop.tellPolicy()
}

// lacksNetwork reports whether the network of a batch is missing on the device of its hop.
func (st *networkLoader) lacksNetwork(slot, device int32) bool {
	return hasMemoryLimit(st.tables, device) && !slices.Contains(st.memories[device].networks, st.tables.Pipelines[st.loop.batches.at(slot).pipeline].Network)
}

// hasMemoryLimit reports whether networks can be loaded onto and unloaded from a device.
func hasMemoryLimit(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}
