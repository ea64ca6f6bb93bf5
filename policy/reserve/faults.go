package reserve

import (
	"time"

	"inferplan/policy"
)

// lose takes a device away. Batches that are on it or bound for it, or whose
// tensors have not left it, are aborted and their requests queued again.
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

// abort forgets a batch and queues its requests again. What it still holds on
// other devices and links it holds until its time there is over: nothing that
// runs can be stopped.
func (p *Policy) abort(now time.Duration, slot, device int32, out *policy.Actions) {
	b := p.batches.At(slot)
	p.tl.work = p.tl.work[:0]
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
	p.batches.Abort(slot, &p.models[b.Model].queue, out)
	p.again(b.Model)
	for h := range b.Hops {
		for _, m := range p.users[b.Device[h]] {
			if p.models[m].queue.Len > 0 {
				p.again(m)
			}
		}
	}
}

// regain takes a device back, empty.
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
