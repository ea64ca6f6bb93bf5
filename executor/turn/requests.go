package turn

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/fair"
)

// Request is a sample as the policy names it, by slot.
type Request struct {
	Job    *Job // nil if the slot is free
	Sample int32
	Batch  int32 // the policy's batch slot; -1 while it waits
	Gone   bool  // the policy has dropped it while it was in a batch
}

// requestLedger holds the open jobs and requests. It belongs to the core's turn.
type ledger struct {
	c        *Core
	requests []Request
	free     []int32 // slots
	forsaken []int32 // slots of requests that nobody waits for
	pending  int     // jobs without an answer
	shares   *fair.Shares
	idle     []chan<- struct{} // closed once all jobs are answered
}

// addJob accepts a job, or refuses it, and tells the policy of its requests.
func (l *ledger) arrive(j *Job) {
	c := l.c
	c.Stats.seen(j)

	// Refuse the job if the core stops, the queue is full, or its client has used up its share.
	if c.stopping {
		l.turnAway(j, policy.ReasonDraining)
		return
	}
	if j.Text == nil && l.Full(j.Samples) { // text requests were accepted earlier
		l.turnAway(j, policy.ReasonQueueFull)
		return
	}
	if j.Text == nil && j.Client != 0 {
		if j.shared = l.shares.Admit(c.Now(), j.Model.Index, j.Client, int32(j.Samples)); !j.shared {
			j.refused = true
			l.turnAway(j, policy.ReasonQueueFull)
			return
		}
	}

	// Give every sample a request slot.
	l.pending++
	m := j.Model
	c.loop.Tick() // the policy's now is then no earlier than the arrival
	for k := range j.Samples {
		slot := l.newRequest(j, k)
		j.Slots[k] = slot
		m.Waiting.Add(1)
	}

	// Tell the policy of each sample.
	c.Answers.Arrive(j)
	// The core's hold on the job lasts until its last slot is settled, which is
	// not before the last round of this loop.
	for k, n := 0, j.Samples; k < n; k++ {
		if j.Answered { // a sample before this one was dropped
			l.Settle(j.Slots[k])
			continue
		}
		slot := j.Slots[k]
		ev := policy.Event{Kind: policy.Arrival, Model: m.Index, Service: m.Index, Req: slot, Task: slot, Arrived: j.Arrived, Deadline: j.Deadline, Client: j.Client, Value: int64(n - 1 - k)}
		if j.Text != nil {
			ev.Value = 1
			ev.Tokens, ev.Limit = j.Text.Lengths()
		}
		c.Tell(ev)
		c.Answers.Begin(slot)
	}
}

// IsFull returns true if the executor cannot take `more` further requests.
func (l *ledger) Full(more int) bool {
	return len(l.requests)-len(l.free)+more > l.c.Options.MaxQueue
}

// Pending returns the number of jobs without an answer.
func (l *ledger) Pending() int { return l.pending }

// refuseUntold refuses a job that the policy is not told of.
func (l *ledger) turnAway(j *Job, reason policy.Reason) {
	l.pending++
	j.open = 0
	l.Refuse(j, reason)
	j.Release()
}

// newRequest returns the slot of a new request for a sample of a job.
func (l *ledger) newRequest(j *Job, sample int) int32 {
	var slot int32
	if n := len(l.free); n > 0 {
		slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		slot = int32(len(l.requests))
		l.requests = append(l.requests, Request{})
	}
	l.requests[slot] = Request{Job: j, Sample: int32(sample), Batch: -1}
	return slot
}

// RequestIn returns the request in a slot. If there is none, it returns nil.
func (l *ledger) Request(slot int32) *Request {
	if slot < 0 || int(slot) >= len(l.requests) || l.requests[slot].Job == nil {
		return nil
	}
	return &l.requests[slot]
}

// FreeRequest frees a request slot once the policy no longer names it.
func (l *ledger) Settle(slot int32) {
	q := &l.requests[slot]
	j := q.Job
	if j == nil {
		return
	}
	if q.Batch >= 0 {
		j.Model.Running.Add(-1)
	} else {
		j.Model.Waiting.Add(-1)
	}
	j.Slots[q.Sample] = -1
	*q = Request{Batch: -1}
	l.free = append(l.free, slot)
	if j.open--; j.open == 0 {
		j.Release()
	}
}

// RefuseJob answers a job with a drop.
func (l *ledger) Refuse(j *Job, reason policy.Reason) {
	if j.Answered {
		return
	}
	j.Outcome, j.Reason = Dropped, reason
	l.Answer(j)
	l.forsake(j)
}

// FailJob answers a job with an error.
func (l *ledger) Fail(j *Job, err error) {
	j.Outcome, j.Reason, j.Failure = Failed, policy.ReasonFailed, err
	l.Answer(j)
	l.forsake(j)
}

// markUnwanted marks the remaining requests of a job as unwanted. The policy is told at the next Flush.
func (l *ledger) forsake(j *Job) {
	if j.open == 0 {
		return
	}
	for _, slot := range j.Slots {
		if slot >= 0 {
			l.forsaken = append(l.forsaken, slot)
		}
	}
}

