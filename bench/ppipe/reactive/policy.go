package reactive

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/underway"
	"inferplan/policy/waiting"
)

// Name is the policy's name in plans.
const Name = "reactive"

const never = underway.FarFuture

func init() {
	policies.Register(formats.PlanPool, Name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) { return New(t, params) })
}

// Policy is the state of the reactive dispatcher over one plan's tables. It
// implements policy.Policy.
type Policy struct {
	t       *policy.Tables
	workers []worker        // by device
	queues  []stop          // of models, then of stages; a first stage's own stays empty
	slack   []time.Duration // by stage: planned time behind its inference
	batches *underway.BatchTable
}

type worker struct {
	free    time.Duration // when all it was given is done, as planned; never: lost
	batches int           // it was given and has not finished
}

// stop is a place where requests wait for a worker.
type stop struct {
	queue waiting.Queue
	armed time.Duration
}

// New makes the policy; it has no parameters.
func New(t *policy.Tables, params map[string]float64) (*Policy, error) {
	if err := underway.RejectParameters(Name, params); err != nil {
		return nil, err
	}
	p := &Policy{
		t: t, workers: make([]worker, len(t.Devices)), queues: make([]stop, len(t.Models)+len(t.Stages)),
		slack: make([]time.Duration, len(t.Stages)), batches: underway.New(t),
	}
	for i := range p.queues {
		p.queues[i].armed = never
		p.queues[i].queue.Grow()
	}
	for i := range t.Pipelines {
		pl := &t.Pipelines[i]
		for s := pl.FirstStage + pl.NumStages - 2; s >= pl.FirstStage; s-- {
			p.slack[s] = p.slack[s+1] + t.Stages[s+1].Infer[pl.Batch-1] + p.sends(s+1, pl.Batch)
		}
	}
	return p, nil
}

// sends is the transfer of a batch out of a stage, alone on its links.
func (p *Policy) sends(stage, batch int32) time.Duration {
	if next := stage + 1; next < int32(len(p.t.Stages)) && p.t.Stages[next].Pipeline == p.t.Stages[stage].Pipeline {
		return p.receives(next, batch)
	}
	return 0
}

func (p *Policy) receives(stage, batch int32) time.Duration {
	if xfer := p.t.Stages[stage].Xfer; xfer != nil {
		return xfer[batch-1]
	}
	return 0
}

// Handle decides what to do about one event.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.queues[ev.Model].queue.Insert(waiting.Request{Deadline: ev.Deadline, ArrivedAt: ev.ArrivedAt, Req: ev.Req})
		p.decide(ev.Model, now, out)
	case policy.Timer:
		at := int32(ev.Value)
		p.queues[at].armed = never
		p.decide(at, now, out)
	case policy.BatchFinished:
		p.finished(now, ev, out)
	case policy.Cancel:
		p.cancel(now, ev, out)
	case policy.WorkerLost:
		p.lose(now, ev.Device, out)
	case policy.WorkerBack:
		if p.workers[ev.Device].free == never {
			p.workers[ev.Device] = worker{free: now}
			p.decideAll(now, out)
		}
	}
}

// finished frees a worker and passes its requests on to the next stage's queue.
func (p *Policy) finished(now time.Duration, ev *policy.Event, out *policy.Actions) {
	b := p.batches.BatchAt(ev.Batch)
	if !p.batches.RecordFinish(ev) {
		return
	}
	if w := &p.workers[ev.Device]; w.free < never {
		if w.batches--; w.batches == 0 {
			w.free = now
		}
	}
	pl := &p.t.Pipelines[b.Pipeline]
	if int32(ev.Hop)+1 == pl.NumStages {
		return
	}
	next := p.stopOf(pl.FirstStage + int32(ev.Hop) + 1)
	for _, r := range p.batches.Members(ev.Batch) {
		r.PassedFirstLook, r.Device = false, ev.Device
		p.queues[next].queue.Insert(r)
	}
	p.decide(next, now, out)
}

// stopOf is the queue before a stage.
func (p *Policy) stopOf(stage int32) int32 {
	if p.t.Stages[stage].Hop == 0 {
		return p.t.Pipelines[p.t.Stages[stage].Pipeline].Model
	}
	return int32(len(p.t.Models)) + stage
}

