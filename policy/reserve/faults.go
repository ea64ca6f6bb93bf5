package reserve

import (
	"time"

	"inferplan/policy"
)

// loseDevice takes a device out of service. Batches that are on it or bound for it, or whose tensors have not left
// it, are aborted and their requests queued again.
func (p *Policy) lose(now time.Duration, device int32, out *policy.Actions) {
	if p.tl.lost[device] {
		return
	}
	p.tl.lost[device] = true
	for slot := range p.batches.Len() {
		if p.batches.Needs(slot, device) {
			p.abort(now, slot, device, out)
		}
	}
	p.tl.setTail(device)
	for _, m := range p.users[device] {
		p.again(m)
	}
}

// abortBatch aborts a batch and queues its requests again. What has started on other devices and links keeps them
// until its time there is over, because running work cannot be stopped.
func (p *Policy) abort(now time.Duration, slot, device int32, out *policy.Actions) {
	b := p.batches.At(slot)
	p.tl.work = p.tl.work[:0]

	// Release its reservations.
	for h := b.Arrived; h < b.Hops; h++ {
		n := p.tl.node(slot, h, run)
		for kind := int32(run); kind < perHop; kind++ {
			nd := &p.tl.nodes[n+kind]
			if nd.res < 0 {
				continue
			}
			if (nd.started || kind != run && nd.arrived && nd.prev < 0 && nd.start <= now) && nd.res != device {
				p.tl.floors[nd.res] = max(p.tl.floors[nd.res], nd.end())
			}
			p.tl.release(n + kind)
		}
	}
	p.tl.drain()

	// Queue its requests again.
	p.batches.Abort(slot, &p.models[b.Model].queue, out)
	p.again(b.Model)

	// Models on the devices that it leaves may now do better.
	for h := range b.Hops {
		for _, m := range p.users[b.Device[h]] {
			if p.models[m].queue.Len > 0 {
				p.again(m)
			}
		}
	}
}

// regainDevice returns an empty device to service.
func (p *Policy) regain(now time.Duration, device int32) {
	if !p.tl.lost[device] {
		return
	}
	p.tl.lost[device] = false
	p.tl.floors[device] = now
	p.tl.setTail(device)
	for _, m := range p.users[device] {
		p.again(m)
	}
}
