package gear

import (
	"slices"
	"time"

	"inferplan/policy"
)

// chainFleet has the chains of devices, their queues, and the batches on their way. Batches are numbered by the
// device on which they start: if all models run whole on a device, batch and device have the same number.
type chainFleet struct {
	tables           *policy.Tables
	chains           []replicaChain // pipeline by pipeline
	chainDevices     []int32        // devices of the chains, chain by chain
	queues           []requestQueue // by chain
	devices          []deviceState
	devicesWithQueue []uint64     // set of devices, as bits: every device for which requests wait is in it
	batches          []chainBatch // slots, by the device on which they start
	batchRequests    []int32      // requests of the batches, maxBatch for each slot
	maxBatch         int32        // largest batch
}

// replicaChain is a replica of a pipeline: a device for each of its stages. It has a queue before its first
// device; behind that batches keep their order.
type replicaChain struct {
	pipeline      int32
	firstStage    int32 // first stage of the pipeline in policy.Tables
	firstIndex    int32 // index of its first device in chainFleet.chainDevices
	hopCount      int32
	activeBatches int32 // batches on their way
	maxBatches    int32 // limit of these: one at each stage and one between each two
	lostDevices   int32 // number of its devices that are lost
}

// chainBatch is a batch on its way along a chain.
type chainBatch struct {
	chain        int32
	size         int32
	hop          int32         // stage where it is, or to which it is transferred
	inTransfer   bool          // it is transferred to that stage
	inUse        bool          // the slot is in use
	firstRunTime time.Duration // planned time of its first run
}

// addChains makes the chains of all pipelines, when the policy is made: the devices of one replica, one for each
// stage. Each chain has a queue, and each device has slots for the batches that start on it. It returns the chains
// of each pipeline.
func (f *chainFleet) addChains() [][]int32 {
	t := f.tables
	chainsOf := make([][]int32, len(t.Pipelines))
	startingChains := make([][]int32, len(t.Devices))
	for i := range f.devices {
		// One slot for all chains of one stage, of which one runs at a time.
		f.devices[i].slotCount = 1
	}

	// Make the chains. A chain of several stages needs slots of its own on its first device.
	for m := range chainsOf {
		hops := t.Pipelines[m].NumStages
		for k := range t.ChainCount(int32(m)) {
			c := int32(len(f.chains))
			// A chain holds a batch per hop (stage) and one between each two: 2*hops - 1.
			f.chains = append(f.chains, replicaChain{pipeline: int32(m), firstStage: t.Pipelines[m].FirstStage, firstIndex: int32(len(f.chainDevices)), hopCount: hops, maxBatches: 2*hops - 1})
			for h := range hops {
				f.chainDevices = append(f.chainDevices, t.ChainDevice(int32(m), k, h))
			}
			d := f.firstDevice(c)
			if hops > 1 {
				f.devices[d].slotCount += 2*hops - 1
			}
			chainsOf[m], startingChains[d] = append(chainsOf[m], c), append(startingChains[d], c)
			f.queues = append(f.queues, requestQueue{head: noIndex, tail: noIndex})
		}
	}

	// Number the slots.
	slots := int32(0)
	for d := range f.devices {
		dev := &f.devices[d]
		dev.startingChains, dev.firstSlot = startingChains[d], slots
		slots += dev.slotCount
	}
	f.batches, f.batchRequests = make([]chainBatch, slots), make([]int32, slots*f.maxBatch)
	return chainsOf
}

// firstDevice returns the first device of a chain.
func (f *chainFleet) firstDevice(c int32) int32 { return f.chainDevices[f.chains[c].firstIndex] }

// devicesOf returns the devices of a chain, stage by stage.
func (f *chainFleet) devicesOf(c int32) []int32 {
	ch := &f.chains[c]
	return f.chainDevices[ch.firstIndex : ch.firstIndex+ch.hopCount]
}

// requestsOf returns the requests of a batch.
func (f *chainFleet) requestsOf(slot int32) []int32 {
	return f.batchRequests[slot*f.maxBatch : slot*f.maxBatch+f.batches[slot].size]
}

// freeSlot returns a free slot for a batch that starts on a device. There is always one: every chain of several
// stages has slots for all its batches, and the other chains share one, because a batch starts only if none is at
// work.
func (f *chainFleet) freeSlot(d int32) int32 {
	slot := f.devices[d].firstSlot
	for f.batches[slot].inUse {
		slot++
	}
	return slot
}

