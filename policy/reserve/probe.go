package reserve

import (
	"time"

	"inferplan/policy"
)

// path is what a probe found: a way through a pipeline and what to reserve.
type path struct {
	pipeline int32
	batch    int32
	finish   time.Duration // completion; never when a stage has no device left
	wait     time.Duration // finish - now - work: waiting for devices and links
	hold     time.Duration // dispatch only so much later, see package comment
	hops     []policy.Hop
}

// candidate is a device for one stage.
type candidate struct {
	device             int32
	up, down           int32 // resources of the transfer; -1: none
	xferStart, xferEnd time.Duration
	start, finish      time.Duration
	key                time.Duration // what the choice minimises
	hold               time.Duration
	transfer           bool
}

// probe finds a path of least completion for a batch through a pipeline
// (Algorithm 2): stage by stage, the device that completes the stage first. In
// a stage that sends on, a completion before the node's uplink is free is
// worth no more than one at that moment, which spreads batches over the NICs of
// nodes with several devices. Ties go to the first device.
func (p *Policy) probe(pipeline, batch int32, now time.Duration, out *path) {
	pl := &p.t.Pipelines[pipeline]
	p.probes++
	out.pipeline, out.batch, out.hold = pipeline, batch, 0
	out.hops = out.hops[:pl.NumStages]
	t, work, from := now, time.Duration(0), int32(-1)
	for h := int32(0); h < pl.NumStages; h++ {
		stage := pl.FirstStage + h
		st := &p.t.Stages[stage]
		infer := st.Infer[batch-1]
		var xfer time.Duration
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		sends := h+1 < pl.NumStages && p.t.Stages[stage+1].Xfer != nil
		var best candidate
		if xfer > 0 {
			best = p.afterTransfer(st, from, t, infer, xfer, sends)
		} else {
			best = p.earliest(st, now, t, infer, sends)
		}
		if best.finish >= never {
			out.finish, out.wait = never, never
			return
		}
		if best.transfer {
			work += xfer
		}
		work += infer
		out.hold = max(out.hold, best.hold)
		out.hops[h] = policy.Hop{
			Stage: stage, Device: best.device, Uplink: p.link(best.up), Downlink: p.link(best.down),
			XferStart: best.xferStart, XferEnd: best.xferEnd, Start: best.start, End: best.finish,
		}
		t, from = best.finish, best.device
	}
	out.finish = t
	out.wait = t - now - work
}

// Probes is how many paths were looked for so far.
func (p *Policy) Probes() int64 { return p.probes }

// earliest is the choice among devices that the batch reaches at ready without
// a transfer.
func (p *Policy) earliest(st *policy.Stage, now, ready, infer time.Duration, sends bool) candidate {
	best := candidate{key: never, finish: never, up: -1, down: -1, xferStart: ready, xferEnd: ready}
	spans := p.tl.spans
	for _, d := range p.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if sp.tail < now && sp.head >= 0 {
			p.tl.overrun(d, now)
		}
		start, hold := max(ready, sp.tail), time.Duration(0)
		if ready <= sp.lastReady {
			start, hold = p.tl.slot(d, ready, infer, ready == now)
		}
		if start+infer > best.key {
			continue // whatever its uplink says
		}
		finish := start + infer
		key := finish
		if sends {
			if link := p.uplinks[d]; link >= 0 {
				key = max(key, spans[link].tail)
			}
		}
		if key < best.key || key == best.key && finish < best.finish {
			best.device, best.start, best.finish, best.key, best.hold = d, start, finish, key, hold
			if key == ready+infer {
				break
			}
		}
	}
	return best
}

