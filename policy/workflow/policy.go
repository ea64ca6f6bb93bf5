package workflow

import (
	"math/rand/v2"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/predict"
)

// Hears are the events that the policy wants.
const Hears uint32 = 1<<policy.BatchFinished | 1<<policy.BatchReturned | 1<<policy.TransferFinished | 1<<policy.NetworkLoaded | 1<<policy.NetworkUnloaded |
	1<<policy.WorkerLost | 1<<policy.WorkerBack | 1<<policy.ControlRevealed | 1<<policy.TaskRevealed | 1<<policy.Arrival | 1<<policy.Cancel | 1<<policy.Timer

// Policy serves dynamic workflows.
type Policy struct {
	book
	opt     Options
	fleet   *fleet
	rows    rows
	devices []device
	table   *predict.Table
	sched   *scheduler
	search  search
	job     job

	late    []int32 // requests that were told of tasks before the end of their batch
	touched []int32 // devices that something happened to
	touch   []bool
	epoch   int32
	marks   []int32 // by network: epoch
	copies  []int32 // by network: devices that have it or load it
	seq     int64
	turn    int32 // of Robin
	tokens  []int32
	offsets []int32
	list    []int32 // tasks to be placed
	pair    []int32 // scratch of Replicas
	jobAt   []int32 // by task: its place in the job; -1: none
	again   []int32 // requests to be planned anew
	scale   replicas
	rng     *rand.Rand
}

// New makes a policy over tables whose kind this is.
func New(t *policy.Tables, opt Options) *Policy {
	if opt.Ahead == 0 {
		opt.Ahead = 16
	}
	p := &Policy{opt: opt, fleet: newFleet(t)}
	p.rows = newRows(len(t.Services), len(t.Devices))
	p.marks, p.copies = make([]int32, len(t.Networks)), make([]int32, len(t.Networks))
	p.touch = make([]bool, len(t.Devices))
	for place := range t.Devices {
		p.devices = append(p.devices, newDevice(len(t.Networks)))
		p.restart(int32(place))
	}
	p.table = predict.New(opt.Prediction)
	p.sched = newScheduler(p.fleet, &p.rows)
	p.search = search{p: p, s: p.sched, width: opt.Width, limit: maxSteps}
	p.scale.init(len(t.Services))
	p.rng = seeded.New(opt.Seed, "replicas")
	return p
}

// Table is the table that predicts.
func (p *Policy) Table() *predict.Table { return p.table }

// Teach takes the place of the table that predicts.
func (p *Policy) Teach(t *predict.Table) { p.table = t }

// restart gives a device what it has from the start.
func (p *Policy) restart(place int32) {
	d, id := &p.devices[place], p.fleet.ids[place]
	d.memory, d.taken = 0, 0
	if int(id) < len(p.fleet.t.Memory) {
		d.memory = p.fleet.t.Memory[id]
	}
	for n := range d.loaded {
		if d.loaded[n] || d.loading == int32(n) {
			p.copies[n]--
		}
	}
	clear(d.loaded)
	d.loading = -1
	if int(id) < len(p.fleet.t.Resident) {
		for _, n := range p.fleet.t.Resident[id] {
			d.loaded[n] = true
			p.copies[n]++
			d.taken += p.fleet.bytes[n]
		}
	}
	d.dirty = true
}

// Handle implements policy.Policy.
func (p *Policy) Handle(at time.Duration, ev *policy.Event, out *policy.Actions) {
	now := int64(at)
	switch ev.Kind {
	case policy.ControlRevealed:
		p.announce(now, ev)
	case policy.TaskRevealed:
		p.reveal(now, ev, out)
	case policy.BatchFinished:
		p.finished(p.fleet.places[ev.Device], now, out)
		p.flush(now, out)
	default:
		p.flush(now, out)
		p.other(now, ev, out)
	}
	p.kick(now, out)
}

