package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// flowEnding is the ending of plans whose requests have several tasks: a Control reveals
// which tasks come next. It implements policy.TaskHost.
type flowEnding struct {
	loop     *loop
	ledger   *ledger
	control  policy.Control
	records  []taskRecord   // by task
	stats    *flowStats     // nil for plans of other kinds
	work     *workflowStats // nil if the plan has no workflows
	sessions *sessionStore  // nil if no service keeps session states
	// Device and pipeline of the batch that ends.
	device, pipeline int32
}

// taskRecord holds what the simulator knows of a task beside the ledger.
type taskRecord struct {
	work       int64         // work in millionths of the usual work; 0 stands for the usual
	revealedAt time.Duration // when the task became known
	placedAt   time.Duration // when the policy chose its device
	endedAt    time.Duration
	state      sessionState
	// For a task of a language model: tokens of its prompt and answer, 0 for the usual
	// number, and the step that asks for it, plus one.
	prompt, output, ask int32
}

// newFlowEnding returns the ending rule for requests with several tasks, and nil if the run has no Control, which
// knows what follows a task.
func newFlowEnding(l *loop) endingRule {
	if l.cfg.Control == nil {
		return nil
	}
	l.flow = &flowEnding{loop: l, ledger: &l.ledger, control: l.cfg.Control}
	l.ledger.tasks.Host = l.flow
	l.flow.stats, l.flow.work, l.flow.sessions = newFlowStats(l), newWorkflowStats(l), newSessionStore(l.flow)
	return l.flow
}

// beginRequest reveals the first tasks of a request, unless the policy dropped the request
// already.
func (f *flowEnding) beginRequest(req, model int32) {
	if f.ledger.requests[req].state == requestOpen {
		f.control.BeginRequest(req, model, &f.ledger.tasks.Reveals)
		f.ledger.tasks.RevealTasks()
	}
}

// batchRan is called when a batch has ended. It counts its times, ends its tasks and reveals the tasks that follow.
// end is when the run itself ended, before the policy heard of it.
func (f *flowEnding) batchRan(slot, device int32) {
	l := f.loop
	b := l.batches.at(slot)
	end := l.agenda.now - b.reportDelay
	if f.stats != nil {
		f.stats.addBatch(b.service, end-l.current.start, l.batches.members(slot))
	}
	if f.work != nil && flows.WorkflowTablesOf(l.tables).LanguageModelOf(b.service) == nil {
		f.work.addBatch(b.service, device, l.current.start, end, len(l.batches.members(slot)))
	}
	f.device, f.pipeline = device, b.pipeline
	f.ledger.tasks.FinishTasks(l.batches.members(slot))
}

// LeaveBatch implements policy.TaskHost.
func (f *flowEnding) LeaveBatch(t int32, newState policy.TaskState) bool {
	return f.ledger.leaveBatch(t, newState)
}

// FollowTask is called for each task that has ended, to find out what follows: it stores the session state and
// tells the Control the outcome by the run's truth. It implements policy.TaskHost.
func (f *flowEnding) FollowTask(t int32) {
	l := f.loop
	f.ledger.locations[t].device, f.records[t].endedAt = f.device, l.agenda.now
	if f.sessions != nil {
		f.sessions.storeState(t, f.device)
	}
	var o policy.Outcome
	if l.truth != nil {
		o, _ = l.truth.Outcome(f.ledger.tasks.List[t].Req, t, f.pipeline)
	}
	f.control.TaskEnded(t, o, &f.ledger.tasks.Reveals)
}

// dropTasks ends the tasks of a request that was dropped because of one of them.
func (f *flowEnding) dropTasks(req, task int32) {
	if f.stats != nil {
		f.stats.addDrop(req, task)
	}
	f.ledger.tasks.ForgetRequest(f.control, req)
}

// RequestModel implements policy.TaskHost.
func (f *flowEnding) RequestModel(req int32) (model int32, open bool) {
	q := &f.ledger.requests[req]
	return q.model, q.state == requestOpen
}

// HandleEvent implements policy.TaskHost.
func (f *flowEnding) HandleEvent(ev policy.Event) {
	f.loop.event = ev
	f.loop.tellPolicy()
}

