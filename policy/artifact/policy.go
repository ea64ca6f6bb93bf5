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
const never = underway.Never

// Policy is the state of the artifact's dispatcher over one plan's tables. It implements policy.Policy.
type Policy struct {
	t       *policy.Tables
	tails   []time.Duration // by device; farFuture if it is lost
	links   []time.Duration // by link
	models  []model
	batches *underway.Table
	hops    []policy.Hop // path of the last batch that was tried
}

// modelState is the queue of a model and the time of its pending wake.
type model struct {
	queue waiting.Queue
	armed time.Duration
}

// triedPath is the result of tryBatch. Its hops are in Policy.hops.
type path struct {
	pipeline, batch int32
	finish, wait    time.Duration // completion, and time spent waiting for devices and links
}

// New returns the policy. It has no parameters.
func New(t *policy.Tables, params map[string]float64) (*Policy, error) {
	if err := underway.NoParameters(Name, params); err != nil {
		return nil, err
	}
	p := &Policy{
		t: t, tails: make([]time.Duration, len(t.Devices)), links: make([]time.Duration, len(t.Links)),
		models: make([]model, len(t.Models)), batches: underway.New(t), hops: make([]policy.Hop, 0, t.MaxStages()),
	}
	for i := range p.models {
		p.models[i].armed = never
		p.models[i].queue.Grow()
	}
	return p, nil
}

// Handle decides what to do about one event.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.models[ev.Model].queue.Insert(waiting.Request{Deadline: ev.Deadline, Arrived: ev.Arrived, Req: ev.Req})
		p.decide(ev.Model, now, out)
	case policy.Timer:
		m := int32(ev.Value)
		p.models[m].armed = never
		p.decide(m, now, out)
	case policy.TransferFinished:
		p.batches.Transferred(ev)
	case policy.BatchFinished:
		p.batches.Finished(ev)
	case policy.Cancel:
		if p.models[ev.Model].queue.Remove(ev.Req) {
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: policy.ReasonCancelled, Model: ev.Model, Req: ev.Req})
			p.decide(ev.Model, now, out)
		}
	case policy.WorkerLost:
		p.lose(now, ev.Device, out)
	case policy.WorkerBack:
		if p.tails[ev.Device] == never {
			p.tails[ev.Device] = now
			p.decideAll(now, out)
		}
	}
}

// decide serves, drops or keeps waiting the head of a model's queue, until there is nothing more to do now.
func (p *Policy) decide(m int32, now time.Duration, out *policy.Actions) {
	mo := &p.models[m]
	wake := never
	for mo.queue.Len > 0 {
		head := mo.queue.At(0)

		// Choose the pipeline.
		pl, ok := p.choose(m, head.Deadline, now)
		if !ok {
			p.drop(m, policy.ReasonWorkerLost, out)
			continue
		}

		// Find the largest batch in time; at the first look, of nearly the planned size.
		planned := p.t.Pipelines[pl].Batch
		least := int32(1)
		if !head.Looked {
			least = max(1, int32(math.Round(underway.FirstLook*float64(planned))))
		}
		found, ok := p.largest(pl, planned, least, head.Deadline, now)
		if !ok {
			p.drop(m, policy.ReasonDeadline, out)
			continue
		}
		head.Looked = true

		// If fewer requests wait, wait for more until a batch of one request more would be late.
		if waits := int32(mo.queue.Len); waits < found.batch {
			more := p.try(pl, waits+1, now)
			if more.finish > head.Deadline {
				p.drop(m, policy.ReasonDeadline, out)
				continue
			}
			wake = now + head.Deadline - more.finish + more.wait + time.Microsecond
			break
		}
		p.dispatch(m, found, out)
	}

	// Set the wake if it changed.
	if wake != mo.armed {
		mo.armed = wake
		at := wake
		if at == never {
			at = -1
		}
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: m, Tag: m, At: at})
	}
}

// choosePipeline returns the pipeline that waits least at its planned batch. A pipeline of single requests that
// would be late counts as waiting an SLO longer. If no pipeline has a device left at every stage, it returns
// false.
func (p *Policy) choose(m int32, deadline, now time.Duration) (int32, bool) {
	first, last := p.t.PipelinesOf(m)
	best, least := int32(-1), never
	for pl := first; pl < last; pl++ {
		got := p.try(pl, p.t.Pipelines[pl].Batch, now)
		if got.finish >= never {
			continue
		}
		wait := got.wait
		if got.batch == 1 && got.finish > deadline {
			wait += p.t.Models[m].SLO
		}
		if wait < least {
			best, least = pl, wait
		}
	}
	return best, best >= 0
}

