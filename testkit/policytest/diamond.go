package policytest

import (
	"context"
	"slices"
	"time"

	"inferplan/policy"
)

// The services of the diamond, with the networks of the same numbers.
const (
	Split int32 = iota
	Left
	Right
	Merge
	Write // on an instance
	numServices
)

// Diamond is a policy that uses every action of the contract: it batches what is
// ready, first come, first served; loads networks where they lack; has merges
// placed; evicts what is written up once, after its first tokens; drops what is
// late, also while it runs; and re-plans which request comes first.
type Diamond struct {
	t        *policy.Tables
	requests []diamondOpen
	tasks    []diamondWork
	ready    []int32 // tasks, first come, first served
	batches  []diamondBatch
	devices  []diamondDevice
	ticking  bool
	first    int32 // the request that a re-plan puts first; -1: none
	Plans    int   // re-plans that came with a result
	Evicted  int   // batches that came back because they were evicted
	Returned int   // that came back for another reason
	Loads    int   // of networks that came in time
}

type diamondOpen struct {
	open     bool
	deadline time.Duration
}

type diamondWork struct {
	req, service int32
	inputs       []int32
	pending      int   // of them, that have not ended
	device       int32 // where its inputs were brought; -1: nowhere, -2: they are on the way
	state        workState
	evicted      bool
}

type workState uint8

const (
	gone workState = iota
	blocked
	isReady
	inBatch
	ended
)

type diamondBatch struct {
	live    bool
	device  int32
	service int32
	tasks   []int32
	reqs    []int32
}

type diamondDevice struct {
	down    bool
	batches int
	loaded  []int32
	coming  int32 // network that is being loaded; -1: none
}

// NewDiamond makes the policy over DiamondTables.
func NewDiamond(t *policy.Tables) *Diamond {
	p := &Diamond{t: t, first: -1, devices: make([]diamondDevice, len(t.Devices))}
	for d := range p.devices {
		p.devices[d] = diamondDevice{loaded: slices.Clone(t.Resident[d]), coming: -1}
	}
	return p
}

// Open is the number of requests that the policy has.
func (p *Diamond) Open() int {
	n := 0
	for i := range p.requests {
		if p.requests[i].open {
			n++
		}
	}
	return n
}

// Handle implements policy.Policy.
func (p *Diamond) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.TaskRevealed:
		p.reveal(ev)
	case policy.ControlRevealed:
		if ev.Value == 0 {
			p.forget(ev.Req)
		}
	case policy.BatchFinished:
		p.finished(ev.Batch)
	case policy.BatchReturned:
		p.returned(ev)
	case policy.TokenProgress:
		p.progress(ev, out)
	case policy.TransferFinished:
		if w := &p.tasks[ev.Task]; ev.Batch < 0 && w.state == isReady && w.device == -2-ev.Device {
			w.device = ev.Device
		}
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		p.network(ev)
	case policy.ReplanResult:
		p.first = -1
		if len(ev.List) > 0 {
			p.first = ev.List[0]
			p.Plans++
		}
	case policy.Timer:
		p.tick(now, out)
	case policy.Cancel:
		if p.requests[ev.Req].open {
			p.drop(ev.Req, policy.ReasonCancelled, out)
		}
	case policy.WorkerLost:
		p.lose(ev.Device, out)
	case policy.WorkerBack:
		p.devices[ev.Device] = diamondDevice{loaded: slices.Clone(p.t.Resident[ev.Device]), coming: -1}
	}
	p.serve(now, out)
}

func (p *Diamond) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	for int(ev.Req) >= len(p.requests) {
		p.requests = append(p.requests, diamondOpen{})
	}
	p.requests[ev.Req] = diamondOpen{open: true, deadline: ev.Deadline}
	if ev.Deadline <= now {
		p.drop(ev.Req, policy.ReasonDeadline, out)
		return
	}
	if !p.ticking {
		p.ticking = true
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + 20*time.Millisecond})
	}
}

