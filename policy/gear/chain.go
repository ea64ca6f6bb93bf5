package gear

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/slots"
)

// chainFleet has the chains of devices (a device for each stage of a pipeline), their queues, and the batches on
// their way. Batches have slots (numbers that are used again) by the device on which they start: if all models run
// whole on a device, batch and device have the same number.
type chainFleet struct {
	tables           *policy.Tables
	chains           []replicaChain // pipeline by pipeline
	chainDevices     []int32        // devices of the chains, chain by chain
	queues           []slots.List   // by chain: slots of its requests
	queueLinks       slots.Links    // of the queues, by slot of a request
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

// chainBatch is a batch on its way along a chain. A hop is a stage of the pipeline on the chain's device.
type chainBatch struct {
	chain        int32
	size         int32
	hop          int32         // stage where it is, or to which it is transferred
	inTransfer   bool          // it is transferred to that stage
	isLive       bool          // the batch is under way; otherwise its slot is free
	firstRunTime time.Duration // planned time of its first run
}

// makeChains makes, when the policy is made, the chains of all pipelines. A replica of a pipeline is a chain: one
// device for each stage. Each chain has a queue, and each device has slots (numbers of batches) for the batches that
// start on it. It returns the chains of each pipeline.
func (f *chainFleet) makeChains() [][]int32 {
	tables := f.tables
	chainsOf := make([][]int32, len(tables.Pipelines))
	startingChains := make([][]int32, len(tables.Devices))
	for i := range f.devices {
		// One slot serves all chains of a single stage that start on the device: only one of their batches runs at a time.
		f.devices[i].slotCount = 1
	}

	// Make the chains, with an empty queue each. At most 2*hops - 1 batches are under way on a chain: one at each hop
	// (stage) and one between each two. A chain of several stages adds as many slots to its first device.
	for pipeline := range chainsOf {
		hops := tables.Pipelines[pipeline].NumStages
		for replica := range tables.ChainCount(int32(pipeline)) {
			chain := int32(len(f.chains))
			maxBatches := 2*hops - 1
			f.chains = append(f.chains, replicaChain{pipeline: int32(pipeline), firstStage: tables.Pipelines[pipeline].FirstStage, firstIndex: int32(len(f.chainDevices)), hopCount: hops, maxBatches: maxBatches})
			for hop := range hops {
				f.chainDevices = append(f.chainDevices, tables.ChainDevice(int32(pipeline), replica, hop))
			}
			device := f.firstDevice(chain)
			if hops > 1 {
				f.devices[device].slotCount += maxBatches
			}
			chainsOf[pipeline] = append(chainsOf[pipeline], chain)
			startingChains[device] = append(startingChains[device], chain)
			f.queues = append(f.queues, slots.EmptyList)
		}
	}

	// Number the slots, device by device.
	batchSlots := int32(0)
	for device := range f.devices {
		deviceRow := &f.devices[device]
		deviceRow.startingChains, deviceRow.firstSlot = startingChains[device], batchSlots
		batchSlots += deviceRow.slotCount
	}
	f.batches, f.batchRequests = make([]chainBatch, batchSlots), make([]int32, batchSlots*f.maxBatch)
	return chainsOf
}

// firstDevice returns the first device of a chain (a device for each stage of a pipeline), where its batches start.
func (f *chainFleet) firstDevice(chain int32) int32 {
	return f.chainDevices[f.chains[chain].firstIndex]
}

// devicesOf returns the devices of a chain, one for each stage of its pipeline.
func (f *chainFleet) devicesOf(chain int32) []int32 {
	chainRow := &f.chains[chain]
	return f.chainDevices[chainRow.firstIndex : chainRow.firstIndex+chainRow.hopCount]
}

// requestsOf returns the request slots of the batch in a slot.
func (f *chainFleet) requestsOf(batchSlot int32) []int32 {
	return f.batchRequests[batchSlot*f.maxBatch : batchSlot*f.maxBatch+f.batches[batchSlot].size]
}

// freeSlot returns a free slot (number) for a batch that starts on a device. There is always one: every chain of
// several stages has slots for all its batches, and the other chains share one, because a batch starts only if none
// is at work.
func (f *chainFleet) freeSlot(device int32) int32 {
	batchSlot := f.devices[device].firstSlot
	for f.batches[batchSlot].isLive {
		batchSlot++
	}
	return batchSlot
}

// dispatch is called for an idle device and the chain that it serves next. It sends the first requests of the chain's
// queue, up to the planned batch size, as a batch along the chain (one device for each stage). The times of the hops
// (stages on devices) are those of a chain on which nothing else runs.
func (p *Policy) dispatch(now time.Duration, chain int32, out *policy.Actions) {
	chainRow := &p.fleet.chains[chain]
	pipeline, queue := &p.fleet.tables.Pipelines[chainRow.pipeline], &p.fleet.queues[chain]
	devices := p.fleet.devicesOf(chain)
	batchSlot, size := p.fleet.freeSlot(devices[0]), min(queue.Len, pipeline.Batch)

	// Take the requests from the queue.
	firstTask, hops := int32(len(out.Tasks)), int32(len(out.Hops))
	p.fleet.batches[batchSlot] = chainBatch{chain: chain, size: size, isLive: true}
	tasks := p.fleet.requestsOf(batchSlot)
	for i := range tasks {
		tasks[i] = queue.First
		p.removeFromQueue(tasks[i])
	}
	out.Tasks = append(out.Tasks, tasks...)
	p.fleet.devices[devices[0]].activeBatches++
	chainRow.activeBatches++

	// Write hops and the action in place, which is faster: a copy of a new one would wait until its fields are stored.
	readyAt := now
	for hopIndex, device := range devices {
		out.Hops = append(out.Hops, policy.Hop{})
		hop := &out.Hops[len(out.Hops)-1]
		hop.Stage, hop.Device, hop.Uplink, hop.Downlink, hop.XferStart = pipeline.FirstStage+int32(hopIndex), device, noIndex, noIndex, readyAt
		if hopIndex > 0 {
			if transferTime := p.fleet.tables.TransferBetween(hop.Stage, size, devices[hopIndex-1], device); transferTime > 0 {
				hop.Uplink, hop.Downlink = p.fleet.tables.Devices[devices[hopIndex-1]].Uplink, p.fleet.tables.Devices[device].Downlink
				readyAt += transferTime
			}
		}
		hop.XferEnd, hop.Start = readyAt, readyAt
		readyAt += p.fleet.tables.Stages[hop.Stage].Infer[size-1]
		hop.End = readyAt

		// Tell the refusal rule how long the device is busy. The first run also gets its planned time.
		if p.refusals != nil {
			p.refusals.addRun(device, hop.Start, readyAt)
		}
		if hopIndex == 0 {
			p.fleet.batches[batchSlot].firstRunTime = readyAt - now
		}
	}
	if p.refusals != nil {
		p.refusals.addBatch(p.requests, tasks)
	}
	out.List = append(out.List, policy.Action{})
	action := &out.List[len(out.List)-1]
	action.Kind, action.Pipeline, action.Model, action.Batch, action.Size, action.Device = policy.Dispatch, chainRow.pipeline, pipeline.Model, batchSlot, size, devices[0]
	action.TaskFirst, action.HopFirst, action.HopCount = firstTask, hops, int16(chainRow.hopCount)
}

// batchArrived is called for the event TransferFinished: the batch in a slot has reached the device of its next stage,
// which runs it before it starts anything new.
func (f *chainFleet) batchArrived(batchSlot int32) {
	batch := &f.batches[batchSlot]
	batch.inTransfer = false
	f.devices[f.devicesOf(batch.chain)[batch.hop]].activeBatches++
}

// finishHop is called for the event BatchFinished: the batch in a slot has finished a hop (a stage on its chain's device).
// It is then on its way to the next device or, behind the last hop, over, and its slot is free.
func (f *chainFleet) finishHop(batchSlot int32) {
	batch := &f.batches[batchSlot]
	chainRow := &f.chains[batch.chain]
	f.devices[f.chainDevices[chainRow.firstIndex+batch.hop]].activeBatches--
	batch.hop++
	if batch.hop < chainRow.hopCount {
		batch.inTransfer = true
		return
	}
	batch.isLive = false
	chainRow.activeBatches--
}

// needsDevice reports whether a batch still needs a device: it is there, comes from there, or has yet to go there.
func (f *chainFleet) needsDevice(batch *chainBatch, device int32) bool {
	firstHop := batch.hop
	if batch.inTransfer {
		firstHop-- // its tensors are still on the device before
	}
	return slices.Contains(f.devicesOf(batch.chain)[firstHop:], device)
}

// loseDevice is called for the event WorkerLost. It takes a lost device out of service. Chains with this device serve
// nothing until it returns: their batches that still need it are aborted, and all their requests go to other replicas.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.fleet.devices[device].isLost {
		return
	}
	p.fleet.devices[device].isLost = true
	p.lostDevices++
	for chain := range p.fleet.chains {
		if slices.Contains(p.fleet.devicesOf(int32(chain)), device) {
			p.fleet.chains[chain].lostDevices++
		}
	}

	// Abort its batches.
	for slot := range p.fleet.batches {
		if batch := &p.fleet.batches[slot]; batch.isLive && p.fleet.needsDevice(batch, device) {
			p.abortBatch(now, int32(slot), out)
		}
	}

	// Move the queues of its chains. The head leaves its queue each time, and enqueue chooses another chain.
	for chain := range p.fleet.queues {
		for p.fleet.chains[chain].lostDevices > 0 && p.fleet.queues[chain].First != noIndex {
			slot := p.fleet.queues[chain].First
			p.removeFromQueue(slot)
			p.enqueue(now, slot, out)
		}
	}
	p.serveIdle(now, out)
}

// abortBatch aborts a batch that needs a lost device and queues its requests again, on other replicas. Requests
// whose client has gone away are dropped instead.
func (p *Policy) abortBatch(now time.Duration, batchSlot int32, out *policy.Actions) {
	batch := &p.fleet.batches[batchSlot]
	if !batch.inTransfer {
		p.fleet.devices[p.fleet.devicesOf(batch.chain)[batch.hop]].activeBatches--
	}
	batch.isLive = false
	p.fleet.chains[batch.chain].activeBatches--
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: batchSlot})
	for _, requestSlot := range p.fleet.requestsOf(batchSlot) {
		if p.requests[requestSlot].cancelled {
			p.dropRequest(requestSlot, policy.ReasonCancelled, out)
			continue
		}
		p.enqueue(now, requestSlot, out)
	}
}

// regainDevice returns a lost device to service. Chains without another lost device serve again.
func (p *Policy) regainDevice(device int32) {
	if !p.fleet.devices[device].isLost {
		return
	}
	p.fleet.devices[device].isLost = false
	p.lostDevices--
	for chain := range p.fleet.chains {
		if slices.Contains(p.fleet.devicesOf(int32(chain)), device) {
			p.fleet.chains[chain].lostDevices--
		}
	}
}
