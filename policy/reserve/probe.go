package reserve

import (
	"time"

	"inferplan/policy"
)

// reservedPath is the result of a search: a path through a pipeline and its reservations.
type path struct {
	pipeline int32
	batch    int32
	finish   time.Duration // completion; farFuture if a stage has no device left
	wait     time.Duration // time that it waits for devices and links: finish - now - work
	hold     time.Duration // by how much the dispatch has to be delayed, see the package comment
	pushes   bool          // it moves reservations, see push.go
	hops     []policy.Hop
}

// deviceCandidate is a device for one stage, with the reservations that it needs.
type candidate struct {
	device             int32
	up, down           int32 // resources of the transfer, or -1
	xferStart, xferEnd time.Duration
	start, finish      time.Duration
	key                time.Duration // the choice minimises it: the finish, or the start of the next transfer if that is later
	hold               time.Duration
	transfer           bool
	pushes             bool
}

// findPath finds a path of least completion for a batch through a pipeline (Algorithm 2): stage by stage, the
// device that completes the stage first. If the stage sends to another one, a completion before the node's uplink
// takes the transfer counts as one at that moment, which spreads batches over the NICs of nodes with several
// devices. Ties go to the first device.
func (f *finder) probe(pipeline, batch int32, now time.Duration, out *path) {
	pl := &f.t.Pipelines[pipeline]
	f.probes++
	out.pipeline, out.batch, out.hold, out.pushes = pipeline, batch, 0, false
	out.hops = out.hops[:pl.NumStages]
	t, work, from := now, time.Duration(0), int32(-1)
	var best candidate
	for h := int32(0); h < pl.NumStages; h++ {
		// Look up the times of the stage, of the transfer into it, and of the next transfer.
		stage := pl.FirstStage + h
		st := &f.t.Stages[stage]
		infer := st.Infer[batch-1]
		var xfer time.Duration
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		var sends time.Duration // transfer that the uplink carries next
		if h+1 < pl.NumStages && f.t.Stages[stage+1].Xfer != nil {
			sends = f.t.Stages[stage+1].Xfer[batch-1]
		}

		// Choose the device.
		if xfer > 0 {
			f.afterTransfer(st, from, t, infer, xfer, sends, &best)
		} else {
			f.earliest(st, now, t, infer, sends, &best)
		}
		if best.finish >= never {
			out.finish, out.wait = never, never
			return
		}

		// Add it to the path.
		if best.transfer {
			work += xfer
		}
		work += infer
		out.hold, out.pushes = max(out.hold, best.hold), out.pushes || best.pushes
		out.hops[h] = policy.Hop{
			Stage: stage, Device: best.device, Uplink: f.link(best.up), Downlink: f.link(best.down),
			XferStart: best.xferStart, XferEnd: best.xferEnd, Start: best.start, End: best.finish,
		}
		t, from = best.finish, best.device
	}
	out.finish = t
	out.wait = t - now - work
}

// Probes returns the number of paths sought so far. It implements policy.Prober.
func (f *finder) Probes() int64 { return f.probes }

// chooseDevice chooses among devices that the batch reaches at a time without a transfer.
func (f *finder) earliest(st *policy.Stage, now, ready, infer, sends time.Duration, best *candidate) {
	*best = candidate{key: never, finish: never, up: -1, down: -1, xferStart: ready, xferEnd: ready}
	spans := f.tl.spans
	for _, d := range f.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if sp.tail < now && sp.head >= 0 {
			f.tl.overrun(d, now)
		}

		// Find the start: behind everything, or in a gap.
		start, hold := max(ready, sp.tail), time.Duration(0)
		if ready <= sp.lastReady {
			start, hold = f.tl.slot(d, ready, infer, ready == now)
		}
		if start+infer > best.key {
			continue // it cannot be better, whatever its uplink
		}

		// Keep the device if it is better; none can be better than one that is free at once.
		finish := start + infer
		key := f.leaves(d, finish, sends)
		if key < best.key || key == best.key && finish < best.finish {
			best.device, best.start, best.finish, best.key, best.hold = d, start, finish, key, hold
			if key == ready+infer {
				break
			}
		}
	}
}

// transferSearch is the search for a device to which a batch's tensors are transferred.
type crossing struct {
	node               int32 // node that they leave
	uplink             int32
	upTail, upReady    time.Duration // summary of the uplink
	ready, infer, xfer time.Duration
	sends              time.Duration // transfer that the device's uplink carries next
}

