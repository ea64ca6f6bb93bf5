package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

func (a *Adversary) arrive() {
	m := int32(a.draws.number(0, len(a.Tables.Models)-1))
	for range a.draws.number(1, 5) {
		slot := a.book.takeRequest()
		a.book.requests[slot] = foeRequest{open: true, model: m}
		a.Requests++
		came := max(0, a.now-time.Duration(a.draws.number(0, 5))*time.Millisecond)
		budget := a.Tables.Models[m].SLO
		if a.draws.number(0, 9) == 0 { // the client's own, which may be over already
			budget = min(budget, time.Duration(a.draws.number(0, 30))*time.Millisecond)
		}
		if a.Control == nil {
			a.book.growTasks(slot)
			a.book.tasks[slot] = foeTask{state: foeWaits, req: slot, service: m, batch: -1}
		}
		ev := policy.Event{Kind: policy.Arrival, Model: m, Service: m, Req: slot, Task: slot, ArrivedAt: came, Deadline: came + budget}
		if len(a.Tables.Instances) > 0 && a.Control == nil {
			ev.Tokens, ev.Limit = int32(a.draws.number(1, 400)), int32(a.draws.number(0, 300))
		}
		a.tell(ev)
		if a.Control != nil && a.book.requests[slot].open {
			a.Control.BeginRequest(slot, m, &a.book.told)
			a.reveal()
		}
	}
}

// ended ends the tasks of a batch that has run, before BatchFinished.
func (a *Adversary) ended(b *foeBatch, d int32) {
	switch {
	case a.Control != nil:
		for _, t := range b.tasks {
			if a.book.leaveBatch(t, foeOver) {
				a.Control.TaskEnded(t, policy.Outcome{Branch: int32(a.draws.number(0, 1)), Items: int32(a.draws.number(0, 3))}, &a.book.told)
			} else {
				a.late = append(a.late, t)
			}
		}
		a.reveal()
		for _, t := range a.late {
			a.book.unwanted(t)
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
		if a.book.leaveBatch(r, foeUnused) {
			a.Answered++
			a.book.close(r)
		}
	}
}

// revealLevels sends the policy the levels of a batch's answers.
func (a *Adversary) revealLevels(b *foeBatch, d int32) {
	a.reveals = b
	var open []int32
	for _, r := range b.tasks {
		if a.book.leaveBatch(r, foeWaits) {
			open = append(open, r)
		}
	}
	for _, r := range open {
		if q := &a.book.requests[r]; b.failed || q.left {
			q.left = true
			a.tell(policy.Event{Kind: policy.Cancel, Model: b.model, Service: b.model, Req: r, Task: r})
		}
		a.book.requests[r].revealed = true
		a.tell(policy.Event{Kind: policy.ControlRevealed, Model: b.model, Service: b.model, Req: r, Task: r, Batch: b.slot, Device: d, Value: int64(a.draws.number(0, a.Levels-1))})
		if q := &a.book.requests[r]; q.open && q.left && a.judge.err == nil {
			a.judge.fail("request slot %d was cancelled before its answer was revealed and is still with the policy", r)
		}
	}
	a.reveals = nil
}

// reveal sends the policy the tasks that a Control has revealed. Requests that the policy drops
// meanwhile are passed over.
func (a *Adversary) reveal() {
	a.telling = true
	for i := 0; i < len(a.book.told.Tasks); {
		n := i
		for ; n < len(a.book.told.Tasks) && a.book.told.Tasks[n].Req == a.book.told.Tasks[i].Req; n++ {
			if t := &a.book.told.Tasks[n]; !a.book.addTask(t) {
				a.judge.fail("task slot %d is in a batch and was given to another", t.Task)
			}
		}
		req := a.book.told.Tasks[i].Req
		a.tell(policy.Event{Kind: policy.ControlRevealed, Req: req, Task: -1, Value: int64(n - i)})
		for ; i < n; i++ {
			if t := a.book.told.Tasks[i]; a.book.requests[req].open {
				a.tell(policy.Event{Kind: policy.TaskRevealed, Req: req, Task: t.Task, Service: t.Service, Value: t.Work, Key: t.Item, List: slices.Clone(a.book.told.InputsOf(&t))})
			}
		}
	}
	for _, req := range a.book.told.EndedRequests {
		if a.book.requests[req].open {
			a.Answered++
			a.book.close(req)
			a.tell(policy.Event{Kind: policy.ControlRevealed, Req: req, Task: -1})
		}
	}
	a.telling = false
	a.book.freeTasks()
}

// leave takes a client away.
func (a *Adversary) leave() {
	if len(a.book.requests) == 0 {
		return
	}
	slot := int32(a.draws.number(0, len(a.book.requests)-1))
	if q := &a.book.requests[slot]; q.open && !q.left {
		q.left = true
		a.book.gone = append(a.book.gone, slot)
	}
}

// settleGone reports the clients that are gone and whose requests wait.
func (a *Adversary) settleGone() {
	for len(a.book.gone) > 0 {
		slot := a.book.gone[0]
		a.book.gone = a.book.gone[1:]
		if q := &a.book.requests[slot]; q.open && q.left && q.running == 0 {
			a.tell(policy.Event{Kind: policy.Cancel, Model: q.model, Service: q.model, Req: slot, Task: slot})
			if q = &a.book.requests[slot]; q.open && q.left && q.running == 0 && a.judge.err == nil {
				a.judge.fail("request slot %d was cancelled and still waits", slot)
			}
		}
	}
}

// endRequest does what a policy says about a request.
func (a *Adversary) endRequest(ev *policy.Event, act *policy.Action) {
	if !a.judge.mayEnd(ev, act) {
		return
	}
	if act.Kind == policy.Complete {
		a.Answered++
	} else {
		a.Dropped++
	}
	a.book.close(act.Req)
	if a.Control != nil {
		a.Control.ForgetRequest(act.Req, &a.book.told)
		if !a.telling {
			a.book.freeTasks()
		}
	}
}
