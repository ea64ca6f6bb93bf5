package turn

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/fair"
)

// Request is a sample as the policy names it, by slot.
type Request struct {
	Job       *Job // nil if the slot is free
	Sample    int32
	Batch     int32 // the policy's batch slot; -1 while it waits
	IsDropped bool  // the policy has dropped it while it was in a batch
}

// requestLedger holds the open jobs and requests. It belongs to the core's turn.
type requestLedger struct {
	core          *Core
	requests      []Request
	freeSlots     []int32 // slots
	unwantedSlots []int32 // slots of requests that nobody waits for
	pendingJobs   int     // jobs without an answer
	clientShares  *fair.ClientShares
	idleWaiters   []chan<- struct{} // closed once all jobs are answered
}

// addJob is called in the loop for each new job. It refuses the job, without telling the policy, if the core stops,
// the queue is full or the client has used up its share. Otherwise it gives each sample a request slot and tells
// the policy of them.
func (l *requestLedger) addJob(j *Job) {
	c := l.core
	c.Stats.countArrival(j)

	// Refuse the job if the core stops, the queue is full, or its client has used up its share.
	if c.isStopping {
		l.refuseUntold(j, policy.ReasonDraining)
		return
	}
	if j.Text == nil && l.IsFull(j.Samples) { // text requests were accepted earlier
		l.refuseUntold(j, policy.ReasonQueueFull)
		return
	}
	if j.Text == nil && j.Client != 0 {
		if j.inClientShare = l.clientShares.Admit(c.Loop.Now(), j.Model.Index, j.Client, int32(j.Samples)); !j.inClientShare {
			j.overClientShare = true
			l.refuseUntold(j, policy.ReasonQueueFull)
			return
		}
	}

	// Give every sample a request slot.
	l.pendingJobs++
	m := j.Model
	c.Loop.AdvanceTime() // the policy's now is then no earlier than the arrival
	for k := range j.Samples {
		slot := l.newRequest(j, k)
		j.Slots[k] = slot
		m.Waiting.Add(1)
	}

	// Tell the policy of each sample.
	c.Answerer.JobArrived(j)
	// The core's hold on the job lasts until its last slot is settled, which is
	// not before the last round of this loop.
	// Value of the event is the number of samples of the job that are still to come.
	for k, n := 0, j.Samples; k < n; k++ {
		if j.Answered { // a sample before this one was dropped
			l.FreeRequest(j.Slots[k])
			continue
		}
		slot := j.Slots[k]
		ev := policy.Event{Kind: policy.Arrival, Model: m.Index, Service: m.Index, Req: slot, Task: slot, ArrivedAt: j.ArrivedAt, Deadline: j.Deadline, Client: j.Client, Key: j.Session, Value: int64(n - 1 - k)}
		if j.Text != nil {
			ev.Value = 1
			ev.Tokens, ev.Limit = j.Text.TokenLengths()
		}
		c.Loop.TellPolicy(ev)
		c.Answerer.RequestArrived(slot)
	}
}

// IsFull returns true if the executor cannot take `more` further requests.
func (l *requestLedger) IsFull(more int) bool {
	return len(l.requests)-len(l.freeSlots)+more > l.core.Options.MaxQueue
}

// Pending returns the number of jobs without an answer.
func (l *requestLedger) Pending() int { return l.pendingJobs }

// refuseUntold refuses a job that the policy is not told of: it answers it as dropped, and gives up the core's hold
// on it.
func (l *requestLedger) refuseUntold(j *Job, reason policy.DropReason) {
	l.pendingJobs++
	j.openSamples = 0
	l.RefuseJob(j, reason)
	j.Release()
}

// newRequest returns the slot (an index in l.requests) of a new request for one sample of a job: a free slot, or a new
// one at the end. The request is in no batch (Batch -1): it waits. The policy knows requests by their slots.
func (l *requestLedger) newRequest(j *Job, sample int) int32 {
	var slot int32
	if n := len(l.freeSlots); n > 0 {
		slot = l.freeSlots[n-1]
		l.freeSlots = l.freeSlots[:n-1]
	} else {
		slot = int32(len(l.requests))
		l.requests = append(l.requests, Request{})
	}
	l.requests[slot] = Request{Job: j, Sample: int32(sample), Batch: -1}
	return slot
}

// RequestIn returns the request in a slot. If there is none, it returns nil.
func (l *requestLedger) RequestIn(slot int32) *Request {
	if slot < 0 || int(slot) >= len(l.requests) || l.requests[slot].Job == nil {
		return nil
	}
	return &l.requests[slot]
}

