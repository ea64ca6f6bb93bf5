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
	for slot := range p.batches {
		b := &p.batches[slot]
		if b.live && needs(p, b, device) {
			p.abort(now, int32(slot), device, out)
		}
	}
	p.tl.setTail(device)
	for _, m := range p.users[device] {
		p.again(m)
	}
}

// needs tells whether a batch cannot end without a device.
func needs(p *Policy, b *batch, device int32) bool {
	for h := int16(0); h < b.hops; h++ {
		if b.device[h] == device && (h >= b.done || h+1 < b.hops && h >= b.arrived) {
			return true
		}
	}
	return false
}

// abort forgets a batch and queues its requests again. What it still holds on
// other devices and links it holds until its time there is over: nothing that
// runs can be stopped.
func (p *Policy) abort(now time.Duration, slot, device int32, out *policy.Actions) {
	b := &p.batches[slot]
	p.tl.work = p.tl.work[:0]
	for h := b.arrived; h < b.hops; h++ {
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
	for _, r := range p.membersOf(slot) {
		r.Lost, r.Looked = true, true
		p.models[b.model].queue.Insert(r)
	}
	b.live = false
	p.free = append(p.free, slot)
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Model: b.model, Pipeline: b.pipeline, Batch: slot})
	p.again(b.model)
	for h := range b.hops {
		for _, m := range p.users[b.device[h]] {
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
