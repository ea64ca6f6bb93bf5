package balance

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/slots"
)

// Name is the policy's name in plans and flags.
const Name = "balance"

// PriorityName is the name of the balancer before servers that schedule by priority.
const PriorityName = "priority"

// Policy is the load balancer. It implements policy.Policy.
type Policy struct {
	t       *policy.Tables
	ranks   []int32    // by served model: its priority at the servers, lower first
	list    []instance // by device
	batches []batch    // by batch slot
	free    []int32    // free batch slots
}

// instanceState is the state of an instance, as far as the balancer knows it.
type instance struct {
	network int32     // loaded or being loaded; -1 if there is none
	ready   bool      // the network is loaded
	down    bool      // its device is lost
	running int32     // dispatched requests that have not come back
	queue   []request // waiting requests, from head on
	head    int       // index of the first waiting request
}

// waitingCount returns the number of waiting requests.
func (in *instance) waits() int { return len(in.queue) - in.head }

// waitingRequest is a request with its served model.
type request struct{ req, model int32 }

// runningBatch is a request that runs on a device. If the slot is free, device is -1.
type batch struct {
	request
	device int32
}

// New returns the policy over tables with instances.
func New(t *policy.Tables) *Policy {
	p := &Policy{t: t, list: make([]instance, len(t.Devices)), ranks: make([]int32, len(t.Models))}
	for m := range p.ranks {
		p.ranks[m] = t.Models[m].Priority
	}
	for d := range p.list {
		p.reset(int32(d))
	}
	return p
}

// NewPriority returns the policy for servers that all schedule by priority, as vLLM does with --scheduling-policy
// priority: lower first, with pre-emption only for want of KV memory. If a plan gives all classes the same
// priority, those with a shorter SLO are served first. If a server does not schedule by priority, it returns an
// error.
func NewPriority(t *policy.Tables) (*Policy, error) {
	for i := range t.Instances {
		if s := t.Instances[i].Server; s == nil || !s.Priority {
			return nil, &document.Error{Path: fmt.Sprintf("queue.instances[%d].scheduling", i), Found: "first come, first served", Expected: formats.SchedulePriority,
				Hint: "the policy " + PriorityName + " leaves the order to servers that know priorities"}
		}
	}

	// Take the plan's priorities if they differ.
	p := New(t)
	if slices.Min(p.ranks) < slices.Max(p.ranks) {
		return p, nil
	}

	// Rank the served models by their SLOs.
	var slos []time.Duration
	for m := range t.Models {
		slos = append(slos, t.Models[m].SLO)
	}
	slices.Sort(slos)
	slos = slices.Compact(slos)
	for m := range p.ranks {
		p.ranks[m] = int32(slices.Index(slos, t.Models[m].SLO))
	}
	return p, nil
}

// resetInstance sets an instance to its state at the start of the plan.
func (p *Policy) reset(d int32) {
	in := &p.list[d]
	in.network, in.ready, in.down, in.running = -1, false, false, 0
	if int(d) < len(p.t.Resident) && len(p.t.Resident[d]) > 0 {
		in.network, in.ready = p.t.Resident[d][0], true
	}
}

// Handle handles an event. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.send(now, request{ev.Req, ev.Model}, out)
	case policy.BatchFinished:
		p.back(ev.Batch)
		p.drive(now, ev.Device, out)
	case policy.BatchReturned:
		r := p.batches[ev.Batch].request
		p.back(ev.Batch)
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: r.req, Reason: policy.ReasonFailed})
		p.drive(now, ev.Device, out)
	case policy.NetworkLoaded:
		in := &p.list[ev.Device]
		if ev.Network == in.network {
			in.ready = ev.Value == 0
			if !in.ready && in.waits() > 0 { // the network cannot run there
				in.network = -1
				out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: in.queue[in.head].req, Reason: policy.ReasonFailed})
				in.head++
			}
		}
		p.drive(now, ev.Device, out)
	case policy.WorkerLost:
		p.lost(now, ev.Device, out)
	case policy.WorkerBack:
		p.reset(ev.Device)
		p.drive(now, ev.Device, out)
	}
}

