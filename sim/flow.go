package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// flow is the ending of kinds whose requests have several tasks: a Control says
// which come next.
type flow struct {
	l       *loop
	control policy.Control
	out     policy.Reveals
	facts   []facts // by task
	placed  []int32 // tasks that are to be brought somewhere once their inputs are there
	late    []int32 // tasks that their batch held longer than anybody wanted them
	telling bool
	stats   *flowStats // nil: of plans of another kind
	work    *flowWork  // nil: the plan has no workflows
	kept    *sessions  // nil: no service keeps anything of a request
}

// facts are what a task has beside its place in the ledger.
type facts struct {
	inputs  []int32       // tasks that it reads; -1: the client's input
	placing int32         // device that it is to be brought to; -1: none
	epoch   int32         // counts placings; an entry of an older one is void
	work    int64         // millionths of the usual; 0: as usual
	known   time.Duration // when it was revealed
	asked   time.Duration // when it was placed
	ended   time.Duration
	state   sessionState
	// Of a task of a language model: its tokens, 0 the usual, and the step, plus one.
	prompt, output, ask int32
}

func newFlow(l *loop) ending {
	if l.cfg.Control == nil {
		return nil
	}
	l.flow = &flow{l: l, control: l.cfg.Control}
	l.flow.stats, l.flow.work, l.flow.kept = newFlowStats(l), newFlowWork(l), newSessions(l.flow)
	return l.flow
}

// begin reveals the first tasks of a request, unless the policy dropped it at
// once.
func (f *flow) begin(req, model int32) {
	if f.l.requests[req].state == waiting {
		f.control.Begin(req, model, &f.out)
		f.reveal()
	}
}

// ran ends the tasks of a batch and reveals what follows from them.
func (f *flow) ran(slot, device int32) {
	l := f.l
	pipeline, end := l.batches[slot].pipeline, l.now-l.batches[slot].late
	if f.stats != nil {
		f.stats.ran(l.batches[slot].service, end-l.item.start, l.members(slot))
	}
	if f.work != nil && flows.WorkflowsOf(l.t).GenerationOf(l.batches[slot].service) == nil {
		f.work.batch(l.batches[slot].service, device, l.item.start, end, len(l.members(slot)))
	}
	for _, t := range l.members(slot) {
		req := l.tasks[t].req
		if !l.leave(t, over) {
			f.late = append(f.late, t)
			continue
		}
		l.tasks[t].device, f.facts[t].ended = device, l.now
		if f.kept != nil {
			f.kept.leave(t, device)
		}
		var o policy.Outcome
		if l.truth != nil {
			o, _ = l.truth.Outcome(req, t, pipeline)
		}
		f.control.Ended(t, o, &f.out)
	}
	f.reveal()
	// Slots come free behind what is revealed, so that nothing new has the slot of
	// a task whose batch is still to be told of.
	for _, t := range f.late {
		f.left(t)
	}
	f.late = f.late[:0]
	f.bring()
}

// left gives back the slot of a task that a batch held longer than anybody
// wanted it.
func (f *flow) left(t int32) {
	if ta := &f.l.tasks[t]; ta.freed {
		ta.freed = false
		if f.kept != nil {
			f.kept.forget(t)
		}
		f.out.Give(t)
	}
}

// dropped ends the tasks of a request that was dropped because of a task.
func (f *flow) dropped(req, task int32) {
	if f.stats != nil {
		f.stats.dropped(req, task)
	}
	f.control.Forget(req, &f.out)
	if !f.telling {
		f.reveal()
	}
}

// reveal tells the policy of tasks that have become known and of requests that
// are over. Requests that it drops meanwhile are passed over.
func (f *flow) reveal() {
	f.telling = true
	for i := 0; i < len(f.out.Tasks); {
		n := i + 1
		for n < len(f.out.Tasks) && f.out.Tasks[n].Req == f.out.Tasks[i].Req {
			n++
		}
		f.tellTasks(i, n)
		i = n
	}
	for _, req := range f.out.Over {
		if f.l.requests[req].state == waiting {
			if f.stats != nil {
				f.stats.answered(req)
			}
			f.l.answer(req)
			ev := f.l.begin(policy.ControlRevealed)
			ev.Model, ev.Req, ev.Task = f.l.requests[req].model, req, -1
			f.l.tell()
		}
	}
	for i := 0; i < len(f.out.Freed); i++ {
		f.free(f.out.Freed[i])
	}
	f.out.Reset()
	f.telling = false
}

