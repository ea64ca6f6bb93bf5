package sim

import (
	"slices"
	"time"

	"inferplan/policy"
)

// What an agenda entry of the kind networkChangeEntry means, see agendaEntry.change.
const (
	unloadChange int32 = iota // an unload ends
	loadChange                // a load ends
	firstAnswer               // an order that changes nothing is answered, by the event whose kind is added to this number
)

// networkSwapper loads and unloads the networks (weights) of instances of language models. An instance runs one
// network at a time.
type networkSwapper struct {
	*loop
	instances    []hostedInstance // by device; those of the host
	loads, swaps int64            // so far; a swap is a load after another network
}

// handleOrder takes an order of the policy to load or unload a network on an instance, which runs one network at a
// time. A load waits for the unload before it, an unload for the sequences that run or wait. An unload of a load that
// has not begun cancels that. Orders to a lost instance are ignored.
func (swapper *networkSwapper) handleOrder(order networkOrder) {
	instance := &swapper.instances[order.device]
	switch {
	case instance.isDown:
	case order.isLoad:
		if order.network == instance.network {
			instance.unloadPending = false // the load cancels an unload that waits
		}
		instance.pendingLoads = append(instance.pendingLoads, order)
		swapper.startNextChange(order.device)
	default:
		// Cancel a load that has not begun, or unload the network that runs.
		if pendingIndex := slices.IndexFunc(instance.pendingLoads, order.matches); pendingIndex >= 0 {
			instance.pendingLoads = slices.Delete(instance.pendingLoads, pendingIndex, pendingIndex+1)
			swapper.scheduleNetworkEvent(policy.NetworkUnloaded, order.network, order.device, 0)
			return
		}
		if instance.network == order.network {
			instance.unloadPending = true
			swapper.startNextChange(order.device)
		}
	}
}

// startNextChange is called when a change (a load or unload) was ordered or has ended, or the last sequence has left. It
// begins the next ordered change on the instance of a device, unless one is under way. An unload waits until no sequence
// is left and goes before the loads. A load may be answered at once: refused, loaded already, or full because another
// network is there.
func (swapper *networkSwapper) startNextChange(deviceIndex int32) {
	instance := &swapper.instances[deviceIndex]
	if instance.changingNetwork >= 0 {
		return // a change is under way
	}

	// An unload waits until no sequence is left and no iteration runs.
	if sequences, _ := instance.simulation.SequenceCounts(); instance.unloadPending && (sequences > 0 || instance.simulation.Busy()) {
		return
	}

	// An unload goes before the loads that wait.
	if instance.unloadPending {
		swapper.beginChange(deviceIndex, instance.network, false, serverOf(swapper.tables, deviceIndex).Costs[instance.network].UnloadTime)
		return
	}
	if len(instance.pendingLoads) == 0 {
		return
	}

	// Take the first load. It is refused if the instance cannot run the network (without KV memory for it). It is answered
	// at once if the network is there already, or another one that must first be unloaded.
	order := instance.pendingLoads[0]
	instance.pendingLoads = instance.pendingLoads[:copy(instance.pendingLoads, instance.pendingLoads[1:])]
	switch {
	case serverOf(swapper.tables, deviceIndex).Costs[order.network].KVTokens == 0:
		swapper.scheduleNetworkEvent(policy.NetworkLoaded, order.network, deviceIndex, int64(policy.ReturnRefused))
	case instance.network == order.network:
		swapper.scheduleNetworkEvent(policy.NetworkLoaded, order.network, deviceIndex, 0)
	case instance.network >= 0:
		swapper.scheduleNetworkEvent(policy.NetworkLoaded, order.network, deviceIndex, int64(policy.ReturnFull))
	default:
		swapper.beginChange(deviceIndex, order.network, true, swapper.loadTimeOf(order, instance))
	}
}

// continuePending begins the ordered loads or unloads that waited for the sequences of the instance on a device to end.
func (swapper *networkSwapper) continuePending(deviceIndex int32) {
	if instance := &swapper.instances[deviceIndex]; instance.unloadPending || len(instance.pendingLoads) > 0 {
		swapper.startNextChange(deviceIndex)
	}
}

// loadTimeOf returns how long an instance takes to load a network by an order: less if the host's memory still holds the
// weights (warm) than from disk (cold). A time in the run's configuration goes before the plan's; without either it
// returns 0.
func (swapper *networkSwapper) loadTimeOf(order networkOrder, instance *hostedInstance) time.Duration {
	if swapper.loop.cfg.LoadTime != nil {
		return swapper.loop.cfg.LoadTime(order.network, order.device)
	}
	times := swapper.tables.Networks[order.network].LoadTimes
	if times == nil {
		return 0
	}
	const warmLoad, coldLoad = 0, 1
	loadKind := coldLoad
	if slices.Contains(instance.warmNetworks, order.network) {
		loadKind = warmLoad
	}
	return times[swapper.tables.Devices[order.device].Kind][loadKind]
}

