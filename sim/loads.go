package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkLoader loads and unloads the networks of the devices of deviceHost.
type storage struct {
	*devices
	by []loader // by device
}

// deviceMemory holds the networks and session states of a device. It loads one after another
// while batches run.
type loader struct {
	waiting []order // loads that have not begun
	busy    bool    // a load is under way
	loaded  []int32 // networks in the memory
	taken   int64   // of networks and session states
	asked   []order // unloads that wait for batches
	states  []int32 // tasks whose session states are in the memory
	brings  int32   // task whose session state is on its way, or -1
}

// newNetworkLoader puts the networks of the plan onto the devices.
func newStorage(h *devices) *storage {
	st := &storage{devices: h, by: make([]loader, len(h.list))}
	for d := range st.by {
		st.by[d].begin(h.t, int32(d))
	}
	return st
}

// reset empties a device and puts the networks of the plan onto it.
func (o *loader) begin(t *policy.Tables, device int32) {
	*o = loader{brings: -1}
	if int(device) < len(t.Resident) {
		for _, n := range t.Resident[device] {
			o.add(t, n)
		}
	}
}

// addNetwork adds a network, unless it is there already.
func (o *loader) add(t *policy.Tables, network int32) {
	if network >= 0 && !slices.Contains(o.loaded, network) {
		o.loaded = append(o.loaded, network)
		o.taken += t.Networks[network].Bytes
	}
}

// removeNetwork removes a network, if it is there.
func (o *loader) remove(t *policy.Tables, network int32) {
	if at := slices.Index(o.loaded, network); at >= 0 {
		o.loaded = slices.Delete(o.loaded, at, at+1)
		o.taken -= t.Networks[network].Bytes
	}
}

// handleOrder queues a load, or unloads a network. A load cancels an unload of the same
// network that still waits.
func (st *storage) load(o order) {
	ld := &st.by[o.device]
	switch {
	case st.list[o.device].down:
	case o.up:
		if st.ofSession(o.network) {
			st.flow.kept.asked(o)
		}
		ld.asked = slices.DeleteFunc(ld.asked, o.same)
		ld.waiting = append(ld.waiting, o)
		st.start(o.device)
	default:
		st.unload(ld, o)
	}
}

// isSessionOrder reports whether an order is about a session state of this run instead of a
// network.
func (st *storage) ofSession(network int32) bool {
	return network < 0 && st.flow != nil && st.flow.kept != nil
}

// matches reports whether two orders are about the same network or session state.
func (o order) same(w order) bool { return w.network == o.network && w.key == o.key }

// unload cancels a load that has not begun, or removes a network that no batch on the device
// uses. If batches use it, the unload waits for them.
func (st *storage) unload(ld *loader, o order) {
	if st.ofSession(o.network) {
		st.flow.kept.drop(int32(o.key), o.device)
	} else if at := slices.IndexFunc(ld.waiting, o.same); at >= 0 {
		ld.waiting = slices.Delete(ld.waiting, at, at+1)
	} else if st.uses(o.device, o.network) {
		ld.asked = append(ld.asked, o)
		return
	} else {
		ld.remove(st.t, o.network)
		if st.flow != nil && st.flow.stats != nil {
			st.flow.stats.change(o.device, false)
		}
	}
	st.at(st.now, policy.NetworkUnloaded, st.sequence(), item{what: isUnloaded, batch: o.network, device: o.device, serial: o.key, epoch: st.list[o.device].epoch})
}

// isNetworkInUse reports whether a batch on a device, or on its way there, runs a network.
func (st *storage) uses(device, network int32) bool {
	for slot := range st.batches {
		b := &st.batches[slot]
		if !b.live || st.t.Pipelines[b.pipeline].Network != network {
			continue
		}
		for i := b.hop; i < b.numHops; i++ {
			if st.hop(int32(slot), i).Device == device {
				return true
			}
		}
	}
	return false
}

// unloadUnused carries out the unloads whose batches have ended.
func (st *storage) retire(device int32) {
	ld := &st.by[device]
	for i := 0; i < len(ld.asked); i++ {
		if o := ld.asked[i]; !st.uses(device, o.network) {
			ld.asked = slices.Delete(ld.asked, i, i+1)
			i--
			st.unload(ld, o)
		}
	}
}

// startNextLoad begins the next load of a device, if none runs.
func (st *storage) start(device int32) {
	ld := &st.by[device]
	if ld.busy || len(ld.waiting) == 0 {
		return
	}
	o := ld.waiting[0]
	ld.waiting = ld.waiting[:copy(ld.waiting, ld.waiting[1:])]
	ld.busy = true
	if st.ofSession(o.network) {
		st.flow.kept.begun(o)
	} else if st.flow != nil && st.flow.work != nil {
		st.flow.work.begun(o.device)
	}
	it := item{what: isLoaded, start: st.now, batch: o.network, device: device, serial: o.key, epoch: st.list[device].epoch}
	st.at(st.now+st.takes(o), policy.NetworkLoaded, st.sequence(), it)
}

// loadTimeOf returns how long a load takes: as the run or the service says, else cold (index
// 1 of the table), else no time.
func (st *storage) takes(o order) time.Duration {
	if st.cfg.LoadTime != nil {
		return st.cfg.LoadTime(o.network, o.device)
	}
	if st.ofSession(o.network) {
		return st.flow.kept.takes(o)
	}
	if st.served != nil && o.network >= 0 {
		if st.clock != nil {
			st.clock.Tick(st.now - st.firstAt)
		}
		if took, ok := st.served.Load(o.network); ok {
			return took
		}
	}
	if o.network < 0 || st.t.Networks[o.network].Load == nil {
		return 0
	}
	return st.t.Networks[o.network].Load[st.t.Devices[o.device].Kind][1]
}

// finishLoad ends a load and tells the policy. The load fails if the memory is full.
func (st *storage) ended(it *item) {
	d := it.device
	if st.list[d].epoch != it.epoch {
		return // the device was lost meanwhile
	}
	ld, network := &st.by[d], it.batch
	ld.busy = false
	why := int64(0)
	if st.ofSession(network) {
		// Enter the network or the session state.
		why = int64(st.flow.kept.moved(ld, it))
	} else if bounded(st.t, d) && network >= 0 && !slices.Contains(ld.loaded, network) && ld.taken+st.t.Networks[network].Bytes > st.t.Memory[d] {
		why = int64(policy.ReturnFull)
	} else {
		ld.add(st.t, network)
		if st.flow != nil && st.flow.stats != nil {
			st.flow.stats.change(d, true)
		}
	}

	// Tell those who follow the devices, and start the next load before the policy hears of this one.
	if st.flow != nil && st.flow.work != nil && network >= 0 {
		st.flow.work.load(d, it.start)
	}
	st.start(d)
	ev := st.loop.begin(policy.NetworkLoaded)
	ev.Network, ev.Device, ev.Key, ev.Value, ev.Start, ev.End = network, d, it.serial, why, it.start, st.now
	st.tell()
}

// lacksNetwork reports whether the network of a batch is missing on the device of its hop.
func (st *storage) lacks(slot, device int32) bool {
	return bounded(st.t, device) && !slices.Contains(st.by[device].loaded, st.t.Pipelines[st.batches[slot].pipeline].Network)
}

// hasMemoryLimit reports whether networks can be loaded onto and unloaded from a device.
func bounded(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}