// networkOf returns the network of a served model, and the devices that may run it.
func (p *Policy) networkOf(model int32) (network int32, devices []int32) {
	pl := &p.t.Pipelines[p.t.Models[model].FirstPipeline]
	return pl.Network, p.t.DevicesOf(pl.FirstStage)
}

// enqueue adds a request to the queue of the instance with the fewest requests. If all are lost, it drops the
// request.
func (p *Policy) send(now time.Duration, r request, out *policy.Actions) {
	_, devices := p.networkOf(r.model)
	best := int32(-1)
	for _, d := range devices {
		in := &p.list[d]
		if !in.down && (best < 0 || int(in.running)+in.waits() < int(p.list[best].running)+p.list[best].waits()) {
			best = d
		}
	}
	if best < 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: r.req, Reason: policy.ReasonWorkerLost})
		return
	}

	// Reuse the front of the queue's memory instead of growing it.
	in := &p.list[best]
	if in.head > 0 && len(in.queue) == cap(in.queue) {
		in.queue, in.head = in.queue[:copy(in.queue, in.queue[in.head:])], 0
	}
	in.queue = append(in.queue, r)
	p.drive(now, best, out)
}

// serveInstance dispatches the waiting requests of an instance, up to one that needs another network: that one
// waits until nothing runs there and the network has changed.
func (p *Policy) drive(now time.Duration, d int32, out *policy.Actions) {
	in := &p.list[d]
	for in.waits() > 0 && !in.down {
		r := in.queue[in.head]
		network, _ := p.networkOf(r.model)
		if network != in.network {
			if in.running == 0 && (in.ready || in.network < 0) {
				p.swap(d, network, out)
			}
			return
		}
		if !in.ready {
			return
		}
		in.head++
		p.dispatch(now, r, d, out)
	}
}

// changeNetwork unloads the network of an instance and loads another.
func (p *Policy) swap(d, network int32, out *policy.Actions) {
	in := &p.list[d]
	if in.network >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: in.network, Device: d})
	}
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: d})
	in.network, in.ready = network, false
}

// dispatch sends a request to an instance as a batch of one, with the priority as its tag.
func (p *Policy) dispatch(now time.Duration, r request, d int32, out *policy.Actions) {
	slot := slots.Take(&p.batches, &p.free)
	p.batches[slot] = batch{r, d}
	p.list[d].running++
	m := &p.t.Models[r.model]
	pl := &p.t.Pipelines[m.FirstPipeline]
	out.List = append(out.List, policy.Action{
		Kind: policy.Dispatch, HopCount: 1, Pipeline: m.FirstPipeline, Model: r.model, Batch: slot, Size: 1, Tag: p.ranks[r.model],
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)),
	})
	out.Tasks = append(out.Tasks, r.req)
	end := now + p.t.Stages[pl.FirstStage].Infer[0]
	out.Hops = append(out.Hops, policy.Hop{Stage: pl.FirstStage, Device: d, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: end})
}

// finishBatch removes a batch from its instance and frees its slot.
func (p *Policy) back(slot int32) {
	p.list[p.batches[slot].device].running--
	p.batches[slot].device = -1
	p.free = append(p.free, slot)
}

// loseInstance sends all requests of a lost instance to the others.
func (p *Policy) lost(now time.Duration, d int32, out *policy.Actions) {
	in := &p.list[d]
	in.down, in.network, in.ready = true, -1, false
	queue := in.queue[in.head:]
	in.queue, in.head = nil, 0
	for slot := range p.batches {
		if b := p.batches[slot]; b.device == d {
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: int32(slot)})
			p.back(int32(slot))
			p.send(now, b.request, out)
		}
	}
	for _, r := range queue {
		p.send(now, r, out)
	}
}
