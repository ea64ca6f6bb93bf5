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
func (f *finder) probe(pipeline, batch int32, now time.Duration, out *path) {
	pl := &f.t.Pipelines[pipeline]
	f.probes++
	out.pipeline, out.batch, out.hold = pipeline, batch, 0
	out.hops = out.hops[:pl.NumStages]
	t, work, from := now, time.Duration(0), int32(-1)
	for h := int32(0); h < pl.NumStages; h++ {
		stage := pl.FirstStage + h
		st := &f.t.Stages[stage]
		infer := st.Infer[batch-1]
		var xfer time.Duration
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		sends := h+1 < pl.NumStages && f.t.Stages[stage+1].Xfer != nil
		var best candidate
		if xfer > 0 {
			best = f.afterTransfer(st, from, t, infer, xfer, sends)
		} else {
			best = f.earliest(st, now, t, infer, sends)
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
			Stage: stage, Device: best.device, Uplink: f.link(best.up), Downlink: f.link(best.down),
			XferStart: best.xferStart, XferEnd: best.xferEnd, Start: best.start, End: best.finish,
		}
		t, from = best.finish, best.device
	}
	out.finish = t
	out.wait = t - now - work
}

// Probes is how many paths were looked for so far.
func (f *finder) Probes() int64 { return f.probes }

// earliest is the choice among devices that the batch reaches at ready without
// a transfer.
func (f *finder) earliest(st *policy.Stage, now, ready, infer time.Duration, sends bool) candidate {
	best := candidate{key: never, finish: never, up: -1, down: -1, xferStart: ready, xferEnd: ready}
	spans := f.tl.spans
	for _, d := range f.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if sp.tail < now && sp.head >= 0 {
			f.tl.overrun(d, now)
		}
		start, hold := max(ready, sp.tail), time.Duration(0)
		if ready <= sp.lastReady {
			start, hold = f.tl.slot(d, ready, infer, ready == now)
		}
		if start+infer > best.key {
			continue // whatever its uplink says
		}
		finish := start + infer
		key := finish
		if sends {
			if link := f.uplinks[d]; link >= 0 {
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

// crossing is a search among the devices to which a batch's tensors cross.
type crossing struct {
	node               int32 // that they leave
	uplink             int32
	upTail, upReady    time.Duration // of the uplink
	ready, infer, xfer time.Duration
	sends              bool
	best               candidate
}

// afterTransfer is the choice among devices to which the batch's tensors cross
// from device from, whose stage it left at ready.
func (f *finder) afterTransfer(st *policy.Stage, from int32, ready, infer, xfer time.Duration, sends bool) candidate {
	x := crossing{node: f.t.Devices[from].Node, uplink: f.uplinks[from], ready: ready, infer: infer, xfer: xfer, sends: sends}
	x.best.key, x.best.finish = never, never
	spans := f.tl.spans
	if x.uplink >= 0 {
		x.upTail, x.upReady = spans[x.uplink].tail, spans[x.uplink].lastReady
	}
	// No transfer ends before soonest.
	soonest := ready + xfer
	if ready >= x.upReady {
		soonest = max(ready, x.upTail) + xfer
	}
	if f.sameNode {
		soonest = ready
	}
	least := never // key of what would be as good as the best
	for _, d := range f.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if soon := max(soonest, sp.tail) + infer; soon >= least && soonest >= sp.lastReady && (soon > least || !sends) {
			continue // whatever its links say
		}
		if x.look(f, d) {
			break
		}
		least = x.best.key
	}
	return x.best
}

// look takes a device where it is better than the best so far. It tells whether
// none can be better.
func (x *crossing) look(f *finder, d int32) (done bool) {
	spans := f.tl.spans
	sp := &spans[d]
	up, down := x.uplink, f.downlinks[d]
	var c candidate
	switch {
	case up >= 0 && f.sameNode && x.node == f.t.Devices[d].Node:
		up, down = -1, -1
		c.xferStart, c.xferEnd = x.ready, x.ready
	case up < 0 && down < 0: // on one host, by a measured time
		c.xferStart, c.xferEnd = x.ready, x.ready+x.xfer
		c.transfer = true
	default:
		c.transfer = true
		start := max(x.ready, x.upTail)
		odd := x.ready < x.upReady
		if down >= 0 {
			ds := &spans[down]
			start = max(start, ds.tail)
			odd = odd || x.ready < ds.lastReady
		}
		if odd {
			start, c.hold = f.tl.slotPair(up, down, x.ready, x.xfer)
		}
		c.xferStart, c.xferEnd = start, start+x.xfer
	}
	c.start = max(c.xferEnd, sp.tail)
	if c.xferEnd < sp.lastReady {
		var hold time.Duration
		c.start, hold = f.tl.slot(d, c.xferEnd, x.infer, false)
		c.hold = max(c.hold, hold)
	}
	c.finish = c.start + x.infer
	c.key = c.finish
	if x.sends {
		if link := f.uplinks[d]; link >= 0 {
			c.key = max(c.key, spans[link].tail)
		}
	}
	if c.key < x.best.key || c.key == x.best.key && c.finish < x.best.finish {
		c.device, c.up, c.down = d, up, down
		x.best = c
		return c.key == x.ready+x.infer || c.transfer && c.key == x.ready+x.xfer+x.infer && !f.sameNode
	}
	return false
}

// link is the index in Tables.Links of a link's resource.
func (f *finder) link(res int32) int32 {
	if res < 0 {
		return -1
	}
	return res - f.numDevices
}

// reserve enters a path into the timelines as the reservations of a batch slot.
// Where a probe after the path's own found a device past its time, the
// timelines have moved on from what the path says; settling brings it in line.
func (f *finder) reserve(batch int32, pa *path, now time.Duration) {
	ready := now
	f.tl.work = f.tl.work[:0]
	for h := range pa.hops {
		hop := &pa.hops[h]
		n := f.tl.node(batch, int16(h), run)
		if hop.Uplink >= 0 || hop.Downlink >= 0 {
			f.reserveLink(n+up, hop.Uplink, ready, hop)
			f.reserveLink(n+down, hop.Downlink, ready, hop)
		} else {
			f.tl.nodes[n+up].res, f.tl.nodes[n+down].res = -1, -1
			f.tl.delays[n/perHop] = hop.XferEnd - hop.XferStart
		}
		nd := &f.tl.nodes[n]
		*nd = node{ready: hop.XferEnd, start: hop.Start, dur: hop.End - hop.Start, prev: -1, next: -1, res: hop.Device, arrived: h == 0}
		f.tl.insert(n)
		f.tl.recheck(n)
		ready = hop.End
	}
	f.tl.drain()
	for h := int32(len(pa.hops)); h < f.tl.hops; h++ {
		f.tl.nodes[f.tl.node(batch, int16(h), run)].res = -1
	}
}

func (f *finder) reserveLink(n, link int32, ready time.Duration, hop *policy.Hop) {
	nd := &f.tl.nodes[n]
	*nd = node{ready: ready, start: hop.XferStart, dur: hop.XferEnd - hop.XferStart, prev: -1, next: -1, res: -1}
	if link >= 0 {
		nd.res = f.numDevices + link
		f.tl.insert(n)
		f.tl.recheck(n)
	}
}