// other handles what has nothing to do with reveals.
func (p *Policy) other(now int64, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		q := p.open(ev.Req)
		q.model, q.arrived, q.deadline = ev.Model, int64(ev.Arrived), int64(ev.Deadline)
		if ev.Key > 0 {
			q.feature = int32(ev.Key)
		}
		q.cursor = p.table.Begin(q.model, q.feature)
		p.scale.start(p, now, out)
	case policy.TransferFinished:
		p.brought(ev)
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		p.network(now, ev)
	case policy.Cancel:
		if int(ev.Req) < len(p.requests) && p.requests[ev.Req].open {
			p.drop(now, ev.Req, policy.ReasonCancelled, out)
		}
	case policy.BatchReturned:
		p.returned(now, ev, out)
	case policy.WorkerLost:
		p.lost(now, p.fleet.places[ev.Device], out)
	case policy.WorkerBack:
		p.back(now, p.fleet.places[ev.Device], out)
	case policy.Timer:
		if ev.Value == strandTag {
			p.strand(now, out)
		} else {
			p.scale.tick(p, now, out)
		}
	}
}

// announce notes that tasks are coming, or that a request is over.
func (p *Policy) announce(now int64, ev *policy.Event) {
	q := &p.requests[ev.Req]
	if !q.open {
		return
	}
	if ev.Value > 0 {
		q.expect, q.segment = int32(ev.Value), 0
		return
	}
	if p.opt.Predict {
		p.table.Learn(q.model, q.feature, q.path, int(q.first))
	}
	p.close(now, ev.Req)
}

// close ends a request.
func (p *Policy) close(now int64, req int32) {
	q := &p.requests[req]
	p.forgetAhead(q)
	for _, id := range q.tasks {
		if p.tasks[id].state == queued {
			p.unqueue(id)
		}
		if s := p.tasks[id].state; s == known || s == queued || s == running {
			p.scale.less(p, now, p.tasks[id].service)
		}
		p.release(id)
	}
	q.open, q.tasks = false, q.tasks[:0]
}

// reveal takes a task in. The last of a segment has the request planned.
func (p *Policy) reveal(now int64, ev *policy.Event, out *policy.Actions) {
	q := &p.requests[ev.Req]
	if !q.open {
		return
	}
	id := p.take(ev.Req, ev.Task, ev.Service, workOf(ev.Value))
	p.assign(ev.Task, id)
	k := &p.tasks[id]
	p.offsets = p.offsets[:0]
	for _, slot := range ev.List {
		in, back := int32(-1), int32(0)
		if slot >= 0 {
			in = p.bySlot[slot]
			back = int32(len(q.tasks)) - index(q.tasks, in)
			if p.tasks[in].state != ended {
				k.pending++
			}
		}
		k.inputs, p.offsets = append(k.inputs, in), append(p.offsets, back)
	}
	k.token = p.table.Number(ev.Service, ev.Value, p.offsets)
	p.table.Advance(&q.cursor, k.token)
	q.tasks, q.path = append(q.tasks, id), append(q.path, k.token)
	p.scale.more(p, now, ev.Service)
	q.segment++
	if q.expect--; q.expect > 0 {
		return
	}
	if q.first == 0 {
		q.first = q.segment
	}
	for _, id := range q.tasks {
		if p.tasks[id].state == running {
			p.late = append(p.late, ev.Req) // its batch is about to end
			return
		}
	}
	p.react(now, ev.Req, out)
}

// index is the place of a task in a list of tasks.
func index(list []int32, id int32) int32 {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == id {
			return int32(i)
		}
	}
	return -1
}

// flush plans the requests whose tasks were revealed before the end of a batch.
func (p *Policy) flush(now int64, out *policy.Actions) {
	for _, req := range p.late {
		if p.requests[req].open {
			p.react(now, req, out)
		}
	}
	p.late = p.late[:0]
}

// finished ends the tasks of the batch on a device.
func (p *Policy) finished(place int32, now int64, out *policy.Actions) {
	d := &p.devices[place]
	d.busy, d.dirty = false, true
	d.last[p.fleet.services[d.service].network] = now
	for _, id := range d.batch {
		k := &p.tasks[id]
		k.state, k.end = ended, now
		if k.req < 0 {
			p.release(id)
			continue
		}
		p.scale.less(p, now, k.service)
		q := &p.requests[k.req]
		p.endInput(q.tasks, id, out)
		p.endInput(q.ahead, id, out)
	}
	d.batch = d.batch[:0]
	p.touchDevice(place)
}

