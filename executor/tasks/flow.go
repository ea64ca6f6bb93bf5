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
type TaskAnswerer struct {
	applicationAnswerer
	TaskStore
	control policy.Control
	// outcomeFunc computes the outcome of a task from its outputs. If it is nil, nothing depends on them.
	outcomeFunc   func(service int32, outputs [][]byte) policy.Outcome
	requests      []taskRequest // by request slot
	outputScratch [][]byte      // scratch: outputs of a task
}

// taskRequest is the part of a request that plans with tasks need.
type taskRequest struct {
	runningTasks  int32         // tasks in batches
	lastTask      int32         // the task that ended last; -1 if none
	answeredParts uint64        // bits of the answer parts that are complete
	inferTime     time.Duration // sum over its batches
	gatherTime    time.Duration // likewise
	toldAt        time.Duration // when the policy was told the end of its last batch
}

// Answer returns the answerer for plans whose requests have several tasks (runs of models): applications and workflows.
// If requests of the core's plan have one task each, it returns nil. If the plan can only be simulated, because it lacks
// models or conditions, it returns an error.
func (o *Options) Answer(c *turn.Core, _ *formats.Plan) (turn.Answerer, error) {
	if c.Control == nil {
		return nil, nil
	}
	if workflows := flows.WorkflowTablesOf(c.Tables); workflows != nil {
		if err := workflows.CheckServable(c.Tables); err != nil {
			return nil, fmt.Errorf("%w: %w: %w", turn.ErrPlan, turn.ErrSimulatedOnly, err)
		}
	}
	if o.OnStart != nil {
		o.OnStart(o.StoreBytes)
	}
	f := &TaskAnswerer{control: c.Control, outcomeFunc: o.OutcomeOf, TaskStore: TaskStore{services: c.Services, maxBytes: o.StoreBytes, Apps: applications{computesOutcomes: o.OutcomeOf != nil}}}
	f.Tasks.Host = f
	f.applicationAnswerer = applicationAnswerer{core: c, store: &f.TaskStore, Modules: newModuleMetrics(c)}
	return f, nil
}

func (*TaskAnswerer) PolicyTold(*turn.Batch) {}

// RevealedAt returns since when a task waits: since the policy was told of it.
func (f *TaskAnswerer) RevealedAt(task int32) time.Duration { return f.facts[task].revealedAt }

func (f *TaskAnswerer) CompleteRequest(slot int32) {
	f.core.Options.Log.Error("the policy completed a request that its last task answers", "request", slot)
}

// JobArrived prepares the records of a new job's requests, one for each sample, at the indexes that are their request
// slots. For applications it also drops the answer's state, which a pooled job may still have from an earlier request.
// The core calls it when it takes the job from its inbox.
func (f *TaskAnswerer) JobArrived(j *turn.Job) {
	for _, slot := range j.Slots {
		for int(slot) >= len(f.requests) {
			f.requests = append(f.requests, taskRequest{})
		}
		f.requests[slot] = taskRequest{lastTask: -1}
	}
	if f.Apps.apps != nil {
		j.AnswerState = nil
	}
}

// RequestModel implements policy.TaskHost: it returns the model (application) that the request in a slot asks for,
// and whether the request is open.
func (f *TaskAnswerer) RequestModel(slot int32) (model int32, open bool) {
	if q := f.core.Ledger.RequestIn(slot); q != nil {
		return q.Job.Model.Index, !q.IsDropped
	}
	return 0, false
}

// controlOf returns the Control of a request: its program, or that of the plan.
func (f *TaskAnswerer) controlOf(slot int32) policy.Control {
	if program := f.core.Ledger.RequestIn(slot).Job.Program; program != nil {
		return program
	}
	return f.control
}

// RequestArrived begins a request: it reveals its first tasks to the policy.
func (f *TaskAnswerer) RequestArrived(slot int32) {
	if model, open := f.RequestModel(slot); open {
		f.advance(func() { f.controlOf(slot).BeginRequest(slot, model, &f.Tasks.Reveals) })
		f.Tasks.RevealTasks()
	}
}

// RequestOf returns the request of a task. If there is no such task, it returns -1.
func (f *TaskAnswerer) RequestOf(task int32) int32 {
	if task < 0 || int(task) >= len(f.Tasks.List) {
		return -1
	}
	return f.Tasks.List[task].Req
}