// afterTransfer is the choice among devices to which the batch's tensors cross
// from device from, whose stage it left at ready.
func (p *Policy) afterTransfer(st *policy.Stage, from int32, ready, infer, xfer time.Duration, sends bool) candidate {
	best := candidate{key: never, finish: never}
	node := p.t.Devices[from].Node
	uplink := p.uplinks[from]
	upTail, upReady := time.Duration(0), time.Duration(0)
	if uplink >= 0 {
		upTail, upReady = p.tl.spans[uplink].tail, p.tl.spans[uplink].lastReady
	}
	// No transfer ends before soonest.
	soonest := ready + xfer
	if ready >= upReady {
		soonest = max(ready, upTail) + xfer
	}
	if p.sameNode {
		soonest = ready
	}
	spans := p.tl.spans
	for _, d := range p.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if least := max(soonest, sp.tail) + infer; least >= best.key && soonest >= sp.lastReady && (least > best.key || !sends) {
			continue // whatever its links say
		}
		up, down := uplink, p.downlinks[d]
		var c candidate
		switch {
		case uplink >= 0 && p.sameNode && node == p.t.Devices[d].Node:
			up, down = -1, -1
			c.xferStart, c.xferEnd = ready, ready
		case uplink < 0 && down < 0: // on one host, by a measured time
			c.xferStart, c.xferEnd = ready, ready+xfer
			c.transfer = true
		default:
			c.transfer = true
			start := max(ready, upTail)
			odd := ready < upReady
			if down >= 0 {
				ds := &spans[down]
				start = max(start, ds.tail)
				odd = odd || ready < ds.lastReady
			}
			if odd {
				start, c.hold = p.tl.slotPair(up, down, ready, xfer)
			}
			c.xferStart, c.xferEnd = start, start+xfer
		}
		c.start = max(c.xferEnd, sp.tail)
		if c.xferEnd < sp.lastReady {
			var hold time.Duration
			c.start, hold = p.tl.slot(d, c.xferEnd, infer, false)
			c.hold = max(c.hold, hold)
		}
		c.finish = c.start + infer
		c.key = c.finish
		if sends {
			if link := p.uplinks[d]; link >= 0 {
				c.key = max(c.key, spans[link].tail)
			}
		}
		if c.key < best.key || c.key == best.key && c.finish < best.finish {
			c.device, c.up, c.down = d, up, down
			best = c
			if c.key == ready+infer || c.transfer && c.key == ready+xfer+infer && !p.sameNode {
				break
			}
		}
	}
	return best
}

// link is the index in Tables.Links of a link's resource.
func (p *Policy) link(res int32) int32 {
	if res < 0 {
		return -1
	}
	return res - p.numDevices
}

// reserve enters a path into the timelines as the reservations of a batch slot.
// Where a probe after the path's own found a device past its time, the
// timelines have moved on from what the path says; settling brings it in line.
func (p *Policy) reserve(batch int32, pa *path, now time.Duration) {
	ready := now
	p.tl.work = p.tl.work[:0]
	for h := range pa.hops {
		hop := &pa.hops[h]
		n := p.tl.node(batch, int16(h), run)
		if hop.Uplink >= 0 || hop.Downlink >= 0 {
			p.reserveLink(n+up, hop.Uplink, ready, hop)
			p.reserveLink(n+down, hop.Downlink, ready, hop)
		} else {
			p.tl.nodes[n+up].res, p.tl.nodes[n+down].res = -1, -1
			p.tl.delays[n/perHop] = hop.XferEnd - hop.XferStart
		}
		nd := &p.tl.nodes[n]
		*nd = node{ready: hop.XferEnd, start: hop.Start, dur: hop.End - hop.Start, prev: -1, next: -1, res: hop.Device, arrived: h == 0}
		p.tl.insert(n)
		p.tl.recheck(n)
		ready = hop.End
	}
	p.tl.drain()
	for h := int32(len(pa.hops)); h < p.tl.hops; h++ {
		p.tl.nodes[p.tl.node(batch, int16(h), run)].res = -1
	}
}

func (p *Policy) reserveLink(n, link int32, ready time.Duration, hop *policy.Hop) {
	nd := &p.tl.nodes[n]
	*nd = node{ready: ready, start: hop.XferStart, dur: hop.XferEnd - hop.XferStart, prev: -1, next: -1, res: -1}
	if link >= 0 {
		nd.res = p.numDevices + link
		p.tl.insert(n)
		p.tl.recheck(n)
	}
}
