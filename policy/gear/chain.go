package gear

import (
	"slices"
	"time"

	"inferplan/policy"
)

// chainFleet has the chains of devices, their queues, and the batches on their way. Batches are numbered by the
// device on which they start: if all models run whole on a device, batch and device have the same number.
type fleet struct {
	t       *policy.Tables
	chains  []chain // pipeline by pipeline
	path    []int32 // devices of the chains, chain by chain
	queues  []queue // by chain
	devices []device
	queued  []uint64 // set of devices, as bits: every device for which requests wait is in it
	batches []batch  // slots, by the device on which they start
	running []int32  // requests of the batches, maxBatch for each slot
	most    int32    // largest batch
}

// replicaChain is a replica of a pipeline: a device for each of its stages. It has a queue before its first
// device; behind that batches keep their order.
type chain struct {
	pipeline int32
	stage    int32 // first stage of the pipeline in policy.Tables
	first    int32 // index of its first device in chainFleet.chainDevices
	hops     int32
	under    int32 // batches on their way
	most     int32 // limit of these: one at each stage and one between each two
	lost     int32 // number of its devices that are lost
}

// chainBatch is a batch on its way along a chain.
type batch struct {
	chain   int32
	size    int32
	hop     int32         // stage where it is, or to which it is transferred
	crosses bool          // it is transferred to that stage
	live    bool          // the slot is in use
	first   time.Duration // planned time of its first run
}

// addChains makes the chains of all pipelines, with their queues and with slots for their batches. It returns the
// chains of each pipeline.
func (f *fleet) addChains() [][]int32 {
	t := f.t
	of := make([][]int32, len(t.Pipelines))
	starts := make([][]int32, len(t.Devices))
	for i := range f.devices {
		f.devices[i].room = 1
	}

	// Make the chains. A chain of several stages needs slots of its own on its first device.
	for m := range of {
		hops := t.Pipelines[m].NumStages
		for k := range t.Chains(int32(m)) {
			c := int32(len(f.chains))
			f.chains = append(f.chains, chain{pipeline: int32(m), stage: t.Pipelines[m].FirstStage, first: int32(len(f.path)), hops: hops, most: 2*hops - 1})
			for h := range hops {
				f.path = append(f.path, t.ChainDevice(int32(m), k, h))
			}
			d := f.startOf(c)
			if hops > 1 {
				f.devices[d].room += 2*hops - 1
			}
			of[m], starts[d] = append(of[m], c), append(starts[d], c)
			f.queues = append(f.queues, queue{head: none, tail: none})
		}
	}

	// Number the slots.
	slots := int32(0)
	for d := range f.devices {
		dev := &f.devices[d]
		dev.starts, dev.slot = starts[d], slots
		slots += dev.room
	}
	f.batches, f.running = make([]batch, slots), make([]int32, slots*f.most)
	return of
}

// firstDevice returns the first device of a chain.
func (f *fleet) startOf(c int32) int32 { return f.path[f.chains[c].first] }

// devicesOf returns the devices of a chain, stage by stage.
func (f *fleet) devicesOf(c int32) []int32 {
	ch := &f.chains[c]
	return f.path[ch.first : ch.first+ch.hops]
}

// requestsOf returns the requests of a batch.
func (f *fleet) members(slot int32) []int32 {
	return f.running[slot*f.most : slot*f.most+f.batches[slot].size]
}

// freeSlot returns a free slot for a batch that starts on a device. There is always one: every chain of several
// stages has slots for all its batches, and the other chains share one, because a batch starts only if none is at
// work.
func (f *fleet) freeSlot(d int32) int32 {
	slot := f.devices[d].slot
	for f.batches[slot].live {
		slot++
	}
	return slot
}

