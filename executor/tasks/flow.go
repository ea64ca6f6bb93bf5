package tasks

import (
	"fmt"
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// TaskAnswerer is the answerer of plans whose requests have several tasks. A Control decides which tasks come next.
// Tasks have slots of their own, and their outputs are in the store until no task will read them. It implements
// policy.TaskHost.
type Flow struct {
	ensemble
	Tasks
	control policy.Control
	// outcomeFunc computes the outcome of a task from its outputs. If it is nil, nothing depends on them.
	judge    func(service int32, outputs [][]byte) policy.Outcome
	requests []flowRequest // by request slot
	first    [][]byte      // scratch: outputs of a task
}

// taskRequest is the part of a request that plans with tasks need.
type flowRequest struct {
	running int32         // tasks in batches
	last    int32         // the task that ended last; -1 if none
	ends    uint64        // bits of the answer parts that are complete
	infer   time.Duration // sum over its batches
	gather  time.Duration // likewise
	since   time.Duration // when the policy was told the end of its last batch
}

// Answer returns the answerer of a core's plan. If its requests have one task each, it returns nil.
func (o *Options) Answer(c *turn.Core, _ *formats.Plan) (turn.Answer, error) {
	if c.Control == nil {
		return nil, nil
	}
	if workflows := flows.WorkflowsOf(c.Tables); workflows != nil {
		if err := workflows.Servable(c.Tables); err != nil {
			return nil, fmt.Errorf("%w: %w: %w", turn.ErrPlan, turn.ErrSimulatedOnly, err)
		}
	}
	if o.Keeps != nil {
		o.Keeps(o.StoreBytes)
	}
	f := &Flow{control: c.Control, judge: o.Judge, Tasks: Tasks{services: c.Services, limit: o.StoreBytes, Apps: applications{judged: o.Judge != nil}}}
	f.Host = f
	f.ensemble = ensemble{c: c, made: &f.Tasks, Modules: newModuleMetrics(c)}
	return f, nil
}

func (*Flow) Told(*turn.Batch) {}

func (f *Flow) Complete(slot int32) {
	f.c.Options.Log.Error("the policy completed a request that its last task answers", "request", slot)
}

// JobArrived prepares the records of a job's requests.
func (f *Flow) Arrive(j *turn.Job) {
	for _, slot := range j.Slots {
		for int(slot) >= len(f.requests) {
			f.requests = append(f.requests, flowRequest{})
		}
		f.requests[slot] = flowRequest{last: -1}
	}
	if f.Apps.list != nil {
		j.Side = nil
	}
}

// Open implements policy.TaskHost.
func (f *Flow) Open(slot int32) (model int32, open bool) {
	if q := f.c.Request(slot); q != nil {
		return q.Job.Model.Index, !q.Gone
	}
	return 0, false
}

// controlOf returns the Control of a request: its program, or that of the plan.
func (f *Flow) controlOf(slot int32) policy.Control {
	if program := f.c.Request(slot).Job.Program; program != nil {
		return program
	}
	return f.control
}

// RequestArrived reveals the first tasks of a request.
func (f *Flow) Begin(slot int32) {
	if model, open := f.Open(slot); open {
		f.lead(func() { f.controlOf(slot).Begin(slot, model, &f.Reveals) })
		f.Reveal()
	}
}

// RequestOf returns the request of a task. If there is no such task, it returns -1.
func (f *Flow) RequestOf(task int32) int32 {
	if task < 0 || int(task) >= len(f.List) {
		return -1
	}
	return f.List[task].Req
}

// EnterBatch records that tasks are in a batch.
func (f *Flow) Enter(b *turn.Batch) {
	for _, t := range b.Tasks {
		ta := &f.List[t]
		ta.State = policy.TaskBatched
		f.Modules.enters(ta.Service, b.Dispatched-f.facts[t].since)
		if f.requests[ta.Req].running++; f.requests[ta.Req].running == 1 {
			m := f.c.Request(ta.Req).Job.Model
			m.Waiting.Add(-1)
			m.Running.Add(1)
		}
	}
}

// Leave implements policy.TaskHost: a task leaves its batch. A request that the policy has dropped frees its slot with
// the last of its tasks.
func (f *Flow) Leave(t int32, then policy.TaskState) bool {
	ta := &f.List[t]
	q := f.c.Request(ta.Req)
	ta.State = then
	if then == policy.TaskWaiting && !q.Gone {
		f.Modules.comes(ta.Service, true)
	} else {
		f.Modules.ends(ta.Service)
	}
	r := &f.requests[ta.Req]
	if r.running--; r.running == 0 {
		q.Job.Model.Running.Add(-1)
		q.Job.Model.Waiting.Add(1)
	}
	if !q.Gone {
		return true
	}
	ta.State = policy.TaskUnused
	if r.running == 0 {
		f.c.Settle(ta.Req)
	}
	return false
}

// RequeueBatch makes the tasks of a batch wait with the policy again.
func (f *Flow) Again(b *turn.Batch) {
	for _, t := range b.Tasks {
		if !f.Leave(t, policy.TaskWaiting) {
			f.Left(t)
		}
	}
}

// BatchFailed returns false: the policy is told of a batch that is returned.
func (*Flow) Failed(*turn.Batch, policy.Reason, error) bool { return false }

// DropRequest ends a request, wherever its tasks are.
func (f *Flow) Drop(slot int32) {
	q := f.c.Request(slot)
	if q.Gone {
		return
	}
	q.Gone = true
	control := f.controlOf(slot)
	if f.requests[slot].running == 0 {
		f.c.Settle(slot)
	}
	f.Forget(control, slot)
}

// TakeOutputs copies the outputs of a batch to the store. A request whose outputs have no space there is refused.
func (f *Flow) Ran(b *turn.Batch, out turn.Outputs) {
	c := f.c
	begin := c.Now()
	for k, t := range b.Tasks {
		req := f.List[t].Req
		r, j := &f.requests[req], c.Request(req).Job
		r.infer, r.gather = r.infer+b.Infer, r.gather+b.Gather
		if !j.Answered && !f.keep(t, k, out) {
			c.Refuse(j, policy.ReasonQueueFull)
		}
	}
	for i := range b.Service.Outputs {
		c.Stats.Egress.Bytes += int64(b.Service.Outputs[i].Bytes * len(b.Tasks))
	}
	c.Stats.Egress.N++
	f.Modules.ran(b.Service.Index, b.Infer)
	b.Answer = c.Now() - begin
	c.Stats.BatchDone(b)
}

// outcome returns the outcome of a task that has ended.
func (f *Flow) outcome(t int32) policy.Outcome {
	ta := &f.List[t]
	if f.judge == nil || f.facts[t].made == nil {
		return policy.Outcome{Branch: f.way(t, f.c.Request(ta.Req).Job.Model.Index)}
	}
	f.first = f.first[:0]
	for i := range f.c.Services[ta.Service].Outputs {
		f.first = append(f.first, f.output(t, i))
	}
	return f.judge(ta.Service, f.first)
}

// BatchEnded ends the tasks of a batch and reveals the tasks that follow.
func (f *Flow) Ended(b *turn.Batch, _ int32) {
	f.c.Stats.Told(b, f.c.Now())
	f.Finish(b.Tasks)
}

// Follow implements policy.TaskHost.
func (f *Flow) Follow(t int32) {
	req := f.List[t].Req
	r := &f.requests[req]
	r.last, r.since = t, f.c.Now()
	f.answer(t, r)
	f.lead(func() { f.controlOf(req).Ended(t, f.outcome(t), &f.Reveals) })
}

// Revealed implements policy.TaskHost.
func (f *Flow) Revealed(r *policy.Reveal) {
	for int(r.Task) >= len(f.facts) {
		f.facts = append(f.facts, facts{})
	}
	f.facts[r.Task] = facts{item: r.Item, ask: r.Ask, since: f.c.Last()}
	f.Modules.comes(r.Service, false)
}

// Freed implements policy.TaskHost.
func (f *Flow) Freed(t int32) {
	if f.Waits(t) {
		f.Modules.forsaken(f.List[t].Service)
	}
	f.discard(t)
}

// Tell implements policy.TaskHost.
func (f *Flow) Tell(ev policy.Event) { f.c.Tell(ev) }

// Answer implements policy.TaskHost: it answers a request with what its last task made.
func (f *Flow) Answer(req int32) {
	c := f.c
	q, r := c.Request(req), &f.requests[req]
	if j := q.Job; !j.Answered {
		f.complement(req, q, r)
		if j.Left--; j.Left == 0 {
			now := c.Now()
			j.Outcome, j.Late = turn.Served, now > j.Deadline
			c.Stats.ServedBy(j, r.infer, r.gather, now, r.since)
			c.Answer(j)
		}
	}
	q.Gone = true
	if r.running == 0 {
		c.Settle(req)
	}
}

// PlaceInputs has a task's inputs brought to a device as soon as they exist.
func (f *Flow) Place(t, device int32) {
	if f.Waits(t) {
		f.Tasks.Place(t, device)
	} else {
		f.c.Options.Log.Error("the policy placed a task that does not wait", "task", t)
	}
}

// Bring implements policy.TaskHost.
func (f *Flow) Bring(t, device int32) { f.c.BackendOf(device).Place(t, device, f.List[t].Ticket) }

// InputsPlaced completes the event that a task's inputs are at a device. It returns false if the task is over, or was
// placed elsewhere meanwhile.
func (f *Flow) Placed(ev *policy.Event, ticket int32) bool {
	if !f.Awaits(ev.Task, ticket) {
		return false
	}
	ta := &f.List[ev.Task]
	ev.Req, ev.Service, ev.Model = ta.Req, ta.Service, f.c.Request(ta.Req).Job.Model.Index
	return true
}
