package executor

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/fair"
)

// ledger keeps account of jobs and requests. It belongs to the core's turn.
type ledger struct {
	c        *core
	reqs     []request
	free     []int32
	forsaken []int32 // slots of requests that nobody waits for
	open     int     // jobs without answer
	shares   *fair.Shares
	idle     []chan<- struct{}
}

// arrive takes a job in and tells the policy of its requests.
func (l *ledger) arrive(j *job) {
	c := l.c
	c.stats.seen(j)
	if c.stopping {
		l.turnAway(j, policy.ReasonDraining)
		return
	}
	if j.text == nil && len(l.reqs)-len(l.free)+j.n > c.opt.MaxQueue { // texts were accepted before
		l.turnAway(j, policy.ReasonQueueFull)
		return
	}
	if j.text == nil && j.client != 0 {
		if j.shared = l.shares.Admit(c.now(), j.model.index, j.client, int32(j.n)); !j.shared {
			j.refused = true
			l.turnAway(j, policy.ReasonQueueFull)
			return
		}
	}
	l.open++
	m := j.model
	c.loop.Tick() // the policy's now is then no earlier than the arrival
	for k := range j.n {
		slot := l.newRequest(j, k)
		j.slots[k] = slot
		m.waiting.Add(1)
	}
	c.answers.arrive(j)
	// The core's hold on the job lasts until its last slot is settled, which is
	// not before the last round of this loop.
	for k, n := 0, j.n; k < n; k++ {
		if j.answered { // a sample before this one was dropped
			l.settle(j.slots[k])
			continue
		}
		slot := j.slots[k]
		ev := policy.Event{Kind: policy.Arrival, Model: m.index, Service: m.index, Req: slot, Task: slot, Arrived: j.arrived, Deadline: j.deadline, Client: j.client, Value: int64(n - 1 - k)}
		if j.text != nil {
			ev.Value = 1
			ev.Tokens, ev.Limit = j.text.lengths()
		}
		c.handle(ev)
		c.answers.begin(slot)
	}
}

// turnAway refuses a job that the policy does not hear of.
func (l *ledger) turnAway(j *job, reason policy.Reason) {
	l.open++
	j.open = 0
	l.refuse(j, reason)
	j.release()
}

func (l *ledger) newRequest(j *job, sample int) int32 {
	var slot int32
	if n := len(l.free); n > 0 {
		slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		slot = int32(len(l.reqs))
		l.reqs = append(l.reqs, request{})
	}
	l.reqs[slot] = request{job: j, sample: int32(sample), batch: -1}
	return slot
}

// at is the request of a slot; nil where there is none.
func (l *ledger) at(slot int32) *request {
	if slot < 0 || int(slot) >= len(l.reqs) || l.reqs[slot].job == nil {
		return nil
	}
	return &l.reqs[slot]
}

// settle ends a request slot: the policy no longer names it.
func (l *ledger) settle(slot int32) {
	q := &l.reqs[slot]
	j := q.job
	if j == nil {
		return
	}
	if q.batch >= 0 {
		j.model.running.Add(-1)
	} else {
		j.model.waiting.Add(-1)
	}
	j.slots[q.sample] = -1
	*q = request{batch: -1}
	l.free = append(l.free, slot)
	if j.open--; j.open == 0 {
		j.release()
	}
}

// refuse answers a job with a drop.
func (l *ledger) refuse(j *job, reason policy.Reason) {
	if j.answered {
		return
	}
	j.outcome, j.reason = dropped, reason
	l.answer(j)
	l.forsake(j)
}

// fail answers a job with an error.
func (l *ledger) fail(j *job, err error) {
	j.outcome, j.reason, j.failure = failed, policy.ReasonFailed, err
	l.answer(j)
	l.forsake(j)
}

// forsake tells the policy that nobody waits for what is left of a job.
func (l *ledger) forsake(j *job) {
	if j.open == 0 {
		return
	}
	for _, slot := range j.slots {
		if slot >= 0 {
			l.forsaken = append(l.forsaken, slot)
		}
	}
}

// forgo takes the next of the slots that nobody waits for; false: there is none.
// Its event is a Cancel, unless the request is in a batch: then it runs with it.
func (l *ledger) forgo() (ev policy.Event, more bool) {
	n := len(l.forsaken)
	if n == 0 {
		return ev, false
	}
	slot := l.forsaken[n-1]
	l.forsaken = l.forsaken[:n-1]
	if q := &l.reqs[slot]; q.job != nil && q.job.answered && q.batch < 0 && !q.gone {
		ev = policy.Event{Kind: policy.Cancel, Model: q.job.model.index, Service: q.job.model.index, Req: slot, Task: slot}
	}
	return ev, true
}