// EnterBatch records that the tasks of a batch (runs of a module for a request) have entered it, with the time that each
// has waited. A request counts as running while at least one of its tasks is in a batch, and else as waiting.
func (f *TaskAnswerer) EnterBatch(b *turn.Batch) {
	for _, t := range b.Tasks {
		task := &f.Tasks.List[t]
		task.State = policy.TaskBatched
		f.Modules.countEntered(task.Service, b.DispatchedAt-f.facts[t].revealedAt)
		if f.requests[task.Req].runningTasks++; f.requests[task.Req].runningTasks == 1 {
			m := f.core.Ledger.RequestIn(task.Req).Job.Model
			m.Waiting.Add(-1)
			m.Running.Add(1)
		}
	}
}

// LeaveBatch implements policy.TaskHost: task t (its slot) leaves its batch, to wait again or ended, as state says. It
// returns true if the request goes on. If the policy has dropped the request, it returns false, and the request's slot
// is freed with the last of its tasks in batches.
func (f *TaskAnswerer) LeaveBatch(t int32, state policy.TaskState) bool {
	task := &f.Tasks.List[t]
	q := f.core.Ledger.RequestIn(task.Req)
	task.State = state
	if state == policy.TaskWaiting && !q.IsDropped {
		f.Modules.countWaiting(task.Service, true)
	} else {
		f.Modules.countEnded(task.Service)
	}
	r := &f.requests[task.Req]
	if r.runningTasks--; r.runningTasks == 0 {
		q.Job.Model.Running.Add(-1)
		q.Job.Model.Waiting.Add(1)
	}
	if !q.IsDropped {
		return true
	}
	task.State = policy.TaskUnused
	if r.runningTasks == 0 {
		f.core.Ledger.FreeRequest(task.Req)
	}
	return false
}

// RequeueBatch makes the tasks of a batch that did not run wait with the policy again. Outputs that nobody will
// read any more are released.
func (f *TaskAnswerer) RequeueBatch(b *turn.Batch) {
	for _, t := range b.Tasks {
		if !f.LeaveBatch(t, policy.TaskWaiting) {
			f.Tasks.ReleaseIfUnread(t)
		}
	}
}

// BatchFailed returns false: the policy is told of a batch that is returned.
func (*TaskAnswerer) BatchFailed(*turn.Batch, policy.DropReason, error) bool { return false }

// DropRequest ends the request of a slot that the policy gives up, wherever its tasks are. The tasks are forgotten. The
// slot is freed now if none of them is in a batch, and else when the last of those batches ends. A second call does
// nothing.
func (f *TaskAnswerer) DropRequest(slot int32) {
	q := f.core.Ledger.RequestIn(slot)
	if q.IsDropped {
		return
	}
	q.IsDropped = true
	control := f.controlOf(slot)
	if f.requests[slot].runningTasks == 0 {
		f.core.Ledger.FreeRequest(slot)
	}
	f.Tasks.ForgetRequest(control, slot)
}

// TakeOutputs copies the outputs of a finished batch to the store, where the tasks of later modules read them, and
// counts the batch and its times. A request whose outputs have no space in the store is refused. Outputs of answered
// requests are not copied.
func (f *TaskAnswerer) TakeOutputs(b *turn.Batch, out turn.BatchOutputs) {
	c := f.core
	begin := c.Loop.Now()
	for k, t := range b.Tasks {
		req := f.Tasks.List[t].Req
		r, j := &f.requests[req], c.Ledger.RequestIn(req).Job
		r.inferTime, r.gatherTime = r.inferTime+b.InferTime, r.gatherTime+b.GatherTime
		if !j.Answered && !f.storeOutputs(t, k, out) {
			c.Ledger.RefuseJob(j, policy.ReasonQueueFull)
		}
	}
	for i := range b.Service.Outputs {
		c.Stats.Egress.Bytes += int64(b.Service.Outputs[i].Bytes * len(b.Tasks))
	}
	c.Stats.Egress.Count++
	f.Modules.countBatch(b.Service.Index, b.InferTime)
	b.CopyTime = c.Loop.Now() - begin
	c.Stats.RecordBatch(b)
}