// beginChange begins a load (isLoad) or an unload of a network on the instance of a device, which ends after the
// given duration.
func (swapper *networkSwapper) beginChange(deviceIndex, network int32, isLoad bool, duration time.Duration) {
	instance := &swapper.instances[deviceIndex]
	instance.changingNetwork, instance.changeStart = network, swapper.agenda.now

	// Count the part of the change in the counted time (after the warm-up), and put its end on the agenda.
	instance.loadTime += swapper.loop.cfg.countedSpan().overlap(timeSpan{swapper.agenda.now, swapper.agenda.now + duration})
	endEvent, change := policy.NetworkUnloaded, unloadChange
	if isLoad {
		endEvent, change = policy.NetworkLoaded, loadChange
	}
	swapper.agenda.scheduleAfter(duration, endEvent, agendaEntry{kind: networkChangeEntry, host: instanceHost, subject: network, device: deviceIndex, epoch: instance.faultEpoch, detail: change})
}

// finishChange is called when a load or an unload of a network on an instance ends, or when an order that changed
// nothing is answered; entry.change says which of these it is. It sets the network that the instance runs (-1 for none
// after an unload), counts loads and swaps, and tells the policy. Then the next change begins.
func (swapper *networkSwapper) finishChange(entry *agendaEntry) {
	deviceIndex, network := entry.device, entry.network()
	instance := &swapper.instances[deviceIndex]
	switch change := entry.change(); change {
	case unloadChange:
		// The weights stay in the host's memory as long as it has space.
		instance.changingNetwork, instance.unloadPending = -1, false
		instance.previousNetwork, instance.network = instance.network, -1
		instance.warmNetworks.markUsed(network, swapper.tables.Networks, serverOf(swapper.tables, deviceIndex).WarmBytes)
		swapper.tellNetworkEvent(policy.NetworkUnloaded, network, deviceIndex, 0, instance.changeStart)
	case loadChange:
		// A swap is a load of another network than the one before.
		instance.changingNetwork = -1
		instance.runNetwork(swapper.tables, deviceIndex, network, swapper.loop.cfg.Slowdown)
		swapper.loads++
		swapper.loop.trace.writeLoad(deviceIndex, network, instance.changeStart, swapper.agenda.now)
		if instance.previousNetwork >= 0 && instance.previousNetwork != network {
			swapper.swaps++
		}
		swapper.tellNetworkEvent(policy.NetworkLoaded, network, deviceIndex, 0, instance.changeStart)
	default:
		// An order that changes nothing: its event is in the entry, see scheduleNetworkEvent.
		swapper.tellNetworkEvent(policy.EventKind(change-firstAnswer), network, deviceIndex, int64(entry.reason()), swapper.agenda.now)
	}
	swapper.startNextChange(deviceIndex)
}

// scheduleNetworkEvent schedules, later in this instant, the answer to an order that changes nothing: an event of
// this kind about a network on a device. reason is a policy.ReturnReason, or 0 if the order has succeeded.
func (swapper *networkSwapper) scheduleNetworkEvent(kind policy.EventKind, network, deviceIndex int32, reason int64) {
	swapper.agenda.scheduleAfter(0, kind, agendaEntry{kind: networkChangeEntry, host: instanceHost, subject: network, device: deviceIndex, epoch: swapper.instances[deviceIndex].faultEpoch, serial: reason, detail: firstAnswer + int32(kind)})
}

// tellNetworkEvent tells the policy that a network was loaded onto or unloaded from a device, from startedAt until
// now, with the reason (a policy.ReturnReason) if that failed, else 0.
func (swapper *networkSwapper) tellNetworkEvent(kind policy.EventKind, network, deviceIndex int32, reason int64, startedAt time.Duration) {
	ev := swapper.loop.beginEvent(kind)
	ev.Network, ev.Device, ev.Value, ev.Start, ev.End = network, deviceIndex, reason, startedAt, swapper.agenda.now
	swapper.loop.tellPolicy()
}

// warmSet lists the networks whose weights are in a host's memory, the least recently used
// first.
type warmSet []int32

// markUsed makes a network the most recently used one. It removes the least recently used
// ones that exceed the capacity, in bytes.
func (set *warmSet) markUsed(network int32, networks []policy.Network, capacity int64) {
	list := slices.DeleteFunc(*set, func(other int32) bool { return other == network })
	list = append(list, network)

	// Go back from the most recently used network, which is the last of the list. Remove the first one that does not fit,
	// and all before it.
	usedBytes := int64(0)
	for position := len(list) - 1; position >= 0; position-- {
		usedBytes += networks[list[position]].Bytes
		if usedBytes > capacity {
			list = slices.Delete(list, 0, position+1)
			break
		}
	}
	*set = list
}