// AnswerRequest answers a request whose last task has ended. It implements policy.TaskHost.
func (f *flowEnding) AnswerRequest(req int32) {
	if f.stats != nil {
		f.stats.addAnswer(req)
	}
	f.loop.answerRequest(req)
}

// NoteTask records a task that has just been revealed, before the policy hears of it: its work, its tokens and the
// time. It implements policy.TaskHost.
func (f *flowEnding) NoteTask(t *policy.RevealedTask) {
	l := f.loop
	for int(t.Task) >= len(f.ledger.locations) {
		f.ledger.locations = append(f.ledger.locations, taskLocation{})
	}
	for int(t.Task) >= len(f.records) {
		f.records = append(f.records, taskRecord{})
	}
	if f.stats != nil {
		f.stats.totals.Modules[t.Service].Requests++
	}
	if f.work != nil {
		f.work.countTask(t.Service)
	}
	f.ledger.locations[t.Task] = taskLocation{lastStage: -1}
	record := &f.records[t.Task]
	record.work, record.revealedAt, record.prompt, record.output, record.ask = t.Work, l.agenda.now, t.Prompt, t.Output, t.Ask
	if f.sessions != nil {
		f.sessions.taskRevealed(t.Task)
	}
}

// ForgetTask implements policy.TaskHost.
func (f *flowEnding) ForgetTask(t int32) {
	if f.sessions != nil {
		f.sessions.discard(t)
	}
}

// placeTask handles the policy's action to place a task: its inputs move to a device as soon as they are ready. A
// task that does not wait is an error of the policy.
func (f *flowEnding) placeTask(t, device int32) {
	if !f.ledger.tasks.IsWaiting(t) {
		f.loop.failRun(fmt.Errorf("the policy places task slot %d, which does not wait", t))
		return
	}
	f.records[t].placedAt = f.loop.agenda.now
	f.ledger.tasks.PlaceInputs(t, device)
}

// BringInputs implements policy.TaskHost.
func (f *flowEnding) BringInputs(t, device int32) {
	f.loop.hosts[f.loop.hostByDevice[device]].bringInputs(t, device)
}

// inputsArrived tells the policy that the inputs of a task are at a device. It does nothing
// if the task has ended or was placed elsewhere meanwhile.
func (f *flowEnding) inputsArrived(entry *agendaEntry) {
	l, t := f.loop, entry.batch
	if !f.ledger.tasks.IsPlaceCurrent(t, entry.epoch) {
		return
	}
	ta := &f.ledger.tasks.List[t]
	ev := l.beginEvent(policy.TransferFinished)
	ev.Model, ev.Service, ev.Req, ev.Task = f.ledger.requests[ta.Req].model, ta.Service, ta.Req, t
	ev.Batch, ev.Device, ev.Start, ev.End = -1, entry.device, entry.start, l.agenda.now
	l.tellPolicy()
}

// completeRequest implements endingRule. Such requests end with their last task, so it fails.
func (*flowEnding) completeRequest(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which ends with its last task", req)
}

// switchMode implements endingRule. Such plans have no modes, so it fails.
func (*flowEnding) switchMode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

// addResult puts the figures of the run's applications into the result: those of modules, of devices, of session
// states and of language models, as far as the plan has these. It implements endingRule and is called at the end of
// a run.
func (f *flowEnding) addResult(r *Result) {
	if f.stats != nil {
		f.stats.addResult(r)
	}
	if f.work != nil {
		f.work.addResult(r)
	}
	if f.sessions != nil {
		f.sessions.addResult(r)
	}
	if g := f.loop.baseHost.engines; g != nil {
		g.stats.addResult(r)
	}
}

// checkIdle returns an error if slots of tasks are in use when no request is left.
func (f *flowEnding) checkIdle() error {
	if n := f.ledger.tasks.Reveals.SlotsInUse(); n > 0 {
		return fmt.Errorf("%d slots of tasks are in use when no request is left", n)
	}
	if f.sessions != nil {
		return f.sessions.checkEmpty()
	}
	return nil
}