// reveal takes a task in.
func (p *Diamond) reveal(ev *policy.Event) {
	for int(ev.Task) >= len(p.tasks) {
		p.tasks = append(p.tasks, diamondWork{})
	}
	w := &p.tasks[ev.Task]
	*w = diamondWork{req: ev.Req, service: ev.Service, inputs: append(w.inputs[:0], ev.List...), device: -1, state: blocked}
	for _, in := range w.inputs {
		if in >= 0 && p.tasks[in].state != ended {
			w.pending++
		}
	}
	if w.pending == 0 {
		p.wait(ev.Task)
	}
}

// wait queues a task that may run.
func (p *Diamond) wait(t int32) {
	p.tasks[t].state, p.tasks[t].device = isReady, -1
	p.ready = append(p.ready, t)
}

// finished frees a batch; what reads its tasks may be ready now.
func (p *Diamond) finished(slot int32) {
	b := &p.batches[slot]
	b.live = false
	p.devices[b.device].batches--
	for i, t := range b.tasks {
		if w := &p.tasks[t]; w.state == inBatch && w.req == b.reqs[i] {
			w.state = ended
		}
	}
	for t := range p.tasks {
		w := &p.tasks[t]
		if w.state != blocked {
			continue
		}
		for _, in := range w.inputs {
			if slices.Contains(b.tasks, in) && p.tasks[in].state == ended {
				w.pending--
			}
		}
		if w.pending == 0 {
			p.wait(int32(t))
		}
	}
}

// again frees a batch that has no result; its tasks wait again.
func (p *Diamond) again(slot int32) {
	b := &p.batches[slot]
	b.live = false
	p.devices[b.device].batches--
	for i, t := range b.tasks {
		if p.tasks[t].state == inBatch && p.tasks[t].req == b.reqs[i] {
			p.wait(t)
		}
	}
}

func (p *Diamond) returned(ev *policy.Event) {
	b := &p.batches[ev.Batch]
	switch policy.ReturnReason(ev.Value) {
	case policy.ReturnEvicted:
		p.Evicted++
	case policy.ReturnNotLoaded:
		d, network := &p.devices[b.device], b.service
		d.loaded = slices.DeleteFunc(d.loaded, func(n int32) bool { return n == network })
		p.Returned++
	default:
		p.Returned++
	}
	p.again(ev.Batch)
}

// progress evicts what is written up, once.
func (p *Diamond) progress(ev *policy.Event, out *policy.Actions) {
	w := &p.tasks[p.batches[ev.Batch].tasks[0]]
	if ev.Tokens >= 4 && !w.evicted && w.state == inBatch {
		w.evicted = true
		out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: ev.Batch, Device: ev.Device, Tag: 1})
	}
}

func (p *Diamond) network(ev *policy.Event) {
	d := &p.devices[ev.Device]
	if ev.Kind == policy.NetworkUnloaded {
		return // it was taken off the list when it was asked for
	}
	d.coming = -1
	if ev.Value == 0 {
		d.loaded = append(d.loaded, ev.Network)
		p.Loads++
	}
}

// tick drops what is late and asks for a re-plan.
func (p *Diamond) tick(now time.Duration, out *policy.Actions) {
	for r := range p.requests {
		if q := &p.requests[r]; q.open && q.deadline <= now {
			p.drop(int32(r), policy.ReasonDeadline, out)
		}
	}
	if p.ticking = p.Open() > 0; p.ticking {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + 20*time.Millisecond}, policy.Action{Kind: policy.Replan, Tag: 1})
	}
}

// drop ends a request wherever its tasks are.
func (p *Diamond) drop(req int32, why policy.DropReason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: why})
	p.forget(req)
}

// forget takes a request's tasks out.
func (p *Diamond) forget(req int32) {
	p.requests[req].open = false
	p.ready = slices.DeleteFunc(p.ready, func(t int32) bool { return p.tasks[t].req == req })
	for t := range p.tasks {
		if p.tasks[t].req == req {
			p.tasks[t].state = gone
		}
	}
}

func (p *Diamond) lose(device int32, out *policy.Actions) {
	d := &p.devices[device]
	d.down = true
	for slot := range p.batches {
		if b := &p.batches[slot]; b.live && b.device == device {
			out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: int32(slot)})
			p.again(int32(slot))
		}
	}
	for _, t := range p.ready { // what was brought there is gone
		if w := &p.tasks[t]; w.device == device || w.device == -2-device {
			w.device = -1
		}
	}
}

