package artifact

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/underway"
	"inferplan/policy/waiting"
)

// Name is the policy's name in plans.
const Name = "artifact"

// farFuture is later than any other time.
const farFuture = underway.FarFuture

// Policy is the state of the artifact's dispatcher over one plan's tables. It implements policy.Policy.
type Policy struct {
	tables      *policy.Tables
	deviceTails []time.Duration // by device; farFuture if it is lost
	linkTails   []time.Duration // by link
	models      []modelState
	batches     *underway.BatchTable
	hops        []policy.Hop // path of the last batch that tryBatch tried
}

// modelState is the queue of a model and the time of its pending wake.
type modelState struct {
	queue       waiting.Queue
	pendingWake time.Duration
}

// candidatePath is the result of tryBatch: a path for a batch through a pipeline. Its hops are in Policy.hops.
type candidatePath struct {
	pipeline, batchSize int32
	finish, wait        time.Duration // completion, and time spent waiting for devices and links
}

// New returns the policy for a plan's tables, with all devices free. It has no parameters, so it returns an error if
// some are given.
func New(tables *policy.Tables, params map[string]float64) (*Policy, error) {
	if err := underway.RejectParameters(Name, params); err != nil {
		return nil, err
	}
	dispatcher := &Policy{
		tables: tables, deviceTails: make([]time.Duration, len(tables.Devices)), linkTails: make([]time.Duration, len(tables.Links)),
		models: make([]modelState, len(tables.Models)), batches: underway.New(tables), hops: make([]policy.Hop, 0, tables.MaxStages()),
	}
	for i := range dispatcher.models {
		dispatcher.models[i].pendingWake = farFuture
		dispatcher.models[i].queue.Grow()
	}
	return dispatcher, nil
}

// Handle decides what to do about one event: after most of them, what the queue of the model concerned does now. It
// implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.models[ev.Model].queue.Insert(waiting.Request{Deadline: ev.Deadline, ArrivedAt: ev.ArrivedAt, Req: ev.Req})
		p.decide(ev.Model, now, out)
	case policy.Timer:
		modelIndex := int32(ev.Value)
		p.models[modelIndex].pendingWake = farFuture
		p.decide(modelIndex, now, out)
	case policy.TransferFinished:
		p.batches.RecordArrival(ev)
	case policy.BatchFinished:
		p.batches.RecordFinish(ev)
	case policy.Cancel:
		if p.models[ev.Model].queue.Remove(ev.Req) {
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: policy.ReasonCancelled, Model: ev.Model, Req: ev.Req})
			p.decide(ev.Model, now, out)
		}
	case policy.WorkerLost:
		p.loseDevice(now, ev.Device, out)
	case policy.WorkerBack:
		if p.deviceTails[ev.Device] == farFuture {
			p.deviceTails[ev.Device] = now
			p.decideAll(now, out)
		}
	}
}

// decide serves, drops or keeps waiting the head of a model's queue (the request with the earliest deadline), until
// there is nothing more to do now. If it waits for a fuller batch, a timer is set.
func (p *Policy) decide(modelIndex int32, now time.Duration, out *policy.Actions) {
	model := &p.models[modelIndex]
	wake := farFuture
	for model.queue.Len > 0 {
		head := model.queue.At(0)

		// Choose the pipeline.
		pipeline, ok := p.choosePipeline(modelIndex, head.Deadline, now)
		if !ok {
			p.dropHead(modelIndex, policy.ReasonWorkerLost, out)
			continue
		}

		// Find the largest batch in time; at the first look, of nearly the planned size.
		plannedBatch := p.tables.Pipelines[pipeline].Batch
		minBatch := int32(1)
		if !head.PassedFirstLook {
			minBatch = max(1, int32(math.Round(underway.FirstLookShare*float64(plannedBatch))))
		}
		chosenPath, ok := p.largestBatch(pipeline, plannedBatch, minBatch, head.Deadline, now)
		if !ok {
			p.dropHead(modelIndex, policy.ReasonDeadline, out)
			continue
		}
		head.PassedFirstLook = true

		// If fewer requests wait, wait for more until a batch of one request more would be late.
		if waits := int32(model.queue.Len); waits < chosenPath.batchSize {
			largerPath := p.tryBatch(pipeline, waits+1, now)
			if largerPath.finish > head.Deadline {
				p.dropHead(modelIndex, policy.ReasonDeadline, out)
				continue
			}
			wake = now + head.Deadline - largerPath.finish + largerPath.wait + time.Microsecond
			break
		}
		p.dispatch(modelIndex, chosenPath, out)
	}

	// Set the wake if it changed.
	if wake != model.pendingWake {
		model.pendingWake = wake
		wakeAt := wake
		if wakeAt == farFuture {
			wakeAt = -1
		}
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: modelIndex, Tag: modelIndex, At: wakeAt})
	}
}

// choosePipeline returns the pipeline of a model that waits least at its planned batch. A pipeline of single requests
// that would be late counts as waiting an SLO longer. If no pipeline has a device left at every stage, it returns
// false.
func (p *Policy) choosePipeline(modelIndex int32, deadline, now time.Duration) (int32, bool) {
	firstPipeline, endPipeline := p.tables.PipelinesOf(modelIndex)
	bestPipeline, minWait := int32(-1), farFuture
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		candidate := p.tryBatch(pipeline, p.tables.Pipelines[pipeline].Batch, now)
		if candidate.finish >= farFuture {
			continue
		}

		// A late pipeline of single requests counts as waiting longer.
		wait := candidate.wait
		if candidate.batchSize == 1 && candidate.finish > deadline {
			wait += p.tables.Models[modelIndex].SLO
		}
		if wait < minWait {
			bestPipeline, minWait = pipeline, wait
		}
	}
	return bestPipeline, bestPipeline >= 0
}

