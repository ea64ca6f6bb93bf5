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
	tables      *policy.Tables
	priorities  []int32         // by served model: its priority at the servers, lower first
	instances   []instanceState // by device
	batches     []runningBatch  // by batch slot
	freeBatches []int32         // free batch slots
}

// instanceState is the state of an instance, as far as the balancer knows it.
type instanceState struct {
	network         int32            // loaded or being loaded; -1 if there is none
	isLoaded        bool             // the network is loaded
	isLost          bool             // its device is lost
	runningRequests int32            // dispatched requests that have not come back
	queue           []waitingRequest // waiting requests, from head on
	head            int              // index of the first waiting request
}

// waitingCount returns the number of waiting requests.
func (in *instanceState) waitingCount() int { return len(in.queue) - in.head }

// waitingRequest is a request with its served model.
type waitingRequest struct{ req, model int32 }

// runningBatch is a request that runs on a device. If the slot is free, device is -1.
type runningBatch struct {
	waitingRequest
	device int32
}

// New returns the policy over tables with instances.
func New(t *policy.Tables) *Policy {
	p := &Policy{tables: t, instances: make([]instanceState, len(t.Devices)), priorities: make([]int32, len(t.Models))}
	for m := range p.priorities {
		p.priorities[m] = t.Models[m].Priority
	}
	for d := range p.instances {
		p.resetInstance(int32(d))
	}
	return p
}

// NewPriority returns the policy for servers that all schedule by priority, as vLLM does with --scheduling-policy
// priority: lower first, with pre-emption only for want of KV memory. If a plan gives all classes the same
// priority, those with a shorter SLO are served first. If a server does not schedule by priority, it returns an
// error.
func NewPriority(t *policy.Tables) (*Policy, error) {
	for i := range t.Instances {
		if s := t.Instances[i].Server; s == nil || !s.ByPriority {
			return nil, &document.Error{Path: fmt.Sprintf("queue.instances[%d].scheduling", i), Found: "first come, first served", Expected: formats.SchedulePriority,
				Hint: "the policy " + PriorityName + " leaves the order to servers that know priorities"}
		}
	}

	// Take the plan's priorities if they differ.
	p := New(t)
	if slices.Min(p.priorities) < slices.Max(p.priorities) {
		return p, nil
	}

	// Rank the served models by their SLOs.
	var slos []time.Duration
	for m := range t.Models {
		slos = append(slos, t.Models[m].SLO)
	}
	slices.Sort(slos)
	slos = slices.Compact(slos)
	for m := range p.priorities {
		p.priorities[m] = int32(slices.Index(slos, t.Models[m].SLO))
	}
	return p, nil
}

// resetInstance sets an instance to its state at the start of the plan, with its resident network, when the policy
// is made or the instance comes back.
func (p *Policy) resetInstance(d int32) {
	in := &p.instances[d]
	in.network, in.isLoaded, in.isLost, in.runningRequests = -1, false, false, 0
	if int(d) < len(p.tables.Resident) && len(p.tables.Resident[d]) > 0 {
		in.network, in.isLoaded = p.tables.Resident[d][0], true
	}
}

// Handle handles an event of the run: it sends arrivals to the instance with the fewest requests and keeps the
// instances busy. Requests that return without an answer are dropped as failed. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.enqueue(now, waitingRequest{ev.Req, ev.Model}, out)
	case policy.BatchFinished:
		p.finishBatch(ev.Batch)
		p.serveInstance(now, ev.Device, out)
	case policy.BatchReturned:
		r := p.batches[ev.Batch].waitingRequest
		p.finishBatch(ev.Batch)
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: r.req, Reason: policy.ReasonFailed})
		p.serveInstance(now, ev.Device, out)
	case policy.NetworkLoaded:
		in := &p.instances[ev.Device]
		if ev.Network == in.network {
			in.isLoaded = ev.Value == 0
			if !in.isLoaded && in.waitingCount() > 0 { // the network cannot run there
				in.network = -1
				out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: in.queue[in.head].req, Reason: policy.ReasonFailed})
				in.head++
			}
		}
		p.serveInstance(now, ev.Device, out)
	case policy.WorkerLost:
		p.loseInstance(now, ev.Device, out)
	case policy.WorkerBack:
		p.resetInstance(ev.Device)
		p.serveInstance(now, ev.Device, out)
	}
}