// endInput tells tasks that one which they may read has ended.
func (p *Policy) endInput(list []int32, id int32, out *policy.Actions) {
	for _, c := range list {
		k := &p.tasks[c]
		for _, in := range k.inputs {
			if in == id {
				k.pending--
			}
		}
		if k.pending == 0 && k.state == queued && k.slot >= 0 {
			p.settle(c, out)
		}
	}
}

// settle lets a placed task whose inputs have all ended run where they are, or
// has them brought.
func (p *Policy) settle(id int32, out *policy.Actions) {
	k := &p.tasks[id]
	if k.arrived == k.place {
		p.touchDevice(k.place)
		return
	}
	if !p.apart(k) {
		k.arrived = k.place
		p.devices[k.place].dirty = true
		p.touchDevice(k.place)
		return
	}
	p.ask(id, out)
}

// ask has the inputs of a task brought to its place.
func (p *Policy) ask(id int32, out *policy.Actions) {
	if k := &p.tasks[id]; k.asked != k.place {
		k.asked, k.arrived = k.place, -1
		out.List = append(out.List, policy.Action{Kind: policy.Place, Task: k.slot, Device: p.fleet.ids[k.place]})
	}
}

// apart tells whether a task reads what is not where it is placed.
func (p *Policy) apart(k *task) bool {
	for _, in := range k.inputs {
		if in >= 0 && p.tasks[in].place != k.place {
			return true
		}
	}
	return false
}

// brought notes that what a task reads is at a device.
func (p *Policy) brought(ev *policy.Event) {
	if ev.Batch >= 0 {
		return
	}
	id, place := p.bySlot[ev.Task], p.fleet.places[ev.Device]
	if k := &p.tasks[id]; k.slot == ev.Task && k.state == queued && k.place == place {
		k.arrived = place
		p.devices[place].dirty = true
		p.touchDevice(place)
	}
}

// touchDevice has a device looked at before the turn ends.
func (p *Policy) touchDevice(place int32) {
	if !p.touch[place] {
		p.touch[place] = true
		p.touched = append(p.touched, place)
	}
}

// kick starts what can start on the devices that something happened to.
func (p *Policy) kick(now int64, out *policy.Actions) {
	for i := 0; i < len(p.touched); i++ {
		place := p.touched[i]
		p.touch[place] = false
		if d := &p.devices[place]; !d.down {
			p.run(place, now, out)
			p.loadNext(place, now, out)
		}
	}
	p.touched = p.touched[:0]
}

// runnable tells whether a task in a device's queue may run there.
func (p *Policy) runnable(d *device, k *task) bool {
	return k.slot >= 0 && k.pending == 0 && k.arrived == k.place && d.loaded[p.fleet.services[k.service].network]
}

// run starts a batch: the first task in the queue that may run, with all of its
// service that may run.
func (p *Policy) run(place int32, now int64, out *policy.Actions) {
	d := &p.devices[place]
	if d.busy {
		return
	}
	first := int32(len(out.Tasks))
	service, most, work := int32(-1), 0, int64(0)
	kept := d.queue[:0]
	for _, id := range d.queue {
		k := &p.tasks[id]
		if len(d.batch) == most && service >= 0 || service >= 0 && k.service != service || !p.runnable(d, k) {
			kept = append(kept, id)
			continue
		}
		service, most = k.service, int(p.fleet.services[k.service].most)
		k.state, work = running, max(work, k.work)
		d.batch, out.Tasks = append(d.batch, id), append(out.Tasks, k.slot)
	}
	d.queue = kept
	if service < 0 {
		return
	}
	n := int32(len(d.batch))
	d.busy, d.dirty, d.service = true, true, service
	d.ends = now + p.fleet.cost(service, place, n, work)
	d.last[p.fleet.services[service].network] = now
	for _, id := range d.batch {
		p.tasks[id].end = d.ends
	}
	sv := &p.fleet.services[service]
	start := time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: sv.pipeline, Model: -1, Batch: place, Size: n, Device: p.fleet.ids[place],
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: sv.stage, Device: p.fleet.ids[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(d.ends)})
}