// largestBatch returns the path of the largest batch through a pipeline, from maxBatch down to minBatch requests,
// that meets a deadline. If there is none, it returns false.
func (p *Policy) largestBatch(pipeline, maxBatch, minBatch int32, deadline, now time.Duration) (candidatePath, bool) {
	for batchSize := maxBatch; batchSize >= minBatch; batchSize-- {
		if candidate := p.tryBatch(pipeline, batchSize, now); candidate.finish <= deadline {
			return candidate, true
		}
	}
	return candidatePath{}, false
}

// tryBatch returns the path of a batch of batchSize requests through a pipeline: stage by stage the device that ends
// it first, behind the tails, the times up to which devices and links are reserved. Its hops are in p.hops. If a
// stage has no device left, finish is farFuture.
func (p *Policy) tryBatch(pipelineIndex, batchSize int32, now time.Duration) candidatePath {
	pipeline := &p.tables.Pipelines[pipelineIndex]
	p.hops = p.hops[:0]
	readyAt, workTime, uplink := now, time.Duration(0), int32(-1)
	for stageIndex := pipeline.FirstStage; stageIndex < pipeline.FirstStage+pipeline.NumStages; stageIndex++ {
		// Look up the times of the stage and of the transfer into it.
		stage := &p.tables.Stages[stageIndex]
		inferTime, transferTime := stage.Infer[batchSize-1], time.Duration(0)
		if stage.Xfer != nil {
			transferTime = stage.Xfer[batchSize-1]
		}
		sends := stageIndex+1 < pipeline.FirstStage+pipeline.NumStages
		workTime += inferTime + transferTime

		// Choose the device with the earliest finish, or the uplink's tail if that is later.
		bestHop, bestSortTime := policy.Hop{Device: -1}, farFuture
		for _, device := range p.tables.DevicesOf(stageIndex) {
			if p.deviceTails[device] == farFuture {
				continue
			}
			downlink := int32(-1)
			if transferTime > 0 {
				downlink = p.tables.Devices[device].Downlink
			}
			start := max(readyAt, p.linkTail(uplink), p.linkTail(downlink))
			hop := policy.Hop{Stage: stageIndex, Device: device, Uplink: uplink, Downlink: downlink, XferStart: start, XferEnd: start + transferTime}
			if transferTime == 0 {
				hop.XferStart, hop.XferEnd = readyAt, readyAt
			}
			hop.Start = max(hop.XferEnd, p.deviceTails[device])
			hop.End = hop.Start + inferTime
			sortTime := hop.End
			if sends {
				sortTime = max(sortTime, p.linkTail(p.tables.Devices[device].Uplink))
			}
			if sortTime < bestSortTime {
				bestHop, bestSortTime = hop, sortTime
			}
		}

		// Go on from its finish.
		if bestHop.Device < 0 {
			return candidatePath{pipelineIndex, batchSize, farFuture, farFuture}
		}
		p.hops = append(p.hops, bestHop)
		readyAt, uplink = bestHop.End, -1
		if sends && p.tables.Stages[stageIndex+1].Xfer != nil {
			uplink = p.tables.Devices[bestHop.Device].Uplink
		}
	}
	return candidatePath{pipelineIndex, batchSize, readyAt, readyAt - now - workTime}
}

// linkTail returns the tail of a link, the time at which its last reserved transfer ends; 0 if link is -1.
func (p *Policy) linkTail(link int32) time.Duration {
	if link < 0 {
		return 0
	}
	return p.linkTails[link]
}

// dispatch sends the first requests of a model's queue as a batch along the path in p.hops, and updates the tails:
// the times up to which devices and links are reserved.
func (p *Policy) dispatch(modelIndex int32, chosenPath candidatePath, out *policy.Actions) {
	for i := range p.hops {
		hop := p.hops[i]
		p.deviceTails[hop.Device] = hop.End
		for _, link := range [2]int32{hop.Uplink, hop.Downlink} {
			if link >= 0 {
				p.linkTails[link] = hop.XferEnd
			}
		}
		hop.Downlink = -1 // no transfer waits for it
		out.Hops = append(out.Hops, hop)
	}
	p.batches.Dispatch(&p.models[modelIndex].queue, modelIndex, chosenPath.pipeline, chosenPath.batchSize, 0, len(p.hops), out)
}

// dropHead drops the head of a model's queue (the request with the earliest deadline) for a reason.
func (p *Policy) dropHead(modelIndex int32, reason policy.DropReason, out *policy.Actions) {
	underway.DropHead(&p.models[modelIndex].queue, modelIndex, reason, out)
}

// loseDevice takes a lost device out of service, by a tail (end of its last reservation) of farFuture, and queues
// again the requests of batches that need it.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.deviceTails[device] == farFuture {
		return
	}
	p.deviceTails[device] = farFuture
	p.batches.AbortOnDevice(device, func(batch *underway.Batch) *waiting.Queue { return &p.models[batch.Model].queue }, out)
	p.decideAll(now, out)
}

// decideAll decides for all models, after an event that may concern any of them.
func (p *Policy) decideAll(now time.Duration, out *policy.Actions) {
	for modelIndex := range p.models {
		p.decide(int32(modelIndex), now, out)
	}
}
