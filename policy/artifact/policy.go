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
	hops        []policy.Hop // path of the last batch that was tried
}

// modelState is the queue of a model and the time of its pending wake.
type modelState struct {
	queue       waiting.Queue
	pendingWake time.Duration
}

// triedPath is the result of tryBatch. Its hops are in Policy.hops.
type triedPath struct {
	pipeline, batch int32
	finish, wait    time.Duration // completion, and time spent waiting for devices and links
}

// New returns the policy. It has no parameters.
func New(t *policy.Tables, params map[string]float64) (*Policy, error) {
	if err := underway.RejectParameters(Name, params); err != nil {
		return nil, err
	}
	p := &Policy{
		tables: t, deviceTails: make([]time.Duration, len(t.Devices)), linkTails: make([]time.Duration, len(t.Links)),
		models: make([]modelState, len(t.Models)), batches: underway.New(t), hops: make([]policy.Hop, 0, t.MaxStages()),
	}
	for i := range p.models {
		p.models[i].pendingWake = farFuture
		p.models[i].queue.Grow()
	}
	return p, nil
}

// Handle decides what to do about one event: after most of them, what the queue of the model concerned does now. It
// implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.models[ev.Model].queue.Insert(waiting.Request{Deadline: ev.Deadline, ArrivedAt: ev.ArrivedAt, Req: ev.Req})
		p.decide(ev.Model, now, out)
	case policy.Timer:
		m := int32(ev.Value)
		p.models[m].pendingWake = farFuture
		p.decide(m, now, out)
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
func (p *Policy) decide(m int32, now time.Duration, out *policy.Actions) {
	model := &p.models[m]
	wake := farFuture
	for model.queue.Len > 0 {
		head := model.queue.At(0)

		// Choose the pipeline.
		pipeline, ok := p.choosePipeline(m, head.Deadline, now)
		if !ok {
			p.dropHead(m, policy.ReasonWorkerLost, out)
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
			p.dropHead(m, policy.ReasonDeadline, out)
			continue
		}
		head.PassedFirstLook = true

		// If fewer requests wait, wait for more until a batch of one request more would be late.
		if waits := int32(model.queue.Len); waits < chosenPath.batch {
			largerPath := p.tryBatch(pipeline, waits+1, now)
			if largerPath.finish > head.Deadline {
				p.dropHead(m, policy.ReasonDeadline, out)
				continue
			}
			wake = now + head.Deadline - largerPath.finish + largerPath.wait + time.Microsecond
			break
		}
		p.dispatch(m, chosenPath, out)
	}

	// Set the wake if it changed.
	if wake != model.pendingWake {
		model.pendingWake = wake
		wakeAt := wake
		if wakeAt == farFuture {
			wakeAt = -1
		}
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: m, Tag: m, At: wakeAt})
	}
}

// choosePipeline returns the pipeline that waits least at its planned batch. A pipeline of single requests that
// would be late counts as waiting an SLO longer. If no pipeline has a device left at every stage, it returns
// false.
func (p *Policy) choosePipeline(m int32, deadline, now time.Duration) (int32, bool) {
	firstPipeline, endPipeline := p.tables.PipelinesOf(m)
	bestPipeline, minWait := int32(-1), farFuture
	for pl := firstPipeline; pl < endPipeline; pl++ {
		tried := p.tryBatch(pl, p.tables.Pipelines[pl].Batch, now)
		if tried.finish >= farFuture {
			continue
		}
		wait := tried.wait
		if tried.batch == 1 && tried.finish > deadline {
			wait += p.tables.Models[m].SLO
		}
		if wait < minWait {
			bestPipeline, minWait = pl, wait
		}
	}
	return bestPipeline, bestPipeline >= 0
}

// largestBatch returns the path of the largest batch from maxBatch down to minBatch that meets a deadline. If
// there is none, it returns false.
func (p *Policy) largestBatch(pl, maxBatch, minBatch int32, deadline, now time.Duration) (triedPath, bool) {
	for b := maxBatch; b >= minBatch; b-- {
		if tried := p.tryBatch(pl, b, now); tried.finish <= deadline {
			return tried, true
		}
	}
	return triedPath{}, false
}