// decide serves, drops or leaves waiting the head of a queue until there is
// nothing more to do now.
func (p *Policy) decide(at int32, now time.Duration, out *policy.Actions) {
	q := &p.queues[at].queue
	wake := never
	for q.Len > 0 {
		head := q.At(0)
		stage, device := p.earliest(at)
		if device < 0 {
			p.drop(at, policy.ReasonWorkerLost, out)
			continue
		}
		planned := p.t.Pipelines[p.t.Stages[stage].Pipeline].Batch
		fits := p.fits(stage, planned, head.Deadline-p.slack[stage]-max(now, p.workers[device].free))
		if fits == 0 || !head.PassedFirstLook && fits < int32(math.Round(underway.FirstLookShare*float64(planned))) {
			p.drop(at, policy.ReasonDeadline, out)
			continue
		}
		if waits := int32(q.Len); waits < fits {
			head.PassedFirstLook = true
			wake = head.Deadline - p.slack[stage] - p.t.Stages[stage].Infer[waits] + time.Microsecond
			if wake > now {
				break
			}
			fits, wake = waits, never
		}
		p.dispatch(at, stage, device, fits, now, out)
	}
	if s := &p.queues[at]; wake != s.armed {
		s.armed = wake
		if wake == never {
			wake = -1
		}
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: p.modelOf(at), Tag: at, At: wake})
	}
}

// earliest is the worker that is free first of those that a queue feeds, the
// first of equals; device is -1 where all are lost.
func (p *Policy) earliest(at int32) (stage, device int32) {
	models := int32(len(p.t.Models))
	if at >= models {
		device, _ = p.first(at - models)
		return at - models, device
	}
	stage, device = -1, -1
	least := never
	first, last := p.t.PipelinesOf(at)
	for pl := first; pl < last; pl++ {
		s := p.t.Pipelines[pl].FirstStage
		if d, free := p.first(s); free < least {
			stage, device, least = s, d, free
		}
	}
	return stage, device
}

func (p *Policy) first(stage int32) (device int32, free time.Duration) {
	device, free = -1, never
	for _, d := range p.t.DevicesOf(stage) {
		if f := p.workers[d].free; f < free {
			device, free = d, f
		}
	}
	return device, free
}

// fits is the largest batch up to the planned one below the first that does not
// end, with its transfer to the next stage, within what remains.
func (p *Policy) fits(stage, planned int32, remaining time.Duration) int32 {
	infer := p.t.Stages[stage].Infer
	for b := int32(1); b <= planned; b++ {
		if infer[b-1]+p.sends(stage, b) > remaining {
			return b - 1
		}
	}
	return planned
}

// dispatch sends the first requests of a queue to a worker, across the links
// from where the last of them is.
func (p *Policy) dispatch(at, stage, device, size int32, now time.Duration, out *policy.Actions) {
	st := &p.t.Stages[stage]
	w := &p.workers[device]
	hop := policy.Hop{Stage: stage, Device: device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now}
	if st.Hop > 0 && st.Xfer != nil {
		from := p.queues[at].queue.At(int(size - 1)).Device
		if took := p.t.TransferBetween(stage, size, from, device); took > 0 {
			hop.Uplink, hop.Downlink = p.t.Devices[from].Uplink, p.t.Devices[device].Downlink
			hop.XferEnd = now + took
		}
	}
	hop.Start = max(hop.XferEnd, w.free)
	hop.End = hop.Start + st.Infer[size-1]
	w.free = hop.End
	w.batches++
	out.Hops = append(out.Hops, hop)
	p.batches.Dispatch(&p.queues[at].queue, p.modelOf(at), st.Pipeline, size, st.Hop, 1, out)
}

func (p *Policy) modelOf(at int32) int32 {
	models := int32(len(p.t.Models))
	if at < models {
		return at
	}
	return p.t.Pipelines[p.t.Stages[at-models].Pipeline].Model
}

// drop drops the head of a queue.
func (p *Policy) drop(at int32, reason policy.DropReason, out *policy.Actions) {
	underway.DropHead(&p.queues[at].queue, p.modelOf(at), reason, out)
}

// cancel drops a request wherever it waits; one that runs goes on.
func (p *Policy) cancel(now time.Duration, ev *policy.Event, out *policy.Actions) {
	for at := range p.queues {
		if p.modelOf(int32(at)) == ev.Model && p.queues[at].queue.Remove(ev.Req) {
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: policy.ReasonCancelled, Model: ev.Model, Req: ev.Req})
			p.decide(int32(at), now, out)
			return
		}
	}
}

// lose takes a worker away; what it was given waits again before its stage.
func (p *Policy) lose(now time.Duration, device int32, out *policy.Actions) {
	if p.workers[device].free == never {
		return
	}
	p.workers[device] = worker{free: never}
	p.batches.AbortOnDevice(device, func(b *underway.Batch) *waiting.Queue {
		return &p.queues[p.stopOf(p.t.Pipelines[b.Pipeline].FirstStage+int32(b.FirstStage))].queue
	}, out)
	p.decideAll(now, out)
}

func (p *Policy) decideAll(now time.Duration, out *policy.Actions) {
	for at := range p.queues {
		p.decide(int32(at), now, out)
	}
}
