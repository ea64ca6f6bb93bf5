package workflow

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// HandledEvents is the set of events that the policy handles, as bits.
const Hears uint32 = 1<<policy.BatchFinished | 1<<policy.BatchReturned | 1<<policy.TransferFinished | 1<<policy.NetworkLoaded | 1<<policy.NetworkUnloaded |
	1<<policy.WorkerLost | 1<<policy.WorkerBack | 1<<policy.ControlRevealed | 1<<policy.TaskRevealed | 1<<policy.Arrival | 1<<policy.Cancel | 1<<policy.Timer

// Policy serves dynamic workflows.
type Policy struct {
	*cluster
	loads     *loads
	batches   *batches
	placement *placement
	door      *door

	late    []int32 // requests whose tasks were revealed before the end of their batch
	again   []int32 // requests to be planned anew
	offsets []int32 // scratch: inputs of a task, as offsets back
}

// New returns a policy over the tables of a plan of workflows. It has learnt the recorded paths of the tables.
func New(t *policy.Tables, opt Options) *Policy {
	if opt.Ahead == 0 {
		opt.Ahead = 16
	}
	p := &Policy{cluster: newCluster(t, opt)}
	if opt.Route != nil {
		p.route = opt.Route(Devices{p.cluster}, opt.Seed)
	}
	p.loads = &loads{cluster: p.cluster}
	p.door = newDoor(p.cluster)
	p.batches = &batches{cluster: p.cluster, loads: p.loads, door: p.door}
	p.placement = newPlacement(p.batches)
	p.door.table = p.placement.table
	p.begin()
	return p
}

// Table returns the prediction table.
func (p *Policy) Table() *predict.Table { return p.placement.table }

// Handle implements policy.Policy.
func (p *Policy) Handle(at time.Duration, ev *policy.Event, out *policy.Actions) {
	now := int64(at)
	switch ev.Kind {
	case policy.ControlRevealed:
		p.announce(now, ev)
	case policy.TaskRevealed:
		p.reveal(now, ev, out)
	case policy.BatchFinished:
		p.batches.finished(p.fleet.places[ev.Device], ev.Batch, now, out)
		p.flush(now, out)
	default:
		p.flush(now, out)
		p.other(now, ev, out)
	}
	p.batches.kick(now, out)
}

// handleOther handles the events that reveal nothing and end no batch.
func (p *Policy) other(now int64, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		// Open the request, and let admission decide.
		q := p.open(ev.Req)
		q.model, q.arrived, q.deadline = ev.Model, int64(ev.Arrived), int64(ev.Deadline)
		if ev.Key > 0 {
			q.feature = int32(ev.Key)
		}
		q.cursor = p.placement.table.Begin(q.model, q.feature)
		if p.route != nil {
			p.route.Arrived(now, out)
		}
		if in, again := p.door.admits(now, ev.Req); !in {
			p.drop(now, ev.Req, policy.ReasonDeadline, out)
			out.List[len(out.List)-1].At = time.Duration(again)
		}
	case policy.TransferFinished:
		p.batches.brought(ev)
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		p.loads.network(now, ev)
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
		} else if p.route != nil {
			p.route.Woke(now, out)
		}
	}
}

// handleControl notes that tasks of a request will be revealed, or that the request has been answered.
func (p *Policy) announce(now int64, ev *policy.Event) {
	q := &p.requests[ev.Req]
	if !q.open {
		return
	}
	if ev.Value > 0 {
		q.expect, q.segment, q.between = int32(ev.Value), 0, ev.Key != 0
		return
	}
	if p.opt.Predict {
		p.placement.table.Learn(q.model, q.feature, q.path, int(q.first))
	}
	p.door.answered(now, ev.Req)
	p.close(now, ev.Req)
}

// closeRequest ends a request and releases its tasks.
func (p *Policy) close(now int64, req int32) {
	q := &p.requests[req]
	p.door.leave(req)
	p.placement.forgetAhead(q)
	for _, id := range q.tasks {
		if p.tasks[id].state == queued {
			p.unqueue(id)
		}
		if s := p.tasks[id].state; s == known || s == queued || s == running {
			p.count(now, p.tasks[id].service, -1)
		}
		p.cluster.memos().forget(id)
		p.release(id)
	}
	q.open, q.tasks = false, q.tasks[:0]
}

// revealTask adds a revealed task to its request. After the last task of a segment the request is planned.
func (p *Policy) reveal(now int64, ev *policy.Event, out *policy.Actions) {
	q := &p.requests[ev.Req]
	if !q.open {
		return
	}

	// Add the task with its inputs.
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

	// Link its session state, and advance the prediction.
	p.cluster.memos().continues(id, ev.Value)
	p.cluster.memos().came(now, k)
	k.token = p.placement.table.Number(ev.Service, ev.Value, p.offsets)
	p.placement.table.Advance(&q.cursor, k.token)
	q.tasks, q.path = append(q.tasks, id), append(q.path, k.token)
	p.count(now, ev.Service, 1)
	p.asked(now, ev.Service)

	// Plan the request once the segment is complete.
	q.segment++
	if q.expect--; q.expect > 0 {
		return
	}
	if q.first == 0 {
		q.first = q.segment
	}
	p.door.revealed(q)
	for _, id := range q.tasks {
		if p.tasks[id].state == running && !q.between {
			p.late = append(p.late, ev.Req) // its batch is about to end
			return
		}
	}
	p.react(now, ev.Req, out)
}

// lastIndex returns the index of a task's last occurrence in a list. If it is not in the list, it returns -1.
func index(list []int32, id int32) int32 {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == id {
			return int32(i)
		}
	}
	return -1
}

// planRequest places what was revealed of a request, and drops the request if the options give it up.
func (p *Policy) react(now int64, req int32, out *policy.Actions) {
	switch {
	case !p.placement.react(now, req, out):
		p.strand(now, out)
	case p.placement.late(now, &p.requests[req]):
		p.drop(now, req, policy.ReasonDeadline, out)
	}
}

// planRevealedEarly plans the requests whose tasks were revealed before the end of their batch.
func (p *Policy) flush(now int64, out *policy.Actions) {
	for _, req := range p.late {
		if p.requests[req].open {
			p.react(now, req, out)
		}
	}
	p.late = p.late[:0]
}
