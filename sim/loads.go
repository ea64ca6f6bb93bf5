package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// loader loads the networks of a device, one after the other, beside its
// batches.
type loader struct {
	waiting []order
	busy    bool
	since   time.Duration
	loaded  []int32 // networks that are there
	taken   int64   // bytes
	asked   []order // unloads that wait for batches
}

// addLoaders makes the loaders of all devices.
func (h *devices) addLoaders() {
	h.loaders = make([]loader, len(h.list))
	for d := range h.loaders {
		h.loaders[d].begin(h.t, int32(d))
	}
}

// begin puts the networks of the plan, and nothing else, onto a device.
func (o *loader) begin(t *policy.Tables, device int32) {
	*o = loader{}
	if int(device) < len(t.Resident) {
		for _, n := range t.Resident[device] {
			o.add(t, n)
		}
	}
}

func (o *loader) add(t *policy.Tables, network int32) {
	if network >= 0 && !slices.Contains(o.loaded, network) {
		o.loaded = append(o.loaded, network)
		o.taken += t.Networks[network].Bytes
	}
}

func (o *loader) remove(t *policy.Tables, network int32) {
	if at := slices.Index(o.loaded, network); at >= 0 {
		o.loaded = slices.Delete(o.loaded, at, at+1)
		o.taken -= t.Networks[network].Bytes
	}
}

// load queues a load, or takes a network away.
func (h *devices) load(o order) {
	if h.loaders == nil {
		h.addLoaders()
	}
	ld := &h.loaders[o.device]
	switch {
	case h.list[o.device].down:
	case o.up:
		ld.asked = slices.DeleteFunc(ld.asked, func(w order) bool { return w.network == o.network && w.key == o.key })
		ld.waiting = append(ld.waiting, o)
		h.startLoad(o.device)
	default:
		h.unload(ld, o)
	}
}

// unload takes back a load that has not begun, or a network that no batch here
// runs; else it waits for those batches.
func (h *devices) unload(ld *loader, o order) {
	same := func(w order) bool { return w.network == o.network && w.key == o.key }
	if at := slices.IndexFunc(ld.waiting, same); at >= 0 {
		ld.waiting = slices.Delete(ld.waiting, at, at+1)
	} else if h.uses(o.device, o.network) {
		ld.asked = append(ld.asked, o)
		return
	} else {
		ld.remove(h.t, o.network)
	}
	h.at(h.now, policy.NetworkUnloaded, h.sequence(), item{what: isUnloaded, batch: o.network, device: o.device, serial: o.key, epoch: h.list[o.device].epoch})
}

// uses tells whether a batch on a device, or on its way there, runs a network.
func (h *devices) uses(device, network int32) bool {
	for slot := range h.batches {
		b := &h.batches[slot]
		if !b.live || h.t.Pipelines[b.pipeline].Network != network {
			continue
		}
		for i := b.hop; i < b.numHops; i++ {
			if h.hop(int32(slot), i).Device == device {
				return true
			}
		}
	}
	return false
}

// retire carries out unloads that waited for batches.
func (h *devices) retire(device int32) {
	ld := &h.loaders[device]
	for i := 0; i < len(ld.asked); i++ {
		if o := ld.asked[i]; !h.uses(device, o.network) {
			ld.asked = slices.Delete(ld.asked, i, i+1)
			i--
			h.unload(ld, o)
		}
	}
}

// startLoad begins the next load of a device.
func (h *devices) startLoad(device int32) {
	ld := &h.loaders[device]
	if ld.busy || len(ld.waiting) == 0 {
		return
	}
	o := ld.waiting[0]
	ld.waiting = ld.waiting[:copy(ld.waiting, ld.waiting[1:])]
	ld.busy, ld.since = true, h.now
	it := item{what: isLoaded, start: h.now, batch: o.network, device: device, serial: o.key, epoch: h.list[device].epoch}
	h.at(h.now+h.loadTime(o), policy.NetworkLoaded, h.sequence(), it)
}

// loadTime is how long a load takes: cold, where the tables know it.
func (h *devices) loadTime(o order) time.Duration {
	if h.cfg.LoadTime != nil {
		return h.cfg.LoadTime(o.network, o.device)
	}
	if o.network < 0 || h.t.Networks[o.network].Load == nil {
		return 0
	}
	return h.t.Networks[o.network].Load[h.t.Devices[o.device].Kind][1]
}

// loadEnded tells of a load, which fails where the memory is full.
func (h *devices) loadEnded(it *item) {
	d := it.device
	if h.list[d].epoch != it.epoch {
		return // lost meanwhile
	}
	ld, network := &h.loaders[d], it.batch
	ld.busy = false
	why := int64(0)
	if h.bounded(d) && network >= 0 && !slices.Contains(ld.loaded, network) && ld.taken+h.t.Networks[network].Bytes > h.t.Memory[d] {
		why = int64(policy.ReturnFull)
	} else {
		ld.add(h.t, network)
	}
	h.startLoad(d)
	ev := h.begin(policy.NetworkLoaded)
	ev.Network, ev.Device, ev.Key, ev.Value, ev.Start, ev.End = network, d, it.serial, why, it.start, h.now
	h.tell()
}

// bounded tells whether networks come and go on a device.
func (h *devices) bounded(device int32) bool {
	return int(device) < len(h.t.Memory) && h.t.Memory[device] > 0
}

// missing tells whether a batch's network is not on the device of its hop.
func (h *devices) missing(slot, device int32) bool {
	return h.bounded(device) && !slices.Contains(h.loaders[device].loaded, h.t.Pipelines[h.batches[slot].pipeline].Network)
}