// serve sends what is ready.
func (p *Diamond) serve(now time.Duration, out *policy.Actions) {
	slices.SortStableFunc(p.ready, func(a, b int32) int { return p.rank(a) - p.rank(b) })
	for i := 0; i < len(p.ready); i++ {
		t := p.ready[i]
		w := &p.tasks[t]
		switch d := p.deviceFor(w); {
		case d < 0:
		case w.service == Merge && w.device == -1:
			w.device = -2 - d
			out.List = append(out.List, policy.Action{Kind: policy.Place, Task: t, Device: d})
		case w.service == Merge && w.device != d:
		case !slices.Contains(p.devices[d].loaded, w.service):
			p.load(d, w.service, out)
		default:
			p.dispatch(now, d, i, out)
			i = -1
		}
	}
}

func (p *Diamond) rank(t int32) int {
	if p.tasks[t].req == p.first {
		return 0
	}
	return 1
}

// deviceFor is a free device for a task; -1: none.
func (p *Diamond) deviceFor(w *diamondWork) int32 {
	most := 1
	if w.service == Write {
		most = int(p.t.Instances[0].MaxSequences)
	}
	best := int32(-1)
	for _, d := range p.t.DevicesOf(w.service) {
		dev := &p.devices[d]
		if dev.down || dev.batches >= most || w.device >= 0 && w.device != d || w.device < -1 {
			continue
		}
		if slices.Contains(dev.loaded, w.service) {
			return d
		}
		if best < 0 {
			best = d
		}
	}
	return best
}

// load brings a network to a device, in the place of another where it is full.
func (p *Diamond) load(d, network int32, out *policy.Actions) {
	dev := &p.devices[d]
	if dev.coming >= 0 {
		return
	}
	if most := p.t.Memory[d]; most > 0 && int64(len(dev.loaded)) >= most {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: dev.loaded[0], Device: d})
		dev.loaded = dev.loaded[1:]
	}
	dev.coming = network
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: d})
}

// dispatch sends the i-th ready task, with others of its service.
func (p *Diamond) dispatch(now time.Duration, d int32, i int, out *policy.Actions) {
	lead := &p.tasks[p.ready[i]]
	service, at := lead.service, lead.device
	slot := slices.IndexFunc(p.batches, func(b diamondBatch) bool { return !b.live })
	if slot < 0 {
		slot = len(p.batches)
		p.batches = append(p.batches, diamondBatch{})
	}
	b := &p.batches[slot]
	*b = diamondBatch{live: true, device: d, service: service, tasks: b.tasks[:0], reqs: b.reqs[:0]}
	first := int32(len(out.Tasks))
	p.ready = slices.DeleteFunc(p.ready, func(t int32) bool {
		w := &p.tasks[t]
		if w.service != service || w.device != at || len(b.tasks) == int(p.t.Pipelines[service].Batch) {
			return false
		}
		w.state = inBatch
		b.tasks, b.reqs, out.Tasks = append(b.tasks, t), append(b.reqs, w.req), append(out.Tasks, t)
		return true
	})
	p.devices[d].batches++
	size := int32(len(b.tasks))
	end := now + p.t.Stages[service].Infer[size-1]
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: service, Model: -1, Batch: int32(slot), Size: size, Device: d,
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: service, Device: d, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: end})
}

// Search implements policy.Searcher: the open requests by their deadlines.
func (p *Diamond) Search(time.Duration, int32) func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	type due struct {
		req int32
		at  time.Duration
	}
	var list []due
	for r := range p.requests {
		if p.requests[r].open {
			list = append(list, due{int32(r), p.requests[r].deadline})
		}
	}
	return func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
		worked := int64(len(list))
		if ctx.Err() != nil || worked > work {
			return dst, min(worked, work)
		}
		slices.SortStableFunc(list, func(a, b due) int { return int(a.at - b.at) })
		for _, d := range list {
			dst = append(dst, d.req)
		}
		return dst, worked
	}
}

var (
	_ policy.Searcher = (*Diamond)(nil)
	_ policy.Control  = (*DiamondControl)(nil)
)
