package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// networkSwapper loads and unloads the networks of instances.
type networkSwapper struct {
	loop         *loop
	agenda       *agenda
	tables       *policy.Tables
	instances    []llmInstance // by device; those of the host
	loads, swaps int64         // so far; a swap is a load after another network
}

// handleOrder takes an order of the policy to load or unload a network (weights) on an instance, which runs one
// network at a time. A load waits for the unload before it, an unload for the sequences that run or wait. An unload
// of a load that has not begun cancels that. Orders to a lost instance are ignored.
func (h *networkSwapper) handleOrder(o networkOrder) {
	s := &h.instances[o.device]
	switch {
	case s.isDown:
	case o.load:
		if o.network == s.network {
			s.unloadPending = false
		}
		s.pendingLoads = append(s.pendingLoads, o)
		h.startNextChange(o.device)
	default:
		if pendingIndex := slices.IndexFunc(s.pendingLoads, o.matches); pendingIndex >= 0 {
			s.pendingLoads = slices.Delete(s.pendingLoads, pendingIndex, pendingIndex+1)
			h.scheduleNetworkEvent(policy.NetworkUnloaded, o.network, o.device, 0)
			return
		}
		if s.network == o.network {
			s.unloadPending = true
			h.startNextChange(o.device)
		}
	}
}

// startNextChange begins the next load or unload of an instance, unless one is under way. An unload waits until no
// sequence is left and goes before the loads. A load may be answered at once: refused, loaded already, or full
// because another network is there.
func (h *networkSwapper) startNextChange(d int32) {
	s := &h.instances[d]
	if s.changingNetwork >= 0 {
		return
	}
	if sequences, _ := s.instance.SequenceCounts(); s.unloadPending && (sequences > 0 || s.instance.Busy()) {
		return
	}

	// An unload goes before the loads that wait.
	if s.unloadPending {
		h.beginChange(d, s.network, false, serverOf(h.tables, d).Costs[s.network].UnloadTime)
		return
	}
	if len(s.pendingLoads) == 0 {
		return
	}

	// Take the first load. It may be refused, be loaded already, or find another network.
	o := s.pendingLoads[0]
	s.pendingLoads = s.pendingLoads[:copy(s.pendingLoads, s.pendingLoads[1:])]
	switch {
	case serverOf(h.tables, d).Costs[o.network].KVTokens == 0:
		h.scheduleNetworkEvent(policy.NetworkLoaded, o.network, d, int64(policy.ReturnRefused))
	case s.network == o.network:
		h.scheduleNetworkEvent(policy.NetworkLoaded, o.network, d, 0)
	case s.network >= 0:
		h.scheduleNetworkEvent(policy.NetworkLoaded, o.network, d, int64(policy.ReturnFull))
	default:
		h.beginChange(d, o.network, true, h.loadTimeOf(o, s))
	}
}

// continuePending begins what waited for the sequences of an instance to end.
func (h *networkSwapper) continuePending(d int32) {
	if s := &h.instances[d]; s.unloadPending || len(s.pendingLoads) > 0 {
		h.startNextChange(d)
	}
}

// loadTimeOf returns how long an instance takes to load a network: less if the host's memory still holds the
// weights (warm, index 0 of the table) than from disk (cold, index 1).
func (h *networkSwapper) loadTimeOf(o networkOrder, s *llmInstance) time.Duration {
	if h.loop.cfg.LoadTime != nil {
		return h.loop.cfg.LoadTime(o.network, o.device)
	}
	times := h.tables.Networks[o.network].LoadTimes
	if times == nil {
		return 0
	}
	loadKind := 1
	if slices.Contains(s.warmNetworks, o.network) {
		loadKind = 0
	}
	return times[h.tables.Devices[o.device].Kind][loadKind]
}

// beginChange begins a load or an unload of a network on an instance, which ends after the given duration. Entries
// of an earlier epoch (before a loss) are void.
func (h *networkSwapper) beginChange(d, network int32, isLoad bool, duration time.Duration) {
	s := &h.instances[d]
	s.changingNetwork, s.changeStart = network, h.agenda.now
	s.loadTime += h.loop.cfg.countedSpan().overlap(timeSpan{h.agenda.now, h.agenda.now + duration})
	kind, changeKind := policy.NetworkUnloaded, int32(0)
	if isLoad {
		kind, changeKind = policy.NetworkLoaded, 1
	}
	h.agenda.scheduleAfter(duration, kind, agendaEntry{kind: isNetworkChange, host: 1, batch: network, device: d, epoch: s.epoch, arg: changeKind})
}

// finishChange handles the end of a load (arg 1) or an unload (arg 0) and tells the policy. Higher values of arg
// carry an event, by its kind plus 2, that only has to be told: the answer to an order that changed nothing. Then
// the next change begins.
func (h *networkSwapper) finishChange(entry *agendaEntry) {
	d, network := entry.device, entry.batch
	s := &h.instances[d]
	switch entry.arg {
	case 0:
		s.changingNetwork, s.unloadPending = -1, false
		s.previousNetwork, s.network = s.network, -1
		s.warmNetworks.markUsed(network, h.tables.Networks, serverOf(h.tables, d).WarmBytes)
		h.tellNetworkEvent(policy.NetworkUnloaded, network, d, 0, s.changeStart)
	case 1:
		s.changingNetwork = -1
		s.runNetwork(h.tables, d, network, h.loop.cfg.Slowdown)
		h.loads++
		if s.previousNetwork >= 0 && s.previousNetwork != network {
			h.swaps++
		}
		h.tellNetworkEvent(policy.NetworkLoaded, network, d, 0, s.changeStart)
	default:
		h.tellNetworkEvent(policy.EventKind(entry.arg-2), network, d, entry.serial, h.agenda.now)
	}
	h.startNextChange(d)
}

// scheduleNetworkEvent schedules an event about a network, later in this instant.
func (h *networkSwapper) scheduleNetworkEvent(kind policy.EventKind, network, d int32, reason int64) {
	h.agenda.scheduleAfter(0, kind, agendaEntry{kind: isNetworkChange, host: 1, batch: network, device: d, epoch: h.instances[d].epoch, serial: reason, arg: int32(kind) + 2})
}

// tellNetworkEvent tells the policy that a network was loaded or unloaded, with the reason if that failed.
func (h *networkSwapper) tellNetworkEvent(kind policy.EventKind, network, d int32, reason int64, startedAt time.Duration) {
	ev := h.loop.beginEvent(kind)
	ev.Network, ev.Device, ev.Value, ev.Start, ev.End = network, d, reason, startedAt, h.agenda.now
	h.loop.tellPolicy()
}

// warmSet lists the networks whose weights are in a host's memory, the least recently used
// first.
type warmSet []int32

// markUsed makes a network the most recently used one. It removes the least recently used
// ones that exceed the capacity, in bytes.
func (w *warmSet) markUsed(network int32, networks []policy.Network, capacity int64) {
	list := slices.DeleteFunc(*w, func(n int32) bool { return n == network })
	list = append(list, network)
	usedBytes := int64(0)
	for i := len(list) - 1; i >= 0; i-- {
		if usedBytes += networks[list[i]].Bytes; usedBytes > capacity {
			list = slices.Delete(list, 0, i+1)
			break
		}
	}
	*w = list
}