// largestBatch returns the path of the largest batch from maxBatch down to minBatch that meets a deadline. If
// there is none, it returns false.
func (p *Policy) largest(pl, most, least int32, deadline, now time.Duration) (path, bool) {
	for b := most; b >= least; b-- {
		if got := p.try(pl, b, now); got.finish <= deadline {
			return got, true
		}
	}
	return path{}, false
}

// tryBatch returns the path of a batch through a pipeline, stage by stage, from the tails alone. Its hops are in
// p.hops.
func (p *Policy) try(pipeline, batch int32, now time.Duration) path {
	pl := &p.t.Pipelines[pipeline]
	p.hops = p.hops[:0]
	t, work, uplink := now, time.Duration(0), int32(-1)
	for s := pl.FirstStage; s < pl.FirstStage+pl.NumStages; s++ {
		// Look up the times of the stage and of the transfer into it.
		st := &p.t.Stages[s]
		infer, xfer := st.Infer[batch-1], time.Duration(0)
		if st.Xfer != nil {
			xfer = st.Xfer[batch-1]
		}
		sends := s+1 < pl.FirstStage+pl.NumStages
		work += infer + xfer

		// Choose the device with the earliest finish, or the uplink's tail if that is later.
		best, least := policy.Hop{Device: -1}, never
		for _, d := range p.t.DevicesOf(s) {
			if p.tails[d] == never {
				continue
			}
			down := int32(-1)
			if xfer > 0 {
				down = p.t.Devices[d].Downlink
			}
			start := max(t, p.tail(uplink), p.tail(down))
			h := policy.Hop{Stage: s, Device: d, Uplink: uplink, Downlink: down, XferStart: start, XferEnd: start + xfer}
			if xfer == 0 {
				h.XferStart, h.XferEnd = t, t
			}
			h.Start = max(h.XferEnd, p.tails[d])
			h.End = h.Start + infer
			key := h.End
			if sends {
				key = max(key, p.tail(p.t.Devices[d].Uplink))
			}
			if key < least {
				best, least = h, key
			}
		}

		// Go on from its finish.
		if best.Device < 0 {
			return path{pipeline, batch, never, never}
		}
		p.hops = append(p.hops, best)
		t, uplink = best.End, -1
		if sends && p.t.Stages[s+1].Xfer != nil {
			uplink = p.t.Devices[best.Device].Uplink
		}
	}
	return path{pipeline, batch, t, t - now - work}
}

// linkTail returns the tail of a link; 0 if link is -1.
func (p *Policy) tail(link int32) time.Duration {
	if link < 0 {
		return 0
	}
	return p.links[link]
}

// dispatch sends a batch along the path in p.hops and updates the tails.
func (p *Policy) dispatch(m int32, found path, out *policy.Actions) {
	for i := range p.hops {
		h := p.hops[i]
		p.tails[h.Device] = h.End
		for _, l := range [2]int32{h.Uplink, h.Downlink} {
			if l >= 0 {
				p.links[l] = h.XferEnd
			}
		}
		h.Downlink = -1 // no transfer waits for it
		out.Hops = append(out.Hops, h)
	}
	p.batches.Dispatch(&p.models[m].queue, m, found.pipeline, found.batch, 0, len(p.hops), out)
}

// dropHead drops the head of a model's queue.
func (p *Policy) drop(m int32, reason policy.Reason, out *policy.Actions) {
	underway.DropHead(&p.models[m].queue, m, reason, out)
}

// loseDevice takes a device out of service and queues again the requests of batches that need it.
func (p *Policy) lose(now time.Duration, device int32, out *policy.Actions) {
	if p.tails[device] == never {
		return
	}
	p.tails[device] = never
	p.batches.Lose(device, func(b *underway.Batch) *waiting.Queue { return &p.models[b.Model].queue }, out)
	p.decideAll(now, out)
}

// decideAll decides for all models.
func (p *Policy) decideAll(now time.Duration, out *policy.Actions) {
	for m := range p.models {
		p.decide(int32(m), now, out)
	}
}
