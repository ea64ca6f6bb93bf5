package reserve

import (
	"time"

	"inferplan/policy"
)

// loseDevice takes a lost device out of service. Batches that are on it or bound for it, or whose tensors have not
// left it, are aborted and their requests queued again. The models that use it decide anew.
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
	for _, m := range p.modelsOfDevice[device] {
		p.markAfterChange(m)
	}
}

// abortBatch aborts a batch that needs a lost device, releases its reservations, and queues its requests again.
// What has started on other devices and links keeps them until its time there is over, because running work cannot
// be stopped.
func (p *Policy) abortBatch(now time.Duration, slot, device int32, out *policy.Actions) {
	b := p.batches.BatchAt(slot)
	p.timelines.toSettle = p.timelines.toSettle[:0]

	// Release its reservations.
	for h := b.ReachedHops; h < b.Hops; h++ {
		n := p.lists.reservationOf(slot, h, onDevice)
		for part := int32(onDevice); part < nodesPerHop; part++ {
			entry := &p.lists.reservations[n+part]
			if entry.resource < 0 {
				continue
			}
			if (entry.startIsActual || part != onDevice && entry.readyIsActual && entry.prev < 0 && entry.start <= now) && entry.resource != device {
				p.lists.freeFrom[entry.resource] = max(p.lists.freeFrom[entry.resource], entry.end())
			}
			p.timelines.release(n + part)
		}
	}
	p.timelines.settleAll()

	// Queue its requests again.
	p.batches.Abort(slot, &p.models[b.Model].queue, out)
	p.markAfterChange(b.Model)

	// Models on the devices that it leaves may now do better.
	for h := range b.Hops {
		for _, m := range p.modelsOfDevice[b.Devices[h]] {
			if p.models[m].queue.Len > 0 {
				p.markAfterChange(m)
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
	for _, m := range p.modelsOfDevice[device] {
		p.markAfterChange(m)
	}
}
