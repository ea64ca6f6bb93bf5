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
	triedHops   []policy.Hop // path of the last batch that tryBatch tried; dispatch sends a batch along it
}

// modelState is the queue of a model and the time of its pending wake.
type modelState struct {
	queue       waiting.Queue
	pendingWake time.Duration
}

// candidatePath is the result of tryBatch: a path for a batch through a pipeline. Its hops (a device for each stage, with
// the transfer to it) are in Policy.triedHops.
type candidatePath struct {
	pipeline, batchSize int32
	finish              time.Duration // when the batch ends at the last stage; farFuture if a stage has no device left
	waitTime            time.Duration // time that it waits for devices and links: finish - now - work
}

// New returns the policy for a plan's tables, with all devices free. It has no parameters, so it returns an error if
// some are given.
func New(tables *policy.Tables, params map[string]float64) (*Policy, error) {
	if err := underway.RejectParameters(Name, params); err != nil {
		return nil, err
	}
	dispatcher := &Policy{
		tables: tables, deviceTails: make([]time.Duration, len(tables.Devices)), linkTails: make([]time.Duration, len(tables.Links)),
		models: make([]modelState, len(tables.Models)), batches: underway.New(tables), triedHops: make([]policy.Hop, 0, tables.MaxStages()),
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
		modelIndex := int32(ev.Value) // the tag with which decide set the timer
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

// decide is called after an event that concerns a model. It serves, drops or keeps waiting the head of the model's queue
// (the request with the earliest deadline), again and again until the queue is empty or the head waits. If it waits for
// a fuller batch, a timer is set, at which decide is called again.
func (p *Policy) decide(modelIndex int32, now time.Duration, out *policy.Actions) {
	model := &p.models[modelIndex]
	wake := farFuture
	for model.queue.Len > 0 {
		head := model.queue.At(0)

		// Choose the pipeline. Without a device at every stage of one, no request can be served.
		pipeline, ok := p.choosePipeline(modelIndex, head.Deadline, now)
		if !ok {
			p.dropHead(modelIndex, policy.ReasonWorkerLost, out)
			continue
		}

		// Find the largest batch that meets the head's deadline. At the first look (the first decision about this head) only
		// batches of nearly the planned size count, so that an overload does not lead to small, inefficient batches.
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

		// That batch may take more requests than wait. Then wait for more, until a batch of one request more would be late.
		// That batch could go later by the time between its end and the deadline. It could also go later by the time that it
		// would wait for devices and links, because it then waits less there and ends at the same time. The timer is set a
		// microsecond after that: by then such a batch is late, and the requests that wait are sent. If it is late already,
		// PPipe's artifact drops the head, although a smaller batch might be in time.
		if waitingRequests := int32(model.queue.Len); waitingRequests < chosenPath.batchSize {
			largerPath := p.tryBatch(pipeline, waitingRequests+1, now)
			if largerPath.finish > head.Deadline {
				p.dropHead(modelIndex, policy.ReasonDeadline, out)
				continue
			}
			wake = now + (head.Deadline - largerPath.finish) + largerPath.waitTime + time.Microsecond
			break
		}
		p.dispatchTried(modelIndex, chosenPath, out)
	}

	underway.SetWake(&model.pendingWake, modelIndex, wake, out)
}

// choosePipeline returns the pipeline of a model that waits least at its planned batch. As in PPipe's artifact, a
// pipeline whose planned batch is one request counts as waiting an SLO longer if that request would be late; pipelines
// with larger planned batches do not. If no pipeline has a device left at every stage, it returns false.
func (p *Policy) choosePipeline(modelIndex int32, deadline, now time.Duration) (int32, bool) {
	firstPipeline, endPipeline := p.tables.PipelinesOf(modelIndex)
	bestPipeline, minWait := int32(-1), farFuture
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		plannedBatch := p.tables.Pipelines[pipeline].Batch
		candidate := p.tryBatch(pipeline, plannedBatch, now)
		if candidate.finish >= farFuture {
			continue
		}

		// A late pipeline that serves requests one by one counts as waiting longer.
		waitTime := candidate.waitTime
		if plannedBatch == 1 && candidate.finish > deadline {
			waitTime += p.tables.Models[modelIndex].SLO
		}
		if waitTime < minWait {
			bestPipeline, minWait = pipeline, waitTime
		}
	}
	return bestPipeline, bestPipeline >= 0
}

// largestBatch returns the path of the largest batch through a pipeline, from maxBatch down to minBatch requests,
// that meets a deadline; the hops of that path are then in p.triedHops. If there is none, it returns false.
func (p *Policy) largestBatch(pipeline, maxBatch, minBatch int32, deadline, now time.Duration) (candidatePath, bool) {
	for batchSize := maxBatch; batchSize >= minBatch; batchSize-- {
		if candidate := p.tryBatch(pipeline, batchSize, now); candidate.finish <= deadline {
			return candidate, true
		}
	}
	return candidatePath{}, false
}

// tryBatch returns the path of a batch of batchSize requests through a pipeline, if it went now: for each stage, in order,
// the device that the batch can leave earliest. Work starts at the tails, the times up to which devices and links are
// reserved. tryBatch reserves nothing, and leaves the hops of the path (a device for each stage, with the transfer to it)
// in p.triedHops. If a stage has no device left, finish and waitTime are farFuture.
func (p *Policy) tryBatch(pipelineIndex, batchSize int32, now time.Duration) candidatePath {
	pipeline := &p.tables.Pipelines[pipelineIndex]
	p.triedHops = p.triedHops[:0]
	readyAt, workTime := now, time.Duration(0) // when the batch leaves the stage before, and its work so far
	uplink := int32(-1)                        // the link on which it leaves that stage, or -1
	for stageIndex := pipeline.FirstStage; stageIndex < pipeline.FirstStage+pipeline.NumStages; stageIndex++ {
		// Look up the times of the stage and of the transfer into it.
		stage := &p.tables.Stages[stageIndex]
		inferTime, transferTime := stage.Infer[batchSize-1], time.Duration(0)
		if stage.Xfer != nil {
			transferTime = stage.Xfer[batchSize-1]
		}
		hasNextStage := stageIndex+1 < pipeline.FirstStage+pipeline.NumStages
		workTime += inferTime + transferTime

		// Choose the device that the batch can leave earliest: at its finish or, if another stage follows, at the tail of
		// the device's uplink if that is later.
		bestHop, earliestDeparture := policy.Hop{Device: -1}, farFuture
		for _, device := range p.tables.DevicesOf(stageIndex) {
			if p.deviceTails[device] == farFuture {
				continue
			}
			downlink := int32(-1)
			if transferTime > 0 {
				downlink = p.tables.Devices[device].Downlink
			}
			transferStart := max(readyAt, p.linkTail(uplink), p.linkTail(downlink))
			hop := policy.Hop{Stage: stageIndex, Device: device, Uplink: uplink, Downlink: downlink, XferStart: transferStart, XferEnd: transferStart + transferTime}
			if transferTime == 0 {
				hop.XferStart, hop.XferEnd = readyAt, readyAt
			}
			hop.Start = max(hop.XferEnd, p.deviceTails[device])
			hop.End = hop.Start + inferTime
			departure := hop.End
			if hasNextStage {
				departure = max(departure, p.linkTail(p.tables.Devices[device].Uplink))
			}
			if departure < earliestDeparture {
				bestHop, earliestDeparture = hop, departure
			}
		}

		// Go on from its finish, as PPipe's artifact does, although the batch may leave later.
		if bestHop.Device < 0 {
			return candidatePath{pipelineIndex, batchSize, farFuture, farFuture}
		}
		p.triedHops = append(p.triedHops, bestHop)
		readyAt, uplink = bestHop.End, -1
		if hasNextStage && p.tables.Stages[stageIndex+1].Xfer != nil {
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

// dispatchTried is called by decide for a path that is in time, and that tryBatch tried last. It sends the first requests
// of a model's queue as a batch along the path, whose hops are in p.triedHops, and reserves its devices and links: their
// tails become the times at which the batch leaves them.
func (p *Policy) dispatchTried(modelIndex int32, chosenPath candidatePath, out *policy.Actions) {
	for i := range p.triedHops {
		// Reserve the device, and both links of the transfer to it.
		hop := p.triedHops[i]
		p.deviceTails[hop.Device] = hop.End
		for _, link := range [2]int32{hop.Uplink, hop.Downlink} {
			if link >= 0 {
				p.linkTails[link] = hop.XferEnd
			}
		}

		// In the artifact, transfers run on the sender's uplink alone. The receiver's downlink counts in the decisions, by
		// its tail, but is no part of what is executed.
		hop.Downlink = -1
		out.Hops = append(out.Hops, hop)
	}
	const firstStage = 0 // the batch begins at the first stage of its pipeline
	p.batches.Dispatch(&p.models[modelIndex].queue, modelIndex, chosenPath.pipeline, chosenPath.batchSize, firstStage, len(p.triedHops), out)
}

// dropHead drops the head of a model's queue (the request with the earliest deadline) for a reason.
func (p *Policy) dropHead(modelIndex int32, reason policy.DropReason, out *policy.Actions) {
	underway.DropHead(&p.models[modelIndex].queue, modelIndex, reason, out)
}

// loseDevice is called for the event WorkerLost. It takes a lost device out of service, by a tail (end of its last
// reservation) of farFuture, aborts the batches that need it, and queues their requests again.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.deviceTails[device] == farFuture {
		return
	}
	p.deviceTails[device] = farFuture
	queueOf := func(batch *underway.Batch) *waiting.Queue { return &p.models[batch.Model].queue }
	p.batches.AbortOnDevice(device, queueOf, out)
	p.decideAll(now, out)
}

// decideAll decides for all models, after an event that may concern any of them.
func (p *Policy) decideAll(now time.Duration, out *policy.Actions) {
	for modelIndex := range p.models {
		p.decide(int32(modelIndex), now, out)
	}
}
