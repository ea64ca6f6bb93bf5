package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

type foeRequest struct {
	open     bool // the policy has it
	left     bool // nobody waits for it
	revealed bool // of a cascade: it has an answer
	model    int32
	running  int // of its tasks, in batches
}

type foeTask struct {
	state   foeState
	freed   bool // nothing reads it any more
	req     int32
	service int32
	batch   int32 // -1: it waits
	inputs  []int32
	epoch   int // counts places
}

type foeState uint8

const (
	foeUnused foeState = iota
	foeWaits
	foeBatched
	foeOver
)

func (a *Adversary) arrive() {
	m := int32(a.draw(0, len(a.Tables.Models)-1))
	for range a.draw(1, 5) {
		slot := a.takeRequest()
		a.requests[slot] = foeRequest{open: true, model: m}
		a.Requests++
		came := max(0, a.now-time.Duration(a.draw(0, 5))*time.Millisecond)
		budget := a.Tables.Models[m].SLO
		if a.draw(0, 9) == 0 { // the client's own, which may be over already
			budget = min(budget, time.Duration(a.draw(0, 30))*time.Millisecond)
		}
		if a.Control == nil {
			a.growTasks(slot)
			a.tasks[slot] = foeTask{state: foeWaits, req: slot, service: m, batch: -1}
		}
		ev := policy.Event{Kind: policy.Arrival, Model: m, Service: m, Req: slot, Task: slot, Arrived: came, Deadline: came + budget}
		if len(a.Tables.Instances) > 0 && a.Control == nil {
			ev.Tokens, ev.Limit = int32(a.draw(1, 400)), int32(a.draw(0, 300))
		}
		a.tell(ev)
		if a.Control != nil && a.requests[slot].open {
			a.Control.Begin(slot, m, &a.told)
			a.reveal()
		}
	}
}

func (a *Adversary) takeRequest() int32 {
	if n := len(a.free); n > 0 {
		slot := a.free[n-1]
		a.free = a.free[:n-1]
		return slot
	}
	a.requests = append(a.requests, foeRequest{})
	return int32(len(a.requests) - 1)
}

func (a *Adversary) growTasks(t int32) {
	for int(t) >= len(a.tasks) {
		a.tasks = append(a.tasks, foeTask{batch: -1})
	}
}

// close ends a request; its slot is free once no batch holds a task of it.
func (a *Adversary) close(slot int32) {
	q := &a.requests[slot]
	if q.open = false; q.running == 0 {
		a.release(slot)
	}
}

func (a *Adversary) release(slot int32) {
	if a.Control == nil {
		a.tasks[slot].state = foeUnused
	}
	a.requests[slot] = foeRequest{}
	a.free = append(a.free, slot)
}

// enter puts a task into a batch.
func (a *Adversary) enter(t, batch int32) {
	a.tasks[t].state, a.tasks[t].batch = foeBatched, batch
	a.requests[a.tasks[t].req].running++
}

// leaveBatch takes a task out of its batch and tells whether it is still wanted.
func (a *Adversary) leaveBatch(t int32, then foeState) bool {
	ta := &a.tasks[t]
	ta.state, ta.batch = then, -1
	q := &a.requests[ta.req]
	q.running--
	if q.open {
		return true
	}
	ta.state = foeUnused
	if q.running == 0 {
		a.release(ta.req)
	}
	return false
}

// unwanted gives back the slot of a task that a batch held longer than anybody
// wanted it.
func (a *Adversary) unwanted(t int32) {
	if a.Control != nil && a.tasks[t].freed {
		a.tasks[t].freed = false
		a.told.Give(t)
	}
}

// giveBack ends a batch without a result: its tasks wait again.
func (a *Adversary) giveBack(b *foeBatch) {
	b.live, a.batches[b.slot] = false, nil
	for _, t := range b.tasks {
		if !a.leaveBatch(t, foeWaits) {
			a.unwanted(t)
		} else if req := a.tasks[t].req; a.requests[req].left {
			a.gone = append(a.gone, req)
		}
	}
}

// end ends the tasks of a batch that has run, before BatchFinished.
func (a *Adversary) ended(b *foeBatch, d int32) {
	switch {
	case a.Control != nil:
		for _, t := range b.tasks {
			if a.leaveBatch(t, foeOver) {
				a.Control.Ended(t, policy.Outcome{Branch: int32(a.draw(0, 1)), Items: int32(a.draw(0, 3))}, &a.told)
			} else {
				a.late = append(a.late, t)
			}
		}
		a.reveal()
		for _, t := range a.late {
			a.unwanted(t)
		}
		a.late = a.late[:0]
	case a.Levels > 0:
		a.revealLevels(b, d)
	}
}

// answerBatch answers the requests of a batch whose end does that.
func (a *Adversary) answerBatch(b *foeBatch) {
	if a.Control != nil || a.Levels > 0 {
		return
	}
	for _, r := range b.tasks {
		if a.leaveBatch(r, foeUnused) {
			a.Answered++
			a.close(r)
		}
	}
}