// chooseDeviceAfterTransfer chooses among devices to which the batch's tensors are transferred. The batch left the
// stage's source device at readyAt.
func (f *finder) afterTransfer(st *policy.Stage, from int32, ready, infer, xfer, sends time.Duration, best *candidate) {
	x := crossing{node: f.t.Devices[from].Node, uplink: f.uplinks[from], ready: ready, infer: infer, xfer: xfer, sends: sends}
	best.key, best.finish, best.hold, best.pushes = never, never, 0, false
	spans := f.tl.spans
	if x.uplink >= 0 {
		x.upTail, x.upReady = spans[x.uplink].tail, spans[x.uplink].lastReady
	}
	// No transfer ends before earliestArrival.
	soonest := ready + xfer
	if ready >= x.upReady {
		soonest = max(ready, x.upTail) + xfer
	}
	if f.sameNode {
		soonest = ready
	}

	// Consider each device that could be better.
	least := never // sort time of the best device
	for _, d := range f.t.StageDevices[st.FirstDevice : st.FirstDevice+st.NumDevices] {
		sp := &spans[d]
		if soon := max(soonest, sp.tail) + infer; soon >= least && soonest >= sp.lastReady && (soon > least || x.sends == 0) {
			continue // it cannot be better, whatever its links
		}
		if x.look(f, d, best) {
			return
		}
		least = best.key
	}
}

// considerDevice replaces the best device by this one if it is better. It reports whether none can be better. The
// choice is written field by field, and only if it changes: this is the innermost loop of a decision.
func (x *crossing) look(f *finder, d int32, best *candidate) (done bool) {
	spans := f.tl.spans
	sp := &spans[d]
	up, down := x.uplink, f.downlinks[d]
	xferStart, xferEnd, hold, transfer, pushes := x.ready, x.ready, time.Duration(0), true, false

	// Find the times of the transfer: none within a node, a measured time on one host, else over the links.
	switch {
	case up >= 0 && f.sameNode && x.node == f.t.Devices[d].Node:
		up, down, transfer = -1, -1, false
	case up < 0 && down < 0: // on one host: the plan's measured time
		xferEnd += x.xfer
	default:
		xferStart = max(x.ready, x.upTail)
		odd := x.ready < x.upReady
		if down >= 0 {
			ds := &spans[down]
			xferStart = max(xferStart, ds.tail)
			odd = odd || x.ready < ds.lastReady
		}
		if odd {
			xferStart, hold, pushes = f.slotPair(up, down, x.ready, x.xfer)
		}
		xferEnd = xferStart + x.xfer
	}

	// Find the start of the run on the device.
	start := max(xferEnd, sp.tail)
	if xferEnd < sp.lastReady {
		var wait time.Duration
		start, wait = f.tl.slot(d, xferEnd, x.infer, false)
		hold = max(hold, wait)
	}
	finish := start + x.infer
	key := f.leaves(d, finish, x.sends)

	// Keep the better device.
	if key > best.key || key == best.key && finish >= best.finish {
		return false
	}
	best.device, best.up, best.down, best.transfer = d, up, down, transfer
	best.xferStart, best.xferEnd, best.start, best.finish = xferStart, xferEnd, start, finish
	best.key, best.hold, best.pushes = key, hold, pushes
	return key == x.ready+x.infer || transfer && key == x.ready+x.xfer+x.infer && !f.sameNode
}

// linkOfResource returns the index in Tables.Links of a link's resource.
func (f *finder) link(res int32) int32 {
	if res < 0 {
		return -1
	}
	return res - f.numDevices
}

// reservePath enters a path into the timelines as the reservations of a batch slot. If a later search found a
// device past its time, the timelines differ from the path; settling brings it in line.
func (f *finder) reserve(batch int32, pa *path, now time.Duration) {
	ready := now
	f.tl.work = f.tl.work[:0]
	for h := range pa.hops {
		hop := &pa.hops[h]
		n := f.tl.node(batch, int16(h), run)

		// Reserve the transfer into the hop.
		if hop.Uplink >= 0 || hop.Downlink >= 0 {
			f.reserveLink(n+up, hop.Uplink, ready, hop)
			f.reserveLink(n+down, hop.Downlink, ready, hop)
		} else {
			f.tl.nodes[n+up].res, f.tl.nodes[n+down].res = -1, -1
			f.tl.delays[n/perHop] = hop.XferEnd - hop.XferStart
		}

		// Reserve the device for the run.
		nd := &f.tl.nodes[n]
		*nd = node{ready: hop.XferEnd, start: hop.Start, dur: hop.End - hop.Start, prev: -1, next: -1, res: hop.Device, arrived: h == 0}
		f.tl.insert(n)
		f.tl.recheck(n)
		ready = hop.End
	}
	f.tl.drain()

	// Clear the hops that the pipeline does not have.
	for h := int32(len(pa.hops)); h < f.tl.hops; h++ {
		f.tl.nodes[f.tl.node(batch, int16(h), run)].res = -1
	}
}

// reserveLink enters one end of a transfer, if it uses a link.
func (f *finder) reserveLink(n, link int32, ready time.Duration, hop *policy.Hop) {
	nd := &f.tl.nodes[n]
	*nd = node{ready: ready, start: hop.XferStart, dur: hop.XferEnd - hop.XferStart, prev: -1, next: -1, res: -1}
	if link >= 0 {
		nd.res = f.numDevices + link
		f.tl.insert(n)
		f.tl.recheck(n)
	}
}
