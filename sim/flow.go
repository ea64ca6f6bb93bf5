package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// flowEnding is the ending of plans whose requests have several tasks: a Control reveals
// which tasks come next. It implements policy.TaskHost.
type flow struct {
	l       *loop
	control policy.Control
	facts   []facts    // by task
	stats   *flowStats // nil for plans of other kinds
	work    *flowWork  // nil if the plan has no workflows
	kept    *sessions  // nil if no service keeps session states
	// Device and pipeline of the batch that ends.
	device, pipeline int32
}

// taskRecord holds what the simulator knows of a task beside the ledger.
type facts struct {
	work  int64         // work in millionths of the usual work; 0 stands for the usual
	known time.Duration // when the task became known
	asked time.Duration // when the policy chose its device
	ended time.Duration
	state sessionState
	// For a task of a language model: tokens of its prompt and answer, 0 for the usual
	// number, and the step that asks for it, plus one.
	prompt, output, ask int32
}

// newFlowEnding returns nil if the run has no Control.
func newFlow(l *loop) ending {
	if l.cfg.Control == nil {
		return nil
	}
	l.flow = &flow{l: l, control: l.cfg.Control}
	l.tasks.Host = l.flow
	l.flow.stats, l.flow.work, l.flow.kept = newFlowStats(l), newFlowWork(l), newSessions(l.flow)
	return l.flow
}

// beginRequest reveals the first tasks of a request, unless the policy dropped the request
// already.
func (f *flow) begin(req, model int32) {
	if f.l.requests[req].state == waiting {
		f.control.Begin(req, model, &f.l.tasks.Reveals)
		f.l.tasks.Reveal()
	}
}

// batchRan ends the tasks of a batch and reveals the tasks that follow.
func (f *flow) ran(slot, device int32) {
	l := f.l
	b := &l.batches[slot]
	end := l.now - b.late
	if f.stats != nil {
		f.stats.ran(b.service, end-l.item.start, l.members(slot))
	}
	if f.work != nil && flows.WorkflowsOf(l.t).GenerationOf(b.service) == nil {
		f.work.batch(b.service, device, l.item.start, end, len(l.members(slot)))
	}
	f.device, f.pipeline = device, b.pipeline
	l.tasks.Finish(l.members(slot))
}

// Leave implements policy.TaskHost.
func (f *flow) Leave(t int32, then policy.TaskState) bool { return f.l.leave(t, then) }

// Follow implements policy.TaskHost.
func (f *flow) Follow(t int32) {
	l := f.l
	l.spots[t].device, f.facts[t].ended = f.device, l.now
	if f.kept != nil {
		f.kept.leave(t, f.device)
	}
	var o policy.Outcome
	if l.truth != nil {
		o, _ = l.truth.Outcome(l.tasks.List[t].Req, t, f.pipeline)
	}
	f.control.Ended(t, o, &l.tasks.Reveals)
}

// dropTasks ends the tasks of a request that was dropped because of one of them.
func (f *flow) dropped(req, task int32) {
	if f.stats != nil {
		f.stats.dropped(req, task)
	}
	f.l.tasks.Forget(f.control, req)
}

// Open implements policy.TaskHost.
func (f *flow) Open(req int32) (model int32, open bool) {
	q := &f.l.requests[req]
	return q.model, q.state == waiting
}

// Tell implements policy.TaskHost.
func (f *flow) Tell(ev policy.Event) {
	f.l.event = ev
	f.l.tell()
}

// Answer implements policy.TaskHost.
func (f *flow) Answer(req int32) {
	if f.stats != nil {
		f.stats.answered(req)
	}
	f.l.answer(req)
}

// Revealed implements policy.TaskHost.
func (f *flow) Revealed(t *policy.Reveal) {
	l := f.l
	for int(t.Task) >= len(l.spots) {
		l.spots = append(l.spots, spot{})
	}
	for int(t.Task) >= len(f.facts) {
		f.facts = append(f.facts, facts{})
	}
	if f.stats != nil {
		f.stats.sums.Modules[t.Service].Requests++
	}
	if f.work != nil {
		f.work.asked(t.Service)
	}
	l.spots[t.Task] = spot{stage: -1}
	fa := &f.facts[t.Task]
	fa.work, fa.known, fa.prompt, fa.output, fa.ask = t.Work, l.now, t.Prompt, t.Output, t.Ask
	if f.kept != nil {
		f.kept.revealed(t.Task)
	}
}

// Freed implements policy.TaskHost.
func (f *flow) Freed(t int32) {
	if f.kept != nil {
		f.kept.forget(t)
	}
}

// placeTask makes a task's inputs move to a device as soon as they are ready.
func (f *flow) place(t, device int32) {
	if !f.l.tasks.Waits(t) {
		f.l.fail(fmt.Errorf("the policy places task slot %d, which does not wait", t))
		return
	}
	f.facts[t].asked = f.l.now
	f.l.tasks.Place(t, device)
}

// Bring implements policy.TaskHost.
func (f *flow) Bring(t, device int32) { f.l.hosts[f.l.of[device]].place(t, device) }

// inputsArrived tells the policy that the inputs of a task are at a device. It does nothing
// if the task has ended or was placed elsewhere meanwhile.
func (f *flow) arrived(it *item) {
	l, t := f.l, it.batch
	if !l.tasks.Awaits(t, it.epoch) {
		return
	}
	ta := &l.tasks.List[t]
	ev := l.begin(policy.TransferFinished)
	ev.Model, ev.Service, ev.Req, ev.Task = l.requests[ta.Req].model, ta.Service, ta.Req, t
	ev.Batch, ev.Device, ev.Start, ev.End = -1, it.device, it.start, l.now
	l.tell()
}

// completeRequest implements endingRule. Such requests end with their last task, so it fails.
func (*flow) complete(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which ends with its last task", req)
}

// switchMode implements endingRule. Such plans have no modes, so it fails.
func (*flow) mode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

// addResult implements endingRule.
func (f *flow) result(r *Result) {
	if f.stats != nil {
		f.stats.result(r)
	}
	if f.work != nil {
		f.work.result(r)
	}
	if f.kept != nil {
		f.kept.result(r)
	}
	if g := f.l.base.engines; g != nil {
		g.counts.result(r)
	}
}

// checkIdle returns an error if slots of tasks are in use when no request is left.
func (f *flow) finish() error {
	if n := f.l.tasks.Reveals.Taken(); n > 0 {
		return fmt.Errorf("%d slots of tasks are in use when no request is left", n)
	}
	if f.kept != nil {
		return f.kept.finish()
	}
	return nil
}
