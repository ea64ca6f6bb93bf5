package reserve

import (
	"time"

	"inferplan/policy"
)

// loseDevice takes a lost device out of service. Batches that are on it or bound for it, or whose tensors have not
// left it, are aborted and their requests queued again. The models with stages on it decide anew.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.lists.isLost[device] {
		return
	}
	p.lists.isLost[device] = true
	for slot := range p.batches.Len() {
		if p.batches.NeedsDevice(slot, device) {
			p.abortBatch(now, slot, device, out)
		}
	}
	p.lists.updateSummary(device)
	for _, modelIndex := range p.modelsOfDevice[device] {
		p.markForNewSearch(modelIndex)
	}
}

// abortBatch aborts the batch in a slot because it needs a lost device, releases its reservations (the times reserved
// for it on devices and links), and queues its requests again. A device or link that works on it now keeps its time
// until the reserved end, because running work cannot be stopped. The models on the devices that it leaves decide again.
func (p *Policy) abortBatch(now time.Duration, slot, device int32, out *policy.Actions) {
	batch := p.batches.BatchAt(slot)

	// Release its reservations, from the hop that it has reached on. releaseReservation puts what stands behind each in
	// the list toSettle, from which settleAll gives it new times. The list begins empty.
	p.timelines.toSettle = p.timelines.toSettle[:0]
	for hop := batch.ReachedHops; hop < batch.Hops; hop++ {
		index := p.lists.reservationOf(slot, hop, onDevice)
		for part := int32(0); part < reservationsPerHop; part++ {
			entry := &p.lists.reservations[index+part]
			if entry.resource < 0 {
				continue
			}

			// A resource that works on the batch now, a device that runs it or a link that transfers it, is not free before the
			// reserved end. The lost device runs nothing any more.
			linkTransfers := part != onDevice && entry.readyIsActual && entry.prev < 0 && entry.start <= now // nothing is before it
			if (entry.startIsActual || linkTransfers) && entry.resource != device {
				p.lists.freeFrom[entry.resource] = max(p.lists.freeFrom[entry.resource], entry.end())
			}
			p.timelines.releaseReservation(index + part)
		}
	}
	p.timelines.settleAll()

	// Queue its requests again.
	p.batches.Abort(slot, &p.models[batch.Model].queue, out)
	p.markForNewSearch(batch.Model)

	// Models on the devices that it leaves may now do better.
	for hop := range batch.Hops {
		for _, modelIndex := range p.modelsOfDevice[batch.Devices[hop]] {
			if p.models[modelIndex].queue.Len > 0 {
				p.markForNewSearch(modelIndex)
			}
		}
	}
}

// regainDevice returns a lost device to service, empty and free from now on. The models that use it decide again.
func (p *Policy) regainDevice(now time.Duration, device int32) {
	if !p.lists.isLost[device] {
		return
	}
	p.lists.isLost[device] = false
	p.lists.freeFrom[device] = now
	p.lists.updateSummary(device)
	for _, modelIndex := range p.modelsOfDevice[device] {
		p.markForNewSearch(modelIndex)
	}
}
