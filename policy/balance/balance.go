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

// Policy is the load balancer: it sends every request to the instance (a server of language models on a device) with
// the fewest. It implements policy.Policy.
type Policy struct {
	tables      *policy.Tables
	priorities  []int32         // by served model: its priority at the servers, lower first
	instances   []instanceState // by device
	batches     []runningBatch  // by batch slot
	freeBatches []int32         // free batch slots
}

// instanceState is the state of an instance, as far as the balancer knows it.
type instanceState struct {
	network         int32                      // loaded or being loaded; -1 if there is none
	isLoaded        bool                       // the network is loaded
	isLost          bool                       // its device is lost
	runningRequests int32                      // dispatched requests that have not come back
	queue           slots.Ring[waitingRequest] // waiting requests
}

// requestCount returns how many requests run on an instance or wait for it.
func (instance *instanceState) requestCount() int {
	return int(instance.runningRequests) + instance.queue.Len
}

// waitingRequest is a request with its served model.
type waitingRequest struct{ req, model int32 }

// runningBatch is a request that runs on a device. If the slot is free, device is -1.
type runningBatch struct {
	waitingRequest
	device int32
}

// New returns the load balancer for a plan with instances of language models. Each starts with the network that the
// plan puts on it.
func New(tables *policy.Tables) *Policy {
	balancer := &Policy{tables: tables, instances: make([]instanceState, len(tables.Devices)), priorities: make([]int32, len(tables.Models))}
	for model := range balancer.priorities {
		balancer.priorities[model] = tables.Models[model].Priority
	}
	for device := range balancer.instances {
		balancer.resetInstance(int32(device))
	}
	return balancer
}

// NewPriority returns the policy for servers that all schedule by priority, as vLLM does with --scheduling-policy
// priority: lower first, with pre-emption only for want of KV memory. If a plan gives all classes the same
// priority, those with a shorter SLO are served first. If a server does not schedule by priority, it returns an
// error.
func NewPriority(tables *policy.Tables) (*Policy, error) {
	for i := range tables.Instances {
		if server := tables.Instances[i].Server; server == nil || !server.ByPriority {
			return nil, &document.Error{Path: fmt.Sprintf("queue.instances[%d].scheduling", i), Found: "first come, first served", Expected: formats.SchedulePriority,
				Hint: "the policy " + PriorityName + " leaves the order to servers that know priorities"}
		}
	}

	// Take the plan's priorities if they differ.
	balancer := New(tables)
	if slices.Min(balancer.priorities) < slices.Max(balancer.priorities) {
		return balancer, nil
	}

	// Rank the served models by their SLOs.
	var slos []time.Duration
	for model := range tables.Models {
		slos = append(slos, tables.Models[model].SLO)
	}
	slices.Sort(slos)
	slos = slices.Compact(slos)
	for model := range balancer.priorities {
		balancer.priorities[model] = int32(slices.Index(slos, tables.Models[model].SLO))
	}
	return balancer, nil
}

// resetInstance sets the instance on a device to its state at the start of the plan: with the network that the plan
// puts there (tables.Resident), or with none (-1). It is called when the policy is made and when the instance comes back.
func (p *Policy) resetInstance(device int32) {
	instance := &p.instances[device]
	instance.network, instance.isLoaded, instance.isLost, instance.runningRequests = -1, false, false, 0
	if int(device) < len(p.tables.Resident) && len(p.tables.Resident[device]) > 0 {
		instance.network, instance.isLoaded = p.tables.Resident[device][0], true
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
		request := p.batches[ev.Batch].waitingRequest
		p.finishBatch(ev.Batch)
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: request.req, Reason: policy.ReasonFailed})
		p.serveInstance(now, ev.Device, out)
	case policy.NetworkLoaded:
		instance := &p.instances[ev.Device]
		if ev.Network == instance.network { // not the end of an earlier load
			instance.isLoaded = ev.Value == 0

			// If the load failed, drop the request for which it was ordered; the next one orders its network again.
			if !instance.isLoaded && instance.queue.Len > 0 {
				instance.network = -1
				out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: instance.queue.Pop().req, Reason: policy.ReasonFailed})
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
	pipeline := &p.tables.Pipelines[p.tables.Models[model].FirstPipeline]
	return pipeline.Network, p.tables.DevicesOf(pipeline.FirstStage)
}