func (l *ledger) answer(j *job) {
	j.answered = true
	l.open--
	l.c.stats.answered(j, l.c.now())
	if j.shared {
		late := j.outcome == served && j.late || j.reason == policy.ReasonDeadline || j.reason == policy.ReasonWorkerLost
		l.shares.Ended(l.c.now(), j.model.index, j.client, int32(j.n), late && j.deadline-j.arrived >= j.model.slo)
	}
	if j.text != nil {
		j.text.over(j)
		return
	}
	j.done <- struct{}{}
}

// clientGone: nobody waits for the job any more.
func (l *ledger) clientGone(j *job) { l.refuse(j, policy.ReasonCancelled) }

// drop answers a request that the policy gave up.
func (l *ledger) drop(slot int32, reason policy.Reason) {
	if q := l.at(slot); q != nil {
		l.refuse(q.job, reason)
		l.c.answers.drop(slot)
	}
}

// again notes when asking again is worth it; 0: that is not known.
func (l *ledger) again(slot int32, at time.Duration) {
	if q := l.at(slot); q != nil && at > 0 {
		q.job.again = at - l.c.now()
	}
}

// tellIdle tells those who wait for it that all jobs are answered.
func (l *ledger) tellIdle() {
	if l.open == 0 && len(l.idle) > 0 {
		for _, ch := range l.idle {
			close(ch)
		}
		l.idle = nil
	}
}

// refuseAll answers all jobs, for good.
func (l *ledger) refuseAll(reason policy.Reason) {
	for i := range l.reqs {
		if j := l.reqs[i].job; j != nil {
			l.refuse(j, reason)
		}
	}
	l.forsaken = nil
}

// single is the part of answers whose requests have one task each, in the slot
// of the request.
type single struct{ c *core }

// begin has nothing to reveal: the arrival did.
func (single) begin(int32) {}

// enter notes the batch that tasks are in.
func (s single) enter(b *batch) {
	n := int64(len(b.tasks))
	b.service.waiting.Add(-n)
	b.service.running.Add(n)
	for _, t := range b.tasks {
		s.c.book.reqs[t].batch = b.slot
	}
}

// again: the tasks of a batch wait with the policy again.
func (s single) again(b *batch) {
	book := &s.c.book
	for _, t := range b.tasks {
		q := &book.reqs[t]
		if q.job == nil {
			continue
		}
		if q.gone {
			book.settle(t)
			continue
		}
		q.batch = -1
		b.service.running.Add(-1)
		b.service.waiting.Add(1)
		if q.job.answered { // it need not run again
			book.forsaken = append(book.forsaken, t)
		}
	}
}

// failed answers the requests of a batch that cannot run. The policy knows no
// failed batches: the core tells it that the remaining stages took no time.
func (s single) failed(b *batch, reason policy.Reason, err error) (hide bool) {
	for _, t := range b.tasks {
		j := s.c.book.reqs[t].job
		if j == nil || j.answered {
			continue
		}
		if err != nil {
			s.c.book.fail(j, err)
		} else {
			s.c.book.refuse(j, reason)
		}
	}
	return true
}

// drop: one that sits in a batch keeps its slot until the batch is over.
func (s single) drop(slot int32) {
	if q := &s.c.book.reqs[slot]; q.batch >= 0 {
		q.gone = true
		return
	}
	s.c.book.settle(slot)
}

// requestOf is the task's own slot.
func (single) requestOf(task int32) int32 { return task }

// input is the client's.
func (s single) input(task int32, i int) []byte {
	q := &s.c.book.reqs[task]
	if q.job == nil || q.job.answered {
		return nil
	}
	return q.job.input(int(q.sample), i)
}

// place: what a task reads is the client's, and that is at every device.
func (s single) place(task, device int32) { s.c.backendOf(device).place(task, device, 0) }

func (single) placed(*policy.Event, int32) bool { return true }

// scatter copies the outputs of a batch to its requests and tells how long that
// took.
func (s single) scatter(b *batch, out outputs) {
	c := s.c
	begin := c.now()
	var bytes int64
	for i := range b.service.outputs {
		size := b.service.outputs[i].bytes
		src := out.output(i)
		for k, t := range b.tasks {
			q := &c.book.reqs[t]
			if q.job == nil || q.job.answered {
				continue
			}
			copy(q.job.outputs[i][int(q.sample)*size:][:size], src[k*size:])
		}
		bytes += int64(len(src))
	}
	c.stats.egress.add(bytes)
	b.answer = c.now() - begin
	c.stats.batchDone(b)
}