// networkOf returns the network of a served model, and the devices that may run it.
func (p *Policy) networkOf(model int32) (network int32, devices []int32) {
	pl := &p.tables.Pipelines[p.tables.Models[model].FirstPipeline]
	return pl.Network, p.tables.DevicesOf(pl.FirstStage)
}

// enqueue adds a request to the queue of the instance with the fewest waiting and running requests, among those
// that may run its model, and serves that. If all of them are lost, it drops the request.
func (p *Policy) enqueue(now time.Duration, r waitingRequest, out *policy.Actions) {
	_, devices := p.networkOf(r.model)
	leastLoaded := int32(-1)
	for _, d := range devices {
		in := &p.instances[d]
		if !in.isLost && (leastLoaded < 0 || int(in.runningRequests)+in.waitingCount() < int(p.instances[leastLoaded].runningRequests)+p.instances[leastLoaded].waitingCount()) {
			leastLoaded = d
		}
	}
	if leastLoaded < 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: r.req, Reason: policy.ReasonWorkerLost})
		return
	}

	// Reuse the front of the queue's memory instead of growing it.
	in := &p.instances[leastLoaded]
	if in.head > 0 && len(in.queue) == cap(in.queue) {
		in.queue, in.head = in.queue[:copy(in.queue, in.queue[in.head:])], 0
	}
	in.queue = append(in.queue, r)
	p.serveInstance(now, leastLoaded, out)
}

// serveInstance dispatches the waiting requests of an instance, up to one that needs another network: that one
// waits until nothing runs there and the network has changed.
func (p *Policy) serveInstance(now time.Duration, d int32, out *policy.Actions) {
	in := &p.instances[d]
	for in.waitingCount() > 0 && !in.isLost {
		r := in.queue[in.head]
		network, _ := p.networkOf(r.model)
		if network != in.network {
			if in.runningRequests == 0 && (in.isLoaded || in.network < 0) {
				p.changeNetwork(d, network, out)
			}
			return
		}
		if !in.isLoaded {
			return
		}
		in.head++
		p.dispatch(now, r, d, out)
	}
}

// changeNetwork orders an instance on which nothing runs to unload its network and load another. Requests wait
// until that is loaded.
func (p *Policy) changeNetwork(d, network int32, out *policy.Actions) {
	in := &p.instances[d]
	if in.network >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: in.network, Device: d})
	}
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: d})
	in.network, in.isLoaded = network, false
}

// dispatch sends a request to an instance as a batch of one, with its class's priority as the tag, by which the
// server orders its requests.
func (p *Policy) dispatch(now time.Duration, r waitingRequest, d int32, out *policy.Actions) {
	slot := slots.Take(&p.batches, &p.freeBatches)
	p.batches[slot] = runningBatch{r, d}
	p.instances[d].runningRequests++
	m := &p.tables.Models[r.model]
	pl := &p.tables.Pipelines[m.FirstPipeline]
	out.List = append(out.List, policy.Action{
		Kind: policy.Dispatch, HopCount: 1, Pipeline: m.FirstPipeline, Model: r.model, Batch: slot, Size: 1, Tag: p.priorities[r.model],
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)),
	})
	out.Tasks = append(out.Tasks, r.req)
	end := now + p.tables.Stages[pl.FirstStage].Infer[0]
	out.Hops = append(out.Hops, policy.Hop{Stage: pl.FirstStage, Device: d, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: end})
}

// finishBatch removes a batch from its instance and frees its slot.
func (p *Policy) finishBatch(slot int32) {
	p.instances[p.batches[slot].device].runningRequests--
	p.batches[slot].device = -1
	p.freeBatches = append(p.freeBatches, slot)
}

// loseInstance sends all requests of a lost instance, running and waiting ones, to the others. If no instance of
// their network is left, they are dropped.
func (p *Policy) loseInstance(now time.Duration, d int32, out *policy.Actions) {
	in := &p.instances[d]
	in.isLost, in.network, in.isLoaded = true, -1, false
	queue := in.queue[in.head:]
	in.queue, in.head = nil, 0
	for slot := range p.batches {
		if b := p.batches[slot]; b.device == d {
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: int32(slot)})
			p.finishBatch(int32(slot))
			p.enqueue(now, b.waitingRequest, out)
		}
	}
	for _, r := range queue {
		p.enqueue(now, r, out)
	}
}