// nextUnwanted removes the next of the unwanted slots, and returns false if there is none. The event is a Cancel, unless
// the request is in a batch: then it runs with the batch, and the event is empty.
func (l *ledger) forgo() (ev policy.Event, more bool) {
	n := len(l.forsaken)
	if n == 0 {
		return ev, false
	}
	slot := l.forsaken[n-1]
	l.forsaken = l.forsaken[:n-1]
	if q := &l.requests[slot]; q.Job != nil && q.Job.Answered && q.Batch < 0 && !q.Gone {
		ev = policy.Event{Kind: policy.Cancel, Model: q.Job.Model.Index, Service: q.Job.Model.Index, Req: slot, Task: slot}
	}
	return ev, true
}

// AnswerJob answers a job with its outcome.
func (l *ledger) Answer(j *Job) {
	j.Answered = true
	l.pending--
	l.c.Stats.answered(j, l.c.Now())
	if j.shared {
		late := j.Outcome == Served && j.Late || j.Reason == policy.ReasonDeadline || j.Reason == policy.ReasonWorkerLost
		l.shares.Ended(l.c.Now(), j.Model.Index, j.Client, int32(j.Samples), late && j.Deadline-j.Arrived >= j.Model.Slo)
	}
	if j.Text != nil {
		j.Text.Over(j)
		return
	}
	j.Done <- struct{}{}
}

// dropRequest answers the job of a request that the policy has dropped.
func (l *ledger) drop(slot int32, reason policy.Reason) {
	if q := l.Request(slot); q != nil {
		l.Refuse(q.Job, reason)
		l.c.Answers.Drop(slot)
	}
}

// setRetry records when a request is worth sending again. If `at` is 0, that is unknown.
func (l *ledger) again(slot int32, at time.Duration) {
	if q := l.Request(slot); q != nil && at > 0 {
		q.Job.RetryAfter = at - l.c.Now()
	}
}

// notifyIdle wakes the goroutines that wait until all jobs are answered.
func (l *ledger) tellIdle() {
	if l.pending == 0 && len(l.idle) > 0 {
		for _, ch := range l.idle {
			close(ch)
		}
		l.idle = nil
	}
}

// refuseAll answers all jobs with a drop.
func (l *ledger) refuseAll(reason policy.Reason) {
	for i := range l.requests {
		if j := l.requests[i].Job; j != nil {
			l.Refuse(j, reason)
		}
	}
	l.forsaken = nil
}

// OneTaskPerRequest is embedded by answerers whose requests have one task each. The task has the slot of the request.
type Single struct{ Core *Core }

// RequestArrived implements Answerer. The arrival has already revealed the task.
func (Single) Begin(int32) {}

// EnterBatch implements Answerer: it records the batch that requests are in.
func (s Single) Enter(b *Batch) {
	n := int64(len(b.Tasks))
	b.Service.Waiting.Add(-n)
	b.Service.Running.Add(n)
	for _, t := range b.Tasks {
		s.Core.ledger.requests[t].Batch = b.Slot
	}
}

// RequeueBatch implements Answerer: the requests of the batch wait again.
func (s Single) Again(b *Batch) {
	book := &s.Core.ledger
	for _, t := range b.Tasks {
		q := &book.requests[t]
		if q.Job == nil {
			continue
		}
		if q.Gone {
			book.Settle(t)
			continue
		}
		q.Batch = -1
		b.Service.Running.Add(-1)
		b.Service.Waiting.Add(1)
		if q.Job.Answered { // it need not run again
			book.forsaken = append(book.forsaken, t)
		}
	}
}

// BatchFailed answers the requests of a batch that cannot run. The policy does not know failed batches: the core tells
// it that the remaining stages took no time.
func (s Single) Failed(b *Batch, reason policy.Reason, err error) (hide bool) {
	for _, t := range b.Tasks {
		j := s.Core.ledger.requests[t].Job
		if j == nil || j.Answered {
			continue
		}
		if err != nil {
			s.Core.ledger.Fail(j, err)
		} else {
			s.Core.ledger.Refuse(j, reason)
		}
	}
	return true
}

// DropRequest implements Answerer. A request in a batch keeps its slot until the batch is over.
func (s Single) Drop(slot int32) {
	if q := &s.Core.ledger.requests[slot]; q.Batch >= 0 {
		q.Gone = true
		return
	}
	s.Core.ledger.Settle(slot)
}

// RequestOf returns the task's own slot.
func (Single) RequestOf(task int32) int32 { return task }

// TaskInput returns the client's input.
func (s Single) Input(task int32, i int) []byte {
	q := &s.Core.ledger.requests[task]
	if q.Job == nil || q.Job.Answered {
		return nil
	}
	return q.Job.Input(int(q.Sample), i)
}

// PlaceInputs implements Answerer. The inputs are the client's, which are at every device.
func (s Single) Place(task, device int32) { s.Core.BackendOf(device).Place(task, device, 0) }

func (Single) Placed(*policy.Event, int32) bool { return true }

// CopyOutputs copies the outputs of a batch to its requests, and records how long that took.
func (s Single) Scatter(b *Batch, out Outputs) {
	c := s.Core
	begin := c.Now()
	var bytes int64
	for i := range b.Service.Outputs {
		size := b.Service.Outputs[i].Bytes
		src := out.Output(i)
		for k, t := range b.Tasks {
			q := &c.requests[t]
			if q.Job == nil || q.Job.Answered {
				continue
			}
			copy(q.Job.Outputs[i][int(q.Sample)*size:][:size], src[k*size:])
		}
		bytes += int64(len(src))
	}
	c.Stats.Egress.Add(bytes)
	b.Answer = c.Now() - begin
	c.Stats.BatchDone(b)
}
