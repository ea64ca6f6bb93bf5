package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkSwapper loads and unloads the networks of instances.
type swaps struct{ *rack }

// handleOrder takes an order of the policy. An instance runs one network at a time. A load
// waits for the unload before it, an unload for the sequences that run or wait.
func (h *swaps) load(o order) {
	s := &h.list[o.device]
	switch {
	case s.down:
	case o.up:
		if o.network == s.network {
			s.leaving = false
		}
		s.waiting = append(s.waiting, o)
		h.advance(o.device)
	default:
		if at := slices.IndexFunc(s.waiting, o.same); at >= 0 {
			s.waiting = slices.Delete(s.waiting, at, at+1)
			h.tellNetwork(policy.NetworkUnloaded, o.network, o.device, 0, 0)
			return
		}
		if s.network == o.network {
			s.leaving = true
			h.advance(o.device)
		}
	}
}

// startNextChange begins the next load or unload of an instance, unless one is under way
// or its sequences have not ended.
func (h *swaps) advance(d int32) {
	s := &h.list[d]
	if s.loading >= 0 {
		return
	}
	if all, _ := s.in.Holds(); s.leaving && (all > 0 || s.in.Busy()) {
		return
	}

	// An unload goes before the loads that wait.
	if s.leaving {
		h.change(d, s.network, false, h.server(d).Costs[s.network].Leaves)
		return
	}
	if len(s.waiting) == 0 {
		return
	}

	// Take the first load. It may be refused, be loaded already, or find another network.
	o := s.waiting[0]
	s.waiting = s.waiting[:copy(s.waiting, s.waiting[1:])]
	switch {
	case h.server(d).Costs[o.network].KV == 0:
		h.tellNetwork(policy.NetworkLoaded, o.network, d, int64(policy.ReturnRefused), 0)
	case s.network == o.network:
		h.tellNetwork(policy.NetworkLoaded, o.network, d, 0, 0)
	case s.network >= 0:
		h.tellNetwork(policy.NetworkLoaded, o.network, d, int64(policy.ReturnFull), 0)
	default:
		h.change(d, o.network, true, h.takes(o, s))
	}
}

// continuePending begins what waited for the sequences of an instance to end.
func (h *swaps) idle(d int32) {
	if s := &h.list[d]; s.leaving || len(s.waiting) > 0 {
		h.advance(d)
	}
}

// loadTimeOf returns how long a load takes: less if the host's memory holds the weights
// (index 0 of the table) than from cold (index 1).
func (h *swaps) takes(o order, s *server) time.Duration {
	if h.cfg.LoadTime != nil {
		return h.cfg.LoadTime(o.network, o.device)
	}
	times := h.t.Networks[o.network].Load
	if times == nil {
		return 0
	}
	from := 1
	if slices.Contains(s.warm, o.network) {
		from = 0
	}
	return times[h.t.Devices[o.device].Kind][from]
}

// beginChange begins a load or an unload with the given duration.
func (h *swaps) change(d, network int32, up bool, took time.Duration) {
	s := &h.list[d]
	s.loading, s.since = network, h.now
	s.loaded += h.counted(h.now, h.now+took)
	kind, way := policy.NetworkUnloaded, int32(0)
	if up {
		kind, way = policy.NetworkLoaded, 1
	}
	h.at(h.now+took, kind, h.sequence(), item{what: isSwapped, host: 1, batch: network, device: d, epoch: s.epoch, up: way})
}

// finishChange ends a load or an unload. An entry of scheduleNetworkEvent has no change to
// end: it only tells the policy.
func (h *swaps) changed(it *item) {
	d, network := it.device, it.batch
	s := &h.list[d]
	switch it.up {
	case 0:
		s.loading, s.leaving = -1, false
		s.last, s.network = s.network, -1
		s.warm.keep(network, h.t.Networks, h.server(d).Warm)
		h.told(policy.NetworkUnloaded, network, d, 0, s.since)
	case 1:
		s.loading = -1
		s.run(h.t, d, network, h.cfg.Slower)
		if h.ends != nil {
			h.ends.loaded(s.last >= 0 && s.last != network)
		}
		h.told(policy.NetworkLoaded, network, d, 0, s.since)
	default:
		h.told(policy.EventKind(it.up-2), network, d, it.serial, h.now)
	}
	h.advance(d)
}

// scheduleNetworkEvent schedules an event about a network, after a delay.
func (h *swaps) tellNetwork(kind policy.EventKind, network, d int32, why int64, after time.Duration) {
	h.at(h.now+after, kind, h.sequence(), item{what: isSwapped, host: 1, batch: network, device: d, epoch: h.list[d].epoch, serial: why, up: int32(kind) + 2})
}

// tellNetworkEvent tells the policy that a network was loaded or unloaded, with the reason if that failed.
func (h *swaps) told(kind policy.EventKind, network, d int32, why int64, since time.Duration) {
	ev := h.loop.begin(kind)
	ev.Network, ev.Device, ev.Value, ev.Start, ev.End = network, d, why, since, h.now
	h.tell()
}

// warmSet lists the networks whose weights are in a host's memory, the least recently used
// first.
type warm []int32

// markUsed makes a network the most recently used one. It removes the least recently used
// ones that exceed the capacity, in bytes.
func (w *warm) keep(network int32, networks []policy.Network, room int64) {
	list := slices.DeleteFunc(*w, func(n int32) bool { return n == network })
	list = append(list, network)
	taken := int64(0)
	for i := len(list) - 1; i >= 0; i-- {
		if taken += networks[list[i]].Bytes; taken > room {
			list = slices.Delete(list, 0, i+1)
			break
		}
	}
	*w = list
}