// enqueue adds a request to the queue of the instance with the fewest waiting and running requests, among those
// that may run its model, and serves that. If all of them are lost, it drops the request.
func (p *Policy) enqueue(now time.Duration, request waitingRequest, out *policy.Actions) {
	_, devices := p.networkOf(request.model)
	leastLoaded := int32(-1)
	for _, device := range devices {
		instance := &p.instances[device]
		if !instance.isLost && (leastLoaded < 0 || instance.requestCount() < p.instances[leastLoaded].requestCount()) {
			leastLoaded = device
		}
	}
	if leastLoaded < 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: request.req, Reason: policy.ReasonWorkerLost})
		return
	}

	// Append the request.
	instance := &p.instances[leastLoaded]
	*instance.queue.Add() = request
	p.serveInstance(now, leastLoaded, out)
}

// serveInstance dispatches the waiting requests of the instance on a device, up to one that needs another network:
// that one waits until nothing runs there and the network has changed.
func (p *Policy) serveInstance(now time.Duration, device int32, out *policy.Actions) {
	instance := &p.instances[device]
	for instance.queue.Len > 0 && !instance.isLost {
		request := *instance.queue.At(0)
		network, _ := p.networkOf(request.model)

		// Change the network once nothing runs, and no load is under way (a network is set that is not loaded yet).
		if network != instance.network {
			if instance.runningRequests == 0 && (instance.isLoaded || instance.network < 0) {
				p.changeNetwork(device, network, out)
			}
			return
		}
		if !instance.isLoaded {
			return
		}

		// Send the request.
		instance.queue.Pop()
		p.dispatch(now, request, device, out)
	}
}

// changeNetwork orders the instance on a device, on which nothing runs, to unload its network and load another.
// Requests wait until that is loaded.
func (p *Policy) changeNetwork(device, network int32, out *policy.Actions) {
	instance := &p.instances[device]
	if instance.network >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: instance.network, Device: device})
	}
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: device})
	instance.network, instance.isLoaded = network, false
}

// dispatch sends a request to the instance on a device as a batch of one, with its class's priority as the tag, by
// which the server orders its requests.
func (p *Policy) dispatch(now time.Duration, request waitingRequest, device int32, out *policy.Actions) {
	batchSlot := slots.Take(&p.batches, &p.freeBatches)
	p.batches[batchSlot] = runningBatch{request, device}
	p.instances[device].runningRequests++
	model := &p.tables.Models[request.model]
	pipeline := &p.tables.Pipelines[model.FirstPipeline]
	out.List = append(out.List, policy.Action{
		Kind: policy.Dispatch, HopCount: 1, Pipeline: model.FirstPipeline, Model: request.model, Batch: batchSlot, Size: 1, Tag: p.priorities[request.model],
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)),
	})
	out.Tasks = append(out.Tasks, request.req)
	end := now + p.tables.Stages[pipeline.FirstStage].Infer[0]
	out.Hops = append(out.Hops, policy.Hop{Stage: pipeline.FirstStage, Device: device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: end})
}

// finishBatch removes the batch in a slot from its instance and frees the slot.
func (p *Policy) finishBatch(batchSlot int32) {
	p.instances[p.batches[batchSlot].device].runningRequests--
	p.batches[batchSlot].device = -1
	p.freeBatches = append(p.freeBatches, batchSlot)
}

// loseInstance sends all requests of the instance on a lost device, running and waiting ones, to the others. If no
// instance of their network is left, they are dropped.
func (p *Policy) loseInstance(now time.Duration, device int32, out *policy.Actions) {
	instance := &p.instances[device]
	instance.isLost, instance.network, instance.isLoaded = true, -1, false
	for batchSlot := range p.batches {
		if batch := p.batches[batchSlot]; batch.device == device {
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: int32(batchSlot)})
			p.finishBatch(int32(batchSlot))
			p.enqueue(now, batch.waitingRequest, out)
		}
	}
	for instance.queue.Len > 0 {
		p.enqueue(now, *instance.queue.Pop(), out)
	}
}
