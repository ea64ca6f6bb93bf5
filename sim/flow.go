package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// flowEnding is the ending of plans whose requests have several tasks: a Control reveals which tasks come next. It
// implements endingRule and policy.TaskHost, by which the ledger of tasks calls it.
type flowEnding struct {
	loop     *loop
	ledger   *ledger
	control  policy.Control
	records  []taskRecord   // by task
	stats    *flowStats     // nil for plans of other kinds
	work     *workflowStats // nil if the plan has no workflows
	sessions *sessionStore  // nil if no service keeps session states
	// device of the batch that ends, and its pipeline
	device, pipeline int32
}

// taskRecord holds what the simulator knows of a task beside the ledger.
type taskRecord struct {
	work       int64         // work in millionths of the usual work; 0 stands for the usual
	revealedAt time.Duration // when the task became known
	placedAt   time.Duration // when the policy chose its device
	endedAt    time.Duration
	state      sessionState // what its service keeps of the request behind it
	// For a task of a language model: tokens of its prompt and answer, 0 for the usual
	// number, and the step that asks for it, plus one.
	prompt, output, ask int32
}

// newFlowEnding returns the ending rule for requests with several tasks, which says what follows when a batch has ended,
// and enters it into the run as run.flow. It also makes the collectors of figures and the store of session states, each
// nil if the plan has no use for it. If the run has no Control, which knows what follows a task, it returns nil.
func newFlowEnding(run *loop) endingRule {
	if run.cfg.Control == nil {
		return nil
	}
	run.flow = &flowEnding{loop: run, ledger: &run.ledger, control: run.cfg.Control}
	run.ledger.tasks.Host = run.flow
	run.flow.stats, run.flow.work, run.flow.sessions = newFlowStats(run), newWorkflowStats(run), newSessionStore(run.flow)
	return run.flow
}

// beginRequest reveals the first tasks of a request, unless the policy dropped the request
// already.
func (f *flowEnding) beginRequest(req, model int32) {
	if f.ledger.requests[req].state == requestOpen {
		f.control.BeginRequest(req, model, &f.ledger.tasks.Reveals)
		f.ledger.tasks.RevealTasks()
	}
}

// batchRan counts the times of a batch that has ended on a device, ends its tasks, and reveals the tasks that follow.
// The run itself may have ended earlier than now, by reportDelay. It implements endingRule. What a language model ran is
// counted by its iterations elsewhere, so f.work leaves it out.
func (f *flowEnding) batchRan(batchSlot, device int32) {
	loop := f.loop
	batch := loop.batches.at(batchSlot)
	end := loop.agenda.now - batch.reportDelay
	if f.stats != nil {
		f.stats.addBatch(batch.service, end-loop.currentEntry.start, loop.batches.members(batchSlot))
	}
	if f.work != nil && flows.WorkflowTablesOf(loop.tables).LanguageModelOf(batch.service) == nil {
		f.work.addBatch(batch.service, device, loop.currentEntry.start, end, len(loop.batches.members(batchSlot)))
	}
	// FollowTask, which FinishTasks calls for every task, reads the device and the pipeline from here.
	f.device, f.pipeline = device, batch.pipeline
	f.ledger.tasks.FinishTasks(loop.batches.members(batchSlot))
}

// LeaveBatch takes a task out of its batch and gives it a new state; it returns whether the task's request is still
// open. It implements policy.TaskHost.
func (f *flowEnding) LeaveBatch(task int32, newState policy.TaskState) bool {
	return f.ledger.leaveBatch(task, newState)
}

// FollowTask is called for each task that has ended, to find out what follows: it stores the session state that the task
// leaves, and tells the Control the outcome that the run's truth has for it. It implements policy.TaskHost. The device
// and the pipeline of its batch are in f.device and f.pipeline, where batchRan has put them. Without a truth the outcome
// is 0.
func (f *flowEnding) FollowTask(task int32) {
	loop := f.loop
	f.ledger.locations[task].device, f.records[task].endedAt = f.device, loop.agenda.now
	if f.sessions != nil {
		f.sessions.storeState(task, f.device)
	}
	var outcome policy.Outcome
	if loop.truth != nil {
		outcome, _ = loop.truth.Outcome(f.ledger.tasks.List[task].Req, task, f.pipeline)
	}
	f.control.TaskEnded(task, outcome, &f.ledger.tasks.Reveals)
}

// dropTasks ends all tasks of a request that the policy has dropped. task is the task because of which it was dropped, or
// -1 if it was dropped at its arrival or by its client.
func (f *flowEnding) dropTasks(req, task int32) {
	if f.stats != nil {
		f.stats.addDrop(req, task)
	}
	f.ledger.tasks.ForgetRequest(f.control, req)
}

