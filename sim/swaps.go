package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// swaps are networks that come to instances and leave them.
type swaps struct{ *rack }

// load takes an order. An instance runs one network at a time. A load waits for
// the unload before it, an unload for the sequences that run or wait.
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

// advance does the next step of what an instance was asked for: its network goes
// to sleep, or another one comes.
func (h *swaps) advance(d int32) {
	s := &h.list[d]
	if s.loading >= 0 {
		return
	}
	if all, _ := s.in.Holds(); s.leaving && (all > 0 || s.in.Busy()) {
		return
	}
	if s.leaving {
		h.change(d, s.network, false, h.server(d).Costs[s.network].Leaves)
		return
	}
	if len(s.waiting) == 0 {
		return
	}
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

// idle goes on with what waited for the sequences of an instance.
func (h *swaps) idle(d int32) {
	if s := &h.list[d]; s.leaving || len(s.waiting) > 0 {
		h.advance(d)
	}
}

// takes is how long a load takes: from the host's memory or cold.
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

// change begins a load or an unload that takes so long.
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

// changed ends a load or an unload, or tells what took no time.
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

// tellNetwork tells of a network still in this instant.
func (h *swaps) tellNetwork(kind policy.EventKind, network, d int32, why int64, after time.Duration) {
	h.at(h.now+after, kind, h.sequence(), item{what: isSwapped, host: 1, batch: network, device: d, epoch: h.list[d].epoch, serial: why, up: int32(kind) + 2})
}

func (h *swaps) told(kind policy.EventKind, network, d int32, why int64, since time.Duration) {
	ev := h.loop.begin(kind)
	ev.Network, ev.Device, ev.Value, ev.Start, ev.End = network, d, why, since, h.now
	h.tell()
}

// warm are the networks whose weights are in a host's memory, the least recently
// used first.
type warm []int32

// keep notes the use of a network, and gives up those that were used least
// recently where there is no room.
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