// tellTasks tells of the tasks [from, to) of the list, all of one request.
func (f *flow) tellTasks(from, to int) {
	l, req := f.l, f.out.Tasks[from].Req
	for i := from; i < to; i++ {
		f.add(&f.out.Tasks[i])
	}
	ev := l.begin(policy.ControlRevealed)
	ev.Model, ev.Req, ev.Task, ev.Value = l.requests[req].model, req, -1, int64(to-from)
	l.tell()
	for i := from; i < to && l.requests[req].state == waiting; i++ {
		t := &f.out.Tasks[i]
		ev := l.begin(policy.TaskRevealed)
		ev.Model, ev.Req, ev.Task, ev.Service = l.requests[req].model, req, t.Task, t.Service
		ev.Value, ev.Key, ev.List = t.Work, t.Item, f.out.InputsOf(t)
		l.tell()
	}
}

// add notes a task in the ledger.
func (f *flow) add(t *policy.Reveal) {
	l := f.l
	for int(t.Task) >= len(l.tasks) {
		l.tasks = append(l.tasks, task{})
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
	l.tasks[t.Task] = task{req: t.Req, service: t.Service, state: waiting, stage: -1}
	fa := &f.facts[t.Task]
	fa.inputs, fa.placing, fa.epoch = append(fa.inputs[:0], f.out.InputsOf(t)...), -1, fa.epoch+1
	fa.work, fa.known, fa.prompt, fa.output, fa.ask = t.Work, l.now, t.Prompt, t.Output, t.Ask
	if f.kept != nil {
		f.kept.revealed(t.Task)
	}
}

// free takes back a slot that no task reads, now or with its batch.
func (f *flow) free(t int32) {
	if int(t) < len(f.l.tasks) && f.l.tasks[t].state == batched {
		f.l.tasks[t].freed = true
		return
	}
	if int(t) < len(f.l.tasks) {
		f.l.tasks[t].state = unused
	}
	if f.kept != nil {
		f.kept.forget(t)
	}
	f.out.Give(t)
}

// ready tells whether all that a task reads is there.
func (f *flow) ready(t int32) bool {
	for _, in := range f.facts[t].inputs {
		if in >= 0 && f.l.tasks[in].state != over {
			return false
		}
	}
	return true
}

// place has a task's inputs brought to a device as soon as they are there; an
// earlier place of the same task is forgotten.
func (f *flow) place(t, device int32) {
	if t < 0 || int(t) >= len(f.facts) || f.l.tasks[t].state != waiting {
		f.l.fail(fmt.Errorf("the policy places task slot %d, which does not wait", t))
		return
	}
	fa := &f.facts[t]
	again := fa.placing >= 0
	fa.placing, fa.asked = device, f.l.now
	fa.epoch++
	if f.ready(t) {
		f.send(t)
	} else if !again {
		f.placed = append(f.placed, t)
	}
}

// bring sends what has become ready.
func (f *flow) bring() {
	kept := f.placed[:0]
	for _, t := range f.placed {
		switch {
		case f.l.tasks[t].state != waiting || f.facts[t].placing < 0: // it is gone
		case f.ready(t):
			f.send(t)
		default:
			kept = append(kept, t)
		}
	}
	f.placed = kept
}

func (f *flow) send(t int32) {
	fa := &f.facts[t]
	device := fa.placing
	fa.placing = -1
	f.l.hosts[f.l.of[device]].place(t, device)
}

// arrived tells that what a task reads is at a device, unless the task is gone
// or was sent elsewhere meanwhile.
func (f *flow) arrived(it *item) {
	l, t := f.l, it.batch
	if l.tasks[t].state != waiting || f.facts[t].epoch != it.epoch {
		return
	}
	ev := l.begin(policy.TransferFinished)
	ev.Model, ev.Service, ev.Req, ev.Task = l.requests[l.tasks[t].req].model, l.tasks[t].service, l.tasks[t].req, t
	ev.Batch, ev.Device, ev.Start, ev.End = -1, it.device, it.start, l.now
	l.tell()
}

func (*flow) complete(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which ends with its last task", req)
}

func (*flow) mode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

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

// finish checks that no slot is lost when nothing is left to happen.
func (f *flow) finish() error {
	if n := f.out.Taken(); n > 0 {
		return fmt.Errorf("%d slots of tasks are in use when no request is left", n)
	}
	if f.kept != nil {
		return f.kept.finish()
	}
	return nil
}