// revealLevels tells the levels of a batch's answers.
func (a *Adversary) revealLevels(b *foeBatch, d int32) {
	a.reveals = b
	var open []int32
	for _, r := range b.tasks {
		if a.leaveBatch(r, foeWaits) {
			open = append(open, r)
		}
	}
	for _, r := range open {
		if q := &a.requests[r]; b.failed || q.left {
			q.left = true
			a.tell(policy.Event{Kind: policy.Cancel, Model: b.model, Service: b.model, Req: r, Task: r})
		}
		a.requests[r].revealed = true
		a.tell(policy.Event{Kind: policy.ControlRevealed, Model: b.model, Service: b.model, Req: r, Task: r, Batch: b.slot, Device: d, Value: int64(a.draw(0, a.Levels-1))})
		if q := &a.requests[r]; q.open && q.left && a.err == nil {
			a.fail("request slot %d was cancelled before its answer was revealed and is still with the policy", r)
		}
	}
	a.reveals = nil
}

// reveal tells what a Control has revealed. Requests that the policy drops
// meanwhile are passed over.
func (a *Adversary) reveal() {
	a.telling = true
	for i := 0; i < len(a.told.Tasks); {
		n := i
		for ; n < len(a.told.Tasks) && a.told.Tasks[n].Req == a.told.Tasks[i].Req; n++ {
			a.addTask(&a.told.Tasks[n])
		}
		req := a.told.Tasks[i].Req
		a.tell(policy.Event{Kind: policy.ControlRevealed, Req: req, Task: -1, Value: int64(n - i)})
		for ; i < n; i++ {
			if t := a.told.Tasks[i]; a.requests[req].open {
				a.tell(policy.Event{Kind: policy.TaskRevealed, Req: req, Task: t.Task, Service: t.Service, Value: t.Work, Key: t.Item, List: slices.Clone(a.told.InputsOf(&t))})
			}
		}
	}
	for _, req := range a.told.Over {
		if a.requests[req].open {
			a.Answered++
			a.close(req)
			a.tell(policy.Event{Kind: policy.ControlRevealed, Req: req, Task: -1})
		}
	}
	a.telling = false
	a.freeTasks()
}

func (a *Adversary) addTask(t *policy.Reveal) {
	a.growTasks(t.Task)
	if a.tasks[t.Task].state == foeBatched {
		a.fail("task slot %d is in a batch and was given to another", t.Task)
	}
	a.tasks[t.Task] = foeTask{state: foeWaits, req: t.Req, service: t.Service, batch: -1, inputs: slices.Clone(a.told.InputsOf(t)), epoch: a.tasks[t.Task].epoch + 1}
}

// freeTasks takes back the slots that no task reads, now or with their batches.
func (a *Adversary) freeTasks() {
	for _, t := range a.told.Freed {
		a.growTasks(t)
		if a.tasks[t].state == foeBatched {
			a.tasks[t].freed = true
			continue
		}
		a.tasks[t].state = foeUnused
		a.told.Give(t)
	}
	a.told.Reset()
}

// leave takes a client away.
func (a *Adversary) leave() {
	if len(a.requests) == 0 {
		return
	}
	slot := int32(a.draw(0, len(a.requests)-1))
	if q := &a.requests[slot]; q.open && !q.left {
		q.left = true
		a.gone = append(a.gone, slot)
	}
}

// settleGone tells of clients that are gone and whose requests wait.
func (a *Adversary) settleGone() {
	for len(a.gone) > 0 {
		slot := a.gone[0]
		a.gone = a.gone[1:]
		if q := &a.requests[slot]; q.open && q.left && q.running == 0 {
			a.tell(policy.Event{Kind: policy.Cancel, Model: q.model, Service: q.model, Req: slot, Task: slot})
			if q = &a.requests[slot]; q.open && q.left && q.running == 0 && a.err == nil {
				a.fail("request slot %d was cancelled and still waits", slot)
			}
		}
	}
}

// endRequest does what a policy says about a request.
func (a *Adversary) endRequest(ev *policy.Event, act *policy.Action) {
	if act.Req < 0 || int(act.Req) >= len(a.requests) || !a.requests[act.Req].open {
		a.fail("on %+v the policy ends request slot %d, which it does not have", *ev, act.Req)
		return
	}
	q := &a.requests[act.Req]
	switch {
	case act.Kind == policy.Complete && (!q.revealed || q.running > 0):
		a.fail("on %+v the policy completes request slot %d, which has no answer", *ev, act.Req)
	case act.Kind == policy.Complete:
		a.Answered++
	case act.Reason == policy.ReasonNone || act.Reason.String() == "unknown":
		a.fail("on %+v the policy drops request slot %d without a reason", *ev, act.Req)
	default:
		a.Dropped++
	}
	a.close(act.Req)
	if a.Control != nil {
		a.Control.Forget(act.Req, &a.told)
		if !a.telling {
			a.freeTasks()
		}
	}
}