// outcome returns the outcome of task t, which has ended: the branch and the number of items, on which the next tasks of
// the request depend. It is computed from the task's outputs by the option OutcomeOf, or else is the result of the step
// behind its model.
func (f *TaskAnswerer) outcome(t int32) policy.Outcome {
	task := &f.Tasks.List[t]
	if f.outcomeFunc == nil || f.facts[t].outputs == nil {
		return policy.Outcome{Branch: f.outcomeOf(t, f.core.Ledger.RequestIn(task.Req).Job.Model.Index)}
	}
	f.outputScratch = f.outputScratch[:0]
	for i := range f.core.Services[task.Service].Outputs {
		f.outputScratch = append(f.outputScratch, f.outputOf(t, i))
	}
	return f.outcomeFunc(task.Service, f.outputScratch)
}

// BatchEnded ends the tasks of a batch and reveals the tasks that follow.
func (f *TaskAnswerer) BatchEnded(b *turn.Batch, _ int32) {
	f.core.Stats.RecordReport(b, f.core.Loop.Now())
	f.Tasks.FinishTasks(b.Tasks)
}

// FollowTask implements policy.TaskHost: task t has ended, so it adds t's outputs to the answer if they belong
// there, and reveals the tasks that follow.
func (f *TaskAnswerer) FollowTask(t int32) {
	req := f.Tasks.List[t].Req
	r := &f.requests[req]
	r.lastTask, r.toldAt = t, f.core.Loop.Now()
	f.takePart(t, r)
	f.advance(func() { f.controlOf(req).TaskEnded(t, f.outcome(t), &f.Tasks.Reveals) })
}

// NoteTask implements policy.TaskHost: a task has become known, so it records the facts about it and counts it as
// waiting.
func (f *TaskAnswerer) NoteTask(r *policy.RevealedTask) {
	for int(r.Task) >= len(f.facts) {
		f.facts = append(f.facts, taskFacts{})
	}
	f.facts[r.Task] = taskFacts{item: r.Item, generationStep: r.Ask, revealedAt: f.core.Loop.LastTime()}
	f.Modules.countWaiting(r.Service, false)
}

// ForgetTask implements policy.TaskHost: a task is over and nobody reads its outputs, so it removes them. A task
// that still waited counts as given up.
func (f *TaskAnswerer) ForgetTask(t int32) {
	if f.Tasks.IsWaiting(t) {
		f.Modules.countGivenUp(f.Tasks.List[t].Service)
	}
	f.discardTask(t)
}

// HandleEvent implements policy.TaskHost.
func (f *TaskAnswerer) HandleEvent(ev policy.Event) { f.core.Loop.TellPolicy(ev) }

// AnswerRequest implements policy.TaskHost: a request is complete, so it answers the request's job if this was its
// last sample. Its slot is freed when no task is in a batch.
func (f *TaskAnswerer) AnswerRequest(req int32) {
	c := f.core
	q, r := c.Ledger.RequestIn(req), &f.requests[req]
	if j := q.Job; !j.Answered {
		f.completeAnswer(req, q, r)
		if j.RemainingSamples--; j.RemainingSamples == 0 {
			now := c.Loop.Now()
			j.Outcome, j.IsLate = turn.OutcomeServed, now > j.Deadline
			c.Stats.RecordServedTasks(j, r.inferTime, r.gatherTime, now, r.toldAt)
			c.Ledger.AnswerJob(j)
		}
	}
	q.IsDropped = true
	if r.runningTasks == 0 {
		c.Ledger.FreeRequest(req)
	}
}

// PlaceInputs has the inputs of a task brought to a device as soon as they exist, as the policy asks. A task that
// does not wait is an error of the policy.
func (f *TaskAnswerer) PlaceInputs(t, device int32) {
	if f.Tasks.IsWaiting(t) {
		f.Tasks.PlaceInputs(t, device)
	} else {
		f.core.Options.Log.Error("the policy placed a task that does not wait", "task", t)
	}
}

// BringInputs implements policy.TaskHost.
func (f *TaskAnswerer) BringInputs(t, device int32) {
	f.core.Backends.BackendOf(device).PlaceInputs(t, device, f.Tasks.List[t].Ticket)
}

// InputsPlaced completes the event that a task's inputs are at a device. It returns false if the task is over, or was
// placed elsewhere meanwhile.
func (f *TaskAnswerer) InputsPlaced(ev *policy.Event, ticket int32) bool {
	if !f.Tasks.IsPlaceCurrent(ev.Task, ticket) {
		return false
	}
	task := &f.Tasks.List[ev.Task]
	ev.Req, ev.Service, ev.Model = task.Req, task.Service, f.core.Ledger.RequestIn(task.Req).Job.Model.Index
	return true
}
