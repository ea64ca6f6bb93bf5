package reserve

import (
	"time"

	"inferplan/policy"
)

// loseDevice takes a device out of service. Batches that are on it or bound for it, or whose tensors have not left
// it, are aborted and their requests queued again.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.timelines.isLost[device] {
		return
	}
	p.timelines.isLost[device] = true
	for slot := range p.batches.Len() {
		if p.batches.NeedsDevice(slot, device) {
			p.abortBatch(now, slot, device, out)
		}
	}
	p.timelines.updateSummary(device)
	for _, m := range p.modelsOfDevice[device] {
		p.markAfterChange(m)
	}
}

// abortBatch aborts a batch and queues its requests again. What has started on other devices and links keeps them
// until its time there is over, because running work cannot be stopped.
func (p *Policy) abortBatch(now time.Duration, slot, device int32, out *policy.Actions) {
	b := p.batches.BatchAt(slot)
	p.timelines.toSettle = p.timelines.toSettle[:0]

	// Release its reservations.
	for h := b.ReachedHops; h < b.Hops; h++ {
		n := p.timelines.reservationOf(slot, h, onDevice)
		for part := int32(onDevice); part < nodesPerHop; part++ {
			entry := &p.timelines.reservations[n+part]
			if entry.resource < 0 {
				continue
			}
			if (entry.startIsActual || part != onDevice && entry.readyIsActual && entry.prev < 0 && entry.start <= now) && entry.resource != device {
				p.timelines.freeFrom[entry.resource] = max(p.timelines.freeFrom[entry.resource], entry.end())
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

// regainDevice returns an empty device to service.
func (p *Policy) regainDevice(now time.Duration, device int32) {
	if !p.timelines.isLost[device] {
		return
	}
	p.timelines.isLost[device] = false
	p.timelines.freeFrom[device] = now
	p.timelines.updateSummary(device)
	for _, m := range p.modelsOfDevice[device] {
		p.markAfterChange(m)
	}
}