// FreeRequest frees a request slot once the policy no longer names it, so that a new request may get it, and counts the
// request out of its model's running or waiting ones. With a job's last slot the core releases the job. A free slot is
// left as it is.
func (l *requestLedger) FreeRequest(slot int32) {
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
	l.freeSlots = append(l.freeSlots, slot)
	if j.openSamples--; j.openSamples == 0 {
		j.Release()
	}
}

// RefuseJob answers a job as dropped, with the reason, unless it is answered already. The policy hears at the next
// Flush that nobody waits for its requests.
func (l *requestLedger) RefuseJob(j *Job, reason policy.DropReason) {
	if j.Answered {
		return
	}
	j.Outcome, j.Reason = OutcomeDropped, reason
	l.AnswerJob(j)
	l.markUnwanted(j)
}

// FailJob answers a job with an error.
func (l *requestLedger) FailJob(j *Job, err error) {
	j.Outcome, j.Reason, j.Failure = OutcomeFailed, policy.ReasonFailed, err
	l.AnswerJob(j)
	l.markUnwanted(j)
}

// markUnwanted marks the requests of a job that still have slots as unwanted, after the client has got an answer or gone
// away. The next Flush tells the policy, which then drops them.
func (l *requestLedger) markUnwanted(j *Job) {
	if j.openSamples == 0 {
		return
	}
	for _, slot := range j.Slots {
		if slot >= 0 {
			l.unwantedSlots = append(l.unwantedSlots, slot)
		}
	}
}

// nextUnwanted takes the next request that nobody waits for any more, and returns the event with which the policy
// hears of it: a Cancel, or an empty one if the request is in a batch, with which it runs to the end. It returns
// false if there is none.
func (l *requestLedger) nextUnwanted() (ev policy.Event, more bool) {
	n := len(l.unwantedSlots)
	if n == 0 {
		return ev, false
	}
	slot := l.unwantedSlots[n-1]
	l.unwantedSlots = l.unwantedSlots[:n-1]
	if q := &l.requests[slot]; q.Job != nil && q.Job.Answered && q.Batch < 0 && !q.IsDropped {
		ev = policy.Event{Kind: policy.Cancel, Model: q.Job.Model.Index, Service: q.Job.Model.Index, Req: slot, Task: slot}
	}
	return ev, true
}

// AnswerJob answers a job with the outcome that was set before: it counts it, and wakes the client's handler or,
// for text, tells the front end. Lateness counts for the client's share only if the client did not ask for less
// time than the SLO.
func (l *requestLedger) AnswerJob(j *Job) {
	j.Answered = true
	l.pendingJobs--
	l.core.Stats.recordAnswer(j, l.core.Loop.Now())
	if j.inClientShare {
		isLate := j.Outcome == OutcomeServed && j.IsLate || j.Reason == policy.ReasonDeadline || j.Reason == policy.ReasonWorkerLost
		l.clientShares.RecordEnd(l.core.Loop.Now(), j.Model.Index, j.Client, int32(j.Samples), isLate && j.Deadline-j.ArrivedAt >= j.Model.Slo)
	}
	if j.Text != nil {
		j.Text.JobAnswered(j)
		return
	}
	if j.Trace.IsRecording() {
		l.core.traceAnswer(j)
	}
	j.Done <- struct{}{}
}

// dropRequest handles the policy's drop of a request: it answers the whole job as dropped, and frees the slot once
// no batch holds the request.
func (l *requestLedger) dropRequest(slot int32, reason policy.DropReason) {
	if q := l.RequestIn(slot); q != nil {
		l.RefuseJob(q.Job, reason)
		l.core.Answerer.DropRequest(slot)
	}
}

// setRetry records when a request is worth sending again. If retryAt is 0, that is unknown.
func (l *requestLedger) setRetry(slot int32, retryAt time.Duration) {
	if q := l.RequestIn(slot); q != nil && retryAt > 0 {
		q.Job.RetryAfter = retryAt - l.core.Loop.Now()
	}
}

// notifyIdle wakes the goroutines that wait until all jobs are answered.
func (l *requestLedger) notifyIdle() {
	if l.pendingJobs == 0 && len(l.idleWaiters) > 0 {
		for _, ch := range l.idleWaiters {
			close(ch)
		}
		l.idleWaiters = nil
	}
}

// refuseAll answers all jobs as dropped, when the core stops. The policy is not told any more.
func (l *requestLedger) refuseAll(reason policy.DropReason) {
	for i := range l.requests {
		if j := l.requests[i].Job; j != nil {
			l.RefuseJob(j, reason)
		}
	}
	l.unwantedSlots = nil
}