// dispatch sends the head of a queue along its chain.
func (p *Policy) dispatch(now time.Duration, c int32, out *policy.Actions) {
	ch := &p.chains[c]
	pl, q := &p.t.Pipelines[ch.pipeline], &p.queues[c]
	devices := p.devicesOf(c)
	slot, size := p.freeSlot(devices[0]), min(q.length, pl.Batch)

	// Take the requests from the queue.
	first, hops := int32(len(out.Tasks)), int32(len(out.Hops))
	p.batches[slot] = batch{chain: c, size: size, live: true}
	tasks := p.members(slot)
	out.Tasks = q.pop(p.requests, tasks, out.Tasks)
	p.devices[devices[0]].work++
	ch.under++

	// Write hops and the action in place, which is faster: a copy of a new one would wait until its fields are stored.
	at := now
	for h, d := range devices {
		out.Hops = append(out.Hops, policy.Hop{})
		hop := &out.Hops[len(out.Hops)-1]
		hop.Stage, hop.Device, hop.Uplink, hop.Downlink, hop.XferStart = pl.FirstStage+int32(h), d, none, none, at
		if h > 0 {
			if took := p.t.TransferBetween(hop.Stage, size, devices[h-1], d); took > 0 {
				hop.Uplink, hop.Downlink = p.t.Devices[devices[h-1]].Uplink, p.t.Devices[d].Downlink
				at += took
			}
		}
		hop.XferEnd, hop.Start = at, at
		at += p.t.Stages[hop.Stage].Infer[size-1]
		hop.End = at

		// Count the work of the refusal rule.
		if p.shed != nil {
			p.shed.runs(d, hop.Start, at)
		}
		if h == 0 {
			p.batches[slot].first = at - now
		}
	}
	if p.shed != nil {
		p.shed.goes(p.requests, tasks)
	}
	out.List = append(out.List, policy.Action{})
	a := &out.List[len(out.List)-1]
	a.Kind, a.Pipeline, a.Model, a.Batch, a.Size, a.Device = policy.Dispatch, ch.pipeline, pl.Model, slot, size, devices[0]
	a.TaskFirst, a.HopFirst, a.HopCount = first, hops, int16(ch.hops)
}

// batchArrived notes that a batch has reached the device of its next stage, which runs it before anything new.
func (f *fleet) reached(slot int32) {
	b := &f.batches[slot]
	b.crosses = false
	f.devices[f.devicesOf(b.chain)[b.hop]].work++
}

// finishHop notes that a batch has finished a stage.
func (f *fleet) left(slot int32) {
	b := &f.batches[slot]
	ch := &f.chains[b.chain]
	f.devices[f.path[ch.first+b.hop]].work--
	if b.hop++; b.hop < ch.hops {
		b.crosses = true
		return
	}
	b.live = false
	ch.under--
}

// needsDevice reports whether a batch still needs a device: it is there, comes from there, or has yet to go there.
func (f *fleet) needs(b *batch, d int32) bool {
	from := b.hop
	if b.crosses {
		from--
	}
	return slices.Contains(f.devicesOf(b.chain)[from:], d)
}

// loseDevice takes a device out of service and moves the batches and requests that need it.
func (p *Policy) lose(now time.Duration, d int32, out *policy.Actions) {
	if p.devices[d].down {
		return
	}
	p.devices[d].down = true
	p.gone++
	for c := range p.chains {
		if slices.Contains(p.devicesOf(int32(c)), d) {
			p.chains[c].lost++
		}
	}

	// Abort its batches.
	for slot := range p.batches {
		if b := &p.batches[slot]; b.live && p.needs(b, d) {
			p.abort(now, int32(slot), out)
		}
	}

	// Move the queues of its chains.
	for c := range p.queues {
		for p.chains[c].lost > 0 && p.queues[c].head != none {
			slot := p.queues[c].head
			p.remove(slot)
			p.send(now, slot, out)
		}
	}
	p.serveIdle(now, out)
}

// abortBatch aborts a batch and queues its requests again.
func (p *Policy) abort(now time.Duration, slot int32, out *policy.Actions) {
	b := &p.batches[slot]
	if !b.crosses {
		p.devices[p.devicesOf(b.chain)[b.hop]].work--
	}
	b.live = false
	p.chains[b.chain].under--
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: slot})
	for _, r := range p.members(slot) {
		if p.requests[r].cancelled {
			p.drop(r, policy.ReasonCancelled, out)
			continue
		}
		p.send(now, r, out)
	}
}

// regainDevice returns a device to service.
func (p *Policy) regain(d int32) {
	if !p.devices[d].down {
		return
	}
	p.devices[d].down = false
	p.gone--
	for c := range p.chains {
		if slices.Contains(p.devicesOf(int32(c)), d) {
			p.chains[c].lost--
		}
	}
}