// RequestModel returns the model of a request, and whether the request is open. It implements policy.TaskHost.
func (f *flowEnding) RequestModel(req int32) (model int32, open bool) {
	request := &f.ledger.requests[req]
	return request.model, request.state == requestOpen
}

// HandleEvent tells the policy an event about a task. It implements policy.TaskHost.
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

// NoteTask records a task that has just been revealed (its inputs have ended), before the policy hears of it: its work
// relative to the usual one, the tokens of its prompt and output, the time, and the step that asks a language model for
// it (ask: its index in GenerationSteps plus 1, or 0 if none does). It implements policy.TaskHost.
func (f *flowEnding) NoteTask(revealed *policy.RevealedTask) {
	loop := f.loop

	// Make sure that the tables have its slot.
	for int(revealed.Task) >= len(f.ledger.locations) {
		f.ledger.locations = append(f.ledger.locations, taskLocation{})
	}
	for int(revealed.Task) >= len(f.records) {
		f.records = append(f.records, taskRecord{})
	}

	// Count it.
	if f.stats != nil {
		f.stats.totals.Modules[revealed.Service].Requests++
	}
	if f.work != nil {
		f.work.countTask(revealed.Service)
	}

	// Enter what is known of it. It has run no stage yet (-1).
	f.ledger.locations[revealed.Task] = taskLocation{lastStage: -1}
	record := &f.records[revealed.Task]
	record.work, record.revealedAt = revealed.Work, loop.agenda.now
	record.prompt, record.output, record.ask = revealed.Prompt, revealed.Output, revealed.Ask
	if f.sessions != nil {
		f.sessions.taskRevealed(revealed.Task)
	}
}

// ForgetTask discards the session state of a task that nothing will read any more. It implements policy.TaskHost.
func (f *flowEnding) ForgetTask(task int32) {
	if f.sessions != nil {
		f.sessions.discard(task)
	}
}

// placeTask carries out the policy's action Place: the inputs of a task move to a device as soon as they are ready. A
// task that does not wait ends the run with an error.
func (f *flowEnding) placeTask(task, device int32) {
	if !f.ledger.tasks.IsWaiting(task) {
		f.loop.failRun(fmt.Errorf("the policy places task slot %d, which does not wait", task))
		return
	}
	f.records[task].placedAt = f.loop.agenda.now
	f.ledger.tasks.PlaceInputs(task, device)
}

// BringInputs lets the host of a device bring the inputs of a task there, all of which are ready. It implements
// policy.TaskHost.
func (f *flowEnding) BringInputs(task, device int32) {
	f.loop.hosts[f.loop.hostByDevice[device]].bringInputs(task, device)
}

// inputsArrived tells the policy that the inputs of a task are at a device. It does nothing if the task has ended or was
// placed elsewhere meanwhile: then the ticket of the placement, which the entry has as its epoch, is an old one.
func (f *flowEnding) inputsArrived(entry *agendaEntry) {
	loop, task := f.loop, entry.task()
	if !f.ledger.tasks.IsPlaceCurrent(task, entry.epoch) {
		return
	}
	state := &f.ledger.tasks.List[task]
	ev := loop.beginEvent(policy.TransferFinished)
	ev.Model, ev.Service, ev.Req, ev.Task = f.ledger.requests[state.Req].model, state.Service, state.Req, task
	ev.Batch, ev.Device, ev.Start, ev.End = -1, entry.device, entry.start, loop.agenda.now
	loop.tellPolicy()
}

// completeRequest returns an error, because such requests end with their last task and not by an action of the
// policy. It implements endingRule.
func (*flowEnding) completeRequest(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which ends with its last task", req)
}

// switchMode returns an error, because plans of this kind have no modes, such as gears, to switch to. It implements endingRule.
func (*flowEnding) switchMode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

// addResult puts the figures of the run's applications into the result: those of modules, of devices, of session
// states and of language models, as far as the plan has these. It implements endingRule and is called at the end of
// a run.
func (f *flowEnding) addResult(result *Result) {
	if f.stats != nil {
		f.stats.addResult(result)
	}
	if f.work != nil {
		f.work.addResult(result)
	}
	if f.sessions != nil {
		f.sessions.addResult(result)
	}
	if engines := f.loop.baseHost.engines; engines != nil {
		engines.stats.addResult(result)
	}
}

// checkIdle returns an error if slots of tasks or session states are in use at the end of a run, when no request is left.
func (f *flowEnding) checkIdle() error {
	if slotsInUse := f.ledger.tasks.Reveals.SlotsInUse(); slotsInUse > 0 {
		return fmt.Errorf("%d slots of tasks are in use when no request is left", slotsInUse)
	}
	if f.sessions != nil {
		return f.sessions.checkEmpty()
	}
	return nil
}
