package tasks

import (
	"fmt"
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// Flow is the answer of plans whose requests have several tasks: a Control says
// which come next. Tasks have slots of their own, and what they make is in the
// store until no task will read it.
type Flow struct {
	ensemble
	control policy.Control
	// judge computes what became of a task from its outputs; nil: nothing
	// depends on them.
	judge    func(service int32, outputs [][]byte) policy.Outcome
	Tasks    taskTable
	requests []flowRequest // by request slot
	placing  []int32       // tasks that are to be brought somewhere once their inputs are there
	telling  bool
	Between  bool     // what is revealed follows from no batch's end
	first    [][]byte // room for the outputs of a task
}

// flowRequest is what a request has beside what all have.
type flowRequest struct {
	running int32  // of its tasks, in batches
	last    int32  // the task that ended last
	ends    uint64 // parts of the answer that are there
	infer   time.Duration
	gather  time.Duration
	since   time.Duration // when the end of its last batch was told
}

// Of is the answer of a core's plan, where a Control says which tasks its
// requests have.
func Of(c *turn.Core, _ *formats.Plan) (turn.Answer, error) {
	if c.Control == nil {
		return nil, nil
	}
	if workflows := flows.WorkflowsOf(c.Tables); workflows != nil {
		if err := workflows.Servable(c.Tables); err != nil {
			return nil, fmt.Errorf("%w: %w: %w", turn.ErrPlan, turn.ErrSimulatedOnly, err)
		}
	}
	if c.Options.Keeps != nil {
		c.Options.Keeps(c.Options.StoreBytes)
	}
	f := &Flow{control: c.Control, judge: c.Options.Judge, Tasks: taskTable{services: c.Services, Limit: c.Options.StoreBytes}}
	f.ensemble = ensemble{c: c, made: &f.Tasks, Modules: newModuleMetrics(c)}
	return f, nil
}

func (*Flow) Told(*turn.Batch) {}

func (f *Flow) Complete(slot int32) {
	f.c.Options.Log.Error("the policy completed a request that its last task answers", "request", slot)
}

// Arrive makes room for the requests of a job.
func (f *Flow) Arrive(j *turn.Job) {
	for _, slot := range j.Slots {
		for int(slot) >= len(f.requests) {
			f.requests = append(f.requests, flowRequest{})
		}
		f.requests[slot] = flowRequest{last: -1}
	}
	if f.Tasks.Steps.apps != nil || f.Tasks.Steps.Flows != nil {
		j.Side = nil
	}
}

// open tells whether the policy still has a request.
func (f *Flow) open(slot int32) bool {
	q := f.c.Ledger.At(slot)
	return q != nil && !q.Gone
}

// Begin reveals the first tasks of a request.
func (f *Flow) Begin(slot int32) {
	if !f.open(slot) {
		return
	}
	if s := f.c.Ledger.Requests[slot].Job.Program; s != nil {
		s.Begun(slot)
		return
	}
	f.lead(func() { f.control.Begin(slot, f.c.Ledger.Requests[slot].Job.Model.Index, &f.Tasks.Reveals) })
	f.Reveal()
}

func (f *Flow) RequestOf(task int32) int32 {
	if task < 0 || int(task) >= len(f.Tasks.List) {
		return -1
	}
	return f.Tasks.List[task].Request
}

// Enter notes the batch that tasks are in.
func (f *Flow) Enter(b *turn.Batch) {
	for _, t := range b.Tasks {
		ta := &f.Tasks.List[t]
		ta.state = taskInBatch
		f.Modules.enters(ta.Service, b.Dispatched-ta.since)
		if f.requests[ta.Request].running++; f.requests[ta.Request].running == 1 {
			m := f.c.Ledger.Requests[ta.Request].Job.Model
			m.Waiting.Add(-1)
			m.Running.Add(1)
		}
	}
}

// leave takes a task out of its batch. It tells whether the policy still has its
// request; one that it gave up gives its slot back with the last of its tasks.
func (f *Flow) leave(t int32, then taskState) bool {
	ta := &f.Tasks.List[t]
	q := &f.c.Ledger.Requests[ta.Request]
	ta.state = then
	if then == taskWaits && !q.Gone {
		f.Modules.comes(ta.Service, true)
	} else {
		f.Modules.ends(ta.Service)
	}
	r := &f.requests[ta.Request]
	if r.running--; r.running == 0 {
		q.Job.Model.Running.Add(-1)
		q.Job.Model.Waiting.Add(1)
	}
	if !q.Gone {
		return true
	}
	ta.state = taskUnused
	if r.running == 0 {
		f.c.Ledger.Settle(ta.Request)
	}
	return false
}

// Again: the tasks of a batch wait with the policy again.
func (f *Flow) Again(b *turn.Batch) {
	for _, t := range b.Tasks {
		if !f.leave(t, taskWaits) {
			f.Tasks.left(t)
		}
	}
}

// Failed: the policy hears of a batch that came back.
func (*Flow) Failed(*turn.Batch, policy.Reason, error) bool { return false }

// Drop ends a request wherever its tasks are.
func (f *Flow) Drop(slot int32) {
	q := &f.c.Ledger.Requests[slot]
	if q.Gone {
		return
	}
	q.Gone = true
	program := q.Job.Program
	if f.requests[slot].running == 0 {
		f.c.Ledger.Settle(slot)
	}
	if program != nil {
		f.Tasks.Reveals.Freed = program.Freed(f.Tasks.Reveals.Freed)
	} else {
		f.control.Forget(slot, &f.Tasks.Reveals)
	}
	if !f.telling {
		f.Reveal()
	}
}

// Ran copies what a batch gave to the store. A request whose outputs have no room
// there is refused.
func (f *Flow) Ran(b *turn.Batch, out turn.Outputs) {
	c := f.c
	begin := c.Now()
	for k, t := range b.Tasks {
		req := f.Tasks.List[t].Request
		r, j := &f.requests[req], c.Ledger.Requests[req].Job
		r.infer, r.gather = r.infer+b.Infer, r.gather+b.Gather
		if !j.Answered && !f.Tasks.keep(t, k, out) {
			c.Ledger.Refuse(j, policy.ReasonQueueFull)
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

// outcome says how a task ended.
func (f *Flow) outcome(t int32) policy.Outcome {
	ta := &f.Tasks.List[t]
	if f.judge == nil || ta.Made == nil {
		return policy.Outcome{Branch: f.Tasks.Steps.way(ta, f.c.Ledger.Requests[ta.Request].Job.Model.Index)}
	}
	f.first = f.first[:0]
	for i := range f.c.Services[ta.Service].Outputs {
		f.first = append(f.first, f.Tasks.output(t, i))
	}
	return f.judge(ta.Service, f.first)
}

// Ended ends the tasks of a batch and reveals what follows from them.
func (f *Flow) Ended(b *turn.Batch, _ int32) {
	now := f.c.Now()
	f.c.Stats.Told(b, now)
	for _, t := range b.Tasks {
		if !f.leave(t, taskEnded) {
			f.Tasks.late = append(f.Tasks.late, t)
			continue
		}
		r := &f.requests[f.Tasks.List[t].Request]
		r.last, r.since = t, now
		if s := f.c.Ledger.Requests[f.Tasks.List[t].Request].Job.Program; s != nil {
			s.Ended(t)
			continue
		}
		f.answer(t, r)
		f.lead(func() { f.control.Ended(t, f.outcome(t), &f.Tasks.Reveals) })
	}
	f.Reveal()
	// Slots come free behind what is revealed, so that nothing new has the slot of
	// a task whose batch is still to be told of.
	for _, t := range f.Tasks.late {
		f.Tasks.left(t)
	}
	f.Tasks.late = f.Tasks.late[:0]
	f.Bring()
}

// Reveal tells the policy of tasks that have become known and of requests that
// are over. Requests that it drops meanwhile are passed over.
func (f *Flow) Reveal() {
	f.telling = true
	for i := 0; i < len(f.Tasks.Reveals.Tasks); {
		n := i + 1
		for n < len(f.Tasks.Reveals.Tasks) && f.Tasks.Reveals.Tasks[n].Req == f.Tasks.Reveals.Tasks[i].Req {
			n++
		}
		f.tellTasks(i, n)
		i = n
	}
	for _, req := range f.Tasks.Reveals.Over {
		if f.open(req) {
			model := f.c.Ledger.Requests[req].Job.Model.Index
			f.respond(req)
			f.c.Handle(policy.Event{Kind: policy.ControlRevealed, Model: model, Req: req, Task: -1})
		}
	}
	for i := 0; i < len(f.Tasks.Reveals.Freed); i++ {
		if t := f.Tasks.Reveals.Freed[i]; f.Tasks.waits(t) {
			f.Modules.forsaken(f.Tasks.List[t].Service)
		}
		f.Tasks.free(f.Tasks.Reveals.Freed[i])
	}
	f.Tasks.Reveals.Reset()
	f.telling = false
}

// tellTasks tells of the tasks [from, to) of the list, all of one request.
func (f *Flow) tellTasks(from, to int) {
	for i := from; i < to; i++ {
		f.Tasks.add(&f.Tasks.Reveals.Tasks[i], f.c.Loop.Last())
		f.Modules.comes(f.Tasks.Reveals.Tasks[i].Service, false)
	}
	req := f.Tasks.Reveals.Tasks[from].Req
	if !f.open(req) {
		return
	}
	model := f.c.Ledger.Requests[req].Job.Model.Index
	ev := policy.Event{Kind: policy.ControlRevealed, Model: model, Req: req, Task: -1, Value: int64(to - from)}
	if f.Between {
		ev.Key = 1
	}
	f.c.Handle(ev)
	for i := from; i < to && f.open(req); i++ {
		t := &f.Tasks.Reveals.Tasks[i]
		f.c.Handle(policy.Event{Kind: policy.TaskRevealed, Model: model, Req: req, Task: t.Task, Service: t.Service, Value: t.Work, Key: t.Item, List: f.Tasks.Reveals.InputsOf(t)})
	}
}

// respond answers a request with what its last task made.
func (f *Flow) respond(req int32) {
	c := f.c
	q, r := &c.Ledger.Requests[req], &f.requests[req]
	if j := q.Job; !j.Answered {
		f.complement(req, q, r)
		if j.Left--; j.Left == 0 {
			now := c.Now()
			j.Outcome, j.Late = turn.Served, now > j.Deadline
			c.Stats.ServedBy(j, r.infer, r.gather, now, r.since)
			c.Ledger.Answer(j)
		}
	}
	q.Gone = true
	if r.running == 0 {
		c.Ledger.Settle(req)
	}
}

// Place has a task's inputs brought to a device as soon as they are there; an
// earlier place of the same task is forgotten.
func (f *Flow) Place(t, device int32) {
	if !f.Tasks.waits(t) {
		f.c.Options.Log.Error("the policy placed a task that does not wait", "task", t)
		return
	}
	ta := &f.Tasks.List[t]
	waits := ta.device >= 0
	ta.device = device
	ta.ticket++
	if f.Tasks.ready(t) {
		f.send(t)
	} else if !waits {
		f.placing = append(f.placing, t)
	}
}

// Bring sends what has become ready.
func (f *Flow) Bring() {
	kept := f.placing[:0]
	for _, t := range f.placing {
		switch {
		case !f.Tasks.waits(t) || f.Tasks.List[t].device < 0: // it is gone
		case f.Tasks.ready(t):
			f.send(t)
		default:
			kept = append(kept, t)
		}
	}
	f.placing = kept
}

func (f *Flow) send(t int32) {
	ta := &f.Tasks.List[t]
	device := ta.device
	ta.device = -1
	f.c.BackendOf(device).Place(t, device, ta.ticket)
}

// Placed completes the answer to a place, unless the task is gone or was sent
// elsewhere meanwhile.
func (f *Flow) Placed(ev *policy.Event, ticket int32) bool {
	ta := &f.Tasks.List[ev.Task]
	if !f.Tasks.waits(ev.Task) || ta.ticket != ticket {
		return false
	}
	ev.Req, ev.Service, ev.Model = ta.Request, ta.Service, f.c.Ledger.Requests[ta.Request].Job.Model.Index
	return true
}