// tryBatch returns the path of a batch through a pipeline: stage by stage the device that ends it first, behind the
// tails, the times up to which devices and links are reserved. Its hops are in p.hops. If a stage has no device
// left, finish is farFuture.
func (p *Policy) tryBatch(pipeline, batch int32, now time.Duration) triedPath {
	pl := &p.tables.Pipelines[pipeline]
	p.hops = p.hops[:0]
	readyAt, work, uplink := now, time.Duration(0), int32(-1)
	for s := pl.FirstStage; s < pl.FirstStage+pl.NumStages; s++ {
		// Look up the times of the stage and of the transfer into it.
		st := &p.tables.Stages[s]
		infer, xfer := st.Infer[batch-1], time.Duration(0)
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		sends := s+1 < pl.FirstStage+pl.NumStages
		work += infer + xfer

		// Choose the device with the earliest finish, or the uplink's tail if that is later.
		bestHop, bestKey := policy.Hop{Device: -1}, farFuture
		for _, d := range p.tables.DevicesOf(s) {
			if p.deviceTails[d] == farFuture {
				continue
			}
			downlink := int32(-1)
			if xfer > 0 {
				downlink = p.tables.Devices[d].Downlink
			}
			start := max(readyAt, p.linkTail(uplink), p.linkTail(downlink))
			h := policy.Hop{Stage: s, Device: d, Uplink: uplink, Downlink: downlink, XferStart: start, XferEnd: start + xfer}
			if xfer == 0 {
				h.XferStart, h.XferEnd = readyAt, readyAt
			}
			h.Start = max(h.XferEnd, p.deviceTails[d])
			h.End = h.Start + infer
			key := h.End
			if sends {
				key = max(key, p.linkTail(p.tables.Devices[d].Uplink))
			}
			if key < bestKey {
				bestHop, bestKey = h, key
			}
		}

		// Go on from its finish.
		if bestHop.Device < 0 {
			return triedPath{pipeline, batch, farFuture, farFuture}
		}
		p.hops = append(p.hops, bestHop)
		readyAt, uplink = bestHop.End, -1
		if sends && p.tables.Stages[s+1].Xfer != nil {
			uplink = p.tables.Devices[bestHop.Device].Uplink
		}
	}
	return triedPath{pipeline, batch, readyAt, readyAt - now - work}
}

// linkTail returns the tail of a link, the time at which its last reserved transfer ends; 0 if link is -1.
func (p *Policy) linkTail(link int32) time.Duration {
	if link < 0 {
		return 0
	}
	return p.linkTails[link]
}

// dispatch sends a batch along the path in p.hops, and updates the tails: the times up to which devices and links
// are reserved.
func (p *Policy) dispatch(m int32, chosenPath triedPath, out *policy.Actions) {
	for i := range p.hops {
		h := p.hops[i]
		p.deviceTails[h.Device] = h.End
		for _, l := range [2]int32{h.Uplink, h.Downlink} {
			if l >= 0 {
				p.linkTails[l] = h.XferEnd
			}
		}
		h.Downlink = -1 // no transfer waits for it
		out.Hops = append(out.Hops, h)
	}
	p.batches.Dispatch(&p.models[m].queue, m, chosenPath.pipeline, chosenPath.batch, 0, len(p.hops), out)
}

// dropHead drops the head of a model's queue.
func (p *Policy) dropHead(m int32, reason policy.DropReason, out *policy.Actions) {
	underway.DropHead(&p.models[m].queue, m, reason, out)
}

// loseDevice takes a lost device out of service, by a tail of farFuture, and queues again the requests of batches
// that need it.
func (p *Policy) loseDevice(now time.Duration, device int32, out *policy.Actions) {
	if p.deviceTails[device] == farFuture {
		return
	}
	p.deviceTails[device] = farFuture
	p.batches.AbortOnDevice(device, func(b *underway.Batch) *waiting.Queue { return &p.models[b.Model].queue }, out)
	p.decideAll(now, out)
}

// decideAll decides for all models.
func (p *Policy) decideAll(now time.Duration, out *policy.Actions) {
	for m := range p.models {
		p.decide(int32(m), now, out)
	}
}