// OneTaskPerRequest is embedded by answerers whose requests have one task each. The task has the slot of the request.
type OneTaskPerRequest struct{ Core *Core }

// RequestArrived implements Answerer. The arrival has already revealed the task.
func (OneTaskPerRequest) RequestArrived(int32) {}

// EnterBatch records, when a batch was dispatched, that its requests no longer wait but are in that batch. It
// implements Answerer.
func (s OneTaskPerRequest) EnterBatch(b *Batch) {
	n := int64(len(b.Tasks))
	b.Service.Waiting.Add(-n)
	b.Service.Running.Add(n)
	for _, t := range b.Tasks {
		s.Core.Ledger.requests[t].Batch = b.Slot
	}
}

// RequeueBatch is called when a batch goes back to the policy without a result: its requests wait again. Dropped
// ones are freed, and for answered ones the policy is told later that nobody waits. It implements Answerer.
func (s OneTaskPerRequest) RequeueBatch(b *Batch) {
	ledger := &s.Core.Ledger
	for _, t := range b.Tasks {
		q := &ledger.requests[t]
		if q.Job == nil {
			continue
		}
		if q.IsDropped {
			ledger.FreeRequest(t)
			continue
		}
		q.Batch = -1
		b.Service.Running.Add(-1)
		b.Service.Waiting.Add(1)
		if q.Job.Answered { // it need not run again
			ledger.unwantedSlots = append(ledger.unwantedSlots, t)
		}
	}
}

// BatchFailed answers the requests of a batch that cannot run: with the error as failed or, if err is nil, as dropped
// for the reason. It always returns true for hide: the core then tells the policy, which knows no failed batches, that
// the remaining stages have run and took no time. It implements Answerer.
func (s OneTaskPerRequest) BatchFailed(b *Batch, reason policy.DropReason, err error) (hide bool) {
	for _, t := range b.Tasks {
		j := s.Core.Ledger.requests[t].Job
		if j == nil || j.Answered {
			continue
		}
		if err != nil {
			s.Core.Ledger.FailJob(j, err)
		} else {
			s.Core.Ledger.RefuseJob(j, reason)
		}
	}
	return true
}

// DropRequest frees the slot of a request that the policy has dropped. A request in a batch keeps its slot until
// the batch is over, because the batch names it. It implements Answerer.
func (s OneTaskPerRequest) DropRequest(slot int32) {
	if q := &s.Core.Ledger.requests[slot]; q.Batch >= 0 {
		q.IsDropped = true
		return
	}
	s.Core.Ledger.FreeRequest(slot)
}

// RequestOf returns the task's own slot.
func (OneTaskPerRequest) RequestOf(task int32) int32 { return task }

// TaskInput returns input i of a task, which is the client's own. If its job is answered, it returns nil, because
// the client's memory must not be read any more.
func (s OneTaskPerRequest) TaskInput(task int32, i int) []byte {
	q := &s.Core.Ledger.requests[task]
	if q.Job == nil || q.Job.Answered {
		return nil
	}
	return q.Job.Input(int(q.Sample), i)
}

// PlaceInputs implements Answerer. The inputs are the client's, which are at every device.
func (s OneTaskPerRequest) PlaceInputs(task, device int32) {
	s.Core.Backends.BackendOf(device).PlaceInputs(task, device, 0)
}

func (OneTaskPerRequest) InputsPlaced(*policy.Event, int32) bool { return true }

// CopyOutputs copies the outputs of a finished batch, sample by sample, to the outputs of the jobs that wait for them,
// and counts the bytes and the time. The k-th sample of the batch belongs to the request in slot b.Tasks[k]. Jobs that
// are answered already get nothing. Plans whose requests run one task each use it.
func (s OneTaskPerRequest) CopyOutputs(b *Batch, out BatchOutputs) {
	c := s.Core
	begin := c.Loop.Now()
	var bytes int64
	for i := range b.Service.Outputs {
		size := b.Service.Outputs[i].Bytes
		src := out.Output(i)
		for k, t := range b.Tasks {
			q := &c.Ledger.requests[t]
			if q.Job == nil || q.Job.Answered {
				continue
			}
			copy(q.Job.Outputs[i][int(q.Sample)*size:][:size], src[k*size:])
		}
		bytes += int64(len(src))
	}
	c.Stats.Egress.Add(bytes)
	b.CopyTime = c.Loop.Now() - begin
	c.Stats.RecordBatch(b)
}