// dispatch sends the first requests of a chain's queue as a batch along the chain (one device for each stage), up
// to the planned batch. Times of the hops are estimates for an idle chain.
func (p *Policy) dispatch(now time.Duration, c int32, out *policy.Actions) {
	ch := &p.fleet.chains[c]
	pl, q := &p.fleet.tables.Pipelines[ch.pipeline], &p.fleet.queues[c]
	devices := p.fleet.devicesOf(c)
	slot, size := p.fleet.freeSlot(devices[0]), min(q.length, pl.Batch)

	// Take the requests from the queue.
	firstTask, hops := int32(len(out.Tasks)), int32(len(out.Hops))
	p.fleet.batches[slot] = chainBatch{chain: c, size: size, inUse: true}
	tasks := p.fleet.requestsOf(slot)
	out.Tasks = q.popInto(p.requests, tasks, out.Tasks)
	p.fleet.devices[devices[0]].activeBatches++
	ch.activeBatches++

	// Write hops and the action in place, which is faster: a copy of a new one would wait until its fields are stored.
	readyAt := now
	for h, d := range devices {
		out.Hops = append(out.Hops, policy.Hop{})
		hop := &out.Hops[len(out.Hops)-1]
		hop.Stage, hop.Device, hop.Uplink, hop.Downlink, hop.XferStart = pl.FirstStage+int32(h), d, noIndex, noIndex, readyAt
		if h > 0 {
			if transferTime := p.fleet.tables.TransferBetween(hop.Stage, size, devices[h-1], d); transferTime > 0 {
				hop.Uplink, hop.Downlink = p.fleet.tables.Devices[devices[h-1]].Uplink, p.fleet.tables.Devices[d].Downlink
				readyAt += transferTime
			}
		}
		hop.XferEnd, hop.Start = readyAt, readyAt
		readyAt += p.fleet.tables.Stages[hop.Stage].Infer[size-1]
		hop.End = readyAt

		// Count the work of the refusal rule.
		if p.refusals != nil {
			p.refusals.addRun(d, hop.Start, readyAt)
		}
		if h == 0 {
			p.fleet.batches[slot].firstRunTime = readyAt - now
		}
	}
	if p.refusals != nil {
		p.refusals.addBatch(p.requests, tasks)
	}
	out.List = append(out.List, policy.Action{})
	a := &out.List[len(out.List)-1]
	a.Kind, a.Pipeline, a.Model, a.Batch, a.Size, a.Device = policy.Dispatch, ch.pipeline, pl.Model, slot, size, devices[0]
	a.TaskFirst, a.HopFirst, a.HopCount = firstTask, hops, int16(ch.hopCount)
}

// batchArrived notes that a batch has reached the device of its next stage, which runs it before anything new.
func (f *chainFleet) batchArrived(slot int32) {
	b := &f.batches[slot]
	b.inTransfer = false
	f.devices[f.devicesOf(b.chain)[b.hop]].activeBatches++
}

// finishHop notes that a batch has finished a hop (a stage on its chain's device). It is then on its way to the
// next device, or over.
func (f *chainFleet) finishHop(slot int32) {
	b := &f.batches[slot]
	ch := &f.chains[b.chain]
	f.devices[f.chainDevices[ch.firstIndex+b.hop]].activeBatches--
	if b.hop++; b.hop < ch.hopCount {
		b.inTransfer = true
		return
	}
	b.inUse = false
	ch.activeBatches--
}

// needsDevice reports whether a batch still needs a device: it is there, comes from there, or has yet to go there.
func (f *chainFleet) needsDevice(b *chainBatch, d int32) bool {
	firstHop := b.hop
	if b.inTransfer {
		firstHop--
	}
	return slices.Contains(f.devicesOf(b.chain)[firstHop:], d)
}

// loseDevice takes a lost device out of service. Chains with this device serve nothing until it returns: their
// batches that still need it are aborted, and all their requests go to other replicas.
func (p *Policy) loseDevice(now time.Duration, d int32, out *policy.Actions) {
	if p.fleet.devices[d].isLost {
		return
	}
	p.fleet.devices[d].isLost = true
	p.lostDevices++
	for c := range p.fleet.chains {
		if slices.Contains(p.fleet.devicesOf(int32(c)), d) {
			p.fleet.chains[c].lostDevices++
		}
	}

	// Abort its batches.
	for slot := range p.fleet.batches {
		if b := &p.fleet.batches[slot]; b.inUse && p.fleet.needsDevice(b, d) {
			p.abortBatch(now, int32(slot), out)
		}
	}

	// Move the queues of its chains.
	for c := range p.fleet.queues {
		for p.fleet.chains[c].lostDevices > 0 && p.fleet.queues[c].head != noIndex {
			slot := p.fleet.queues[c].head
			p.removeFromQueue(slot)
			p.enqueue(now, slot, out)
		}
	}
	p.serveIdle(now, out)
}

// abortBatch aborts a batch that needs a lost device and queues its requests again, on other replicas. Requests
// whose client has gone away are dropped instead.
func (p *Policy) abortBatch(now time.Duration, slot int32, out *policy.Actions) {
	b := &p.fleet.batches[slot]
	if !b.inTransfer {
		p.fleet.devices[p.fleet.devicesOf(b.chain)[b.hop]].activeBatches--
	}
	b.inUse = false
	p.fleet.chains[b.chain].activeBatches--
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: slot})
	for _, r := range p.fleet.requestsOf(slot) {
		if p.requests[r].cancelled {
			p.dropRequest(r, policy.ReasonCancelled, out)
			continue
		}
		p.enqueue(now, r, out)
	}
}

// regainDevice returns a lost device to service. Chains without another lost device serve again.
func (p *Policy) regainDevice(d int32) {
	if !p.fleet.devices[d].isLost {
		return
	}
	p.fleet.devices[d].isLost = false
	p.lostDevices--
	for c := range p.fleet.chains {
		if slices.Contains(p.fleet.devicesOf(int32(c)), d) {
			p.fleet.chains[c].lostDevices--
		}
	}
}
