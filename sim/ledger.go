package sim

import (
	"fmt"
	"time"

	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/fair"
	"inferplan/policy/slots"
)

// requestState is the state of a request slot.
type state uint8

const (
	unused  state = iota
	waiting       // neither answered nor dropped
	over          // answered or dropped, but batches still hold tasks of it
)

// request is the entry of a request slot.
type request struct {
	arrived  time.Duration
	deadline time.Duration
	model    int32
	client   int32 // number of the client, see policy.Event; 0 if it has none
	running  int32 // number of its tasks that are in batches
	state    state
	wholeSLO bool // its SLO is not shorter than that of its model
}

// taskLocation is the device and the stage at which a task is.
type spot struct {
	stage  int32 // the stage that it left last, if a batch ran a part of a pipeline, else -1
	device int32 // the device that holds its tensors then
	begun  bool  // an instance has had it
}

// ledger keeps account of requests and tasks. Without a Control the one task of a request
// has the same slot as the request.
type ledger struct {
	acc      *report.Accumulator
	shares   *fair.Shares // nil if clients share nothing
	requests []request
	tasks    policy.TaskLedger
	spots    []spot  // by task
	free     []int32 // request slots
}

// typicalOpenRequests is the number of open requests that most runs do not exceed.
const usual = 256

// init allocates the tables for as many requests as most runs have.
func (k *ledger) init() {
	k.requests, k.free = make([]request, 0, usual), make([]int32, 0, usual)
	k.tasks.List, k.spots = make([]policy.Task, 0, usual), make([]spot, 0, usual)
}

// takeRequestSlot returns a free slot for a request, and makes sure that a task can have the same slot.
func (k *ledger) take() int32 {
	slot := slots.Take(&k.requests, &k.free)
	for len(k.spots) < len(k.requests) {
		k.tasks.List, k.spots = append(k.tasks.List, policy.Task{}), append(k.spots, spot{})
	}
	return slot
}

// enterBatch notes that a task is in a batch.
func (k *ledger) enter(t int32) {
	ta := &k.tasks.List[t]
	ta.State = policy.TaskBatched
	k.requests[ta.Req].running++
}

// leaveBatch takes a task out of its batch and gives it a new state: it waits again, or is
// over. It returns whether its request is still open. The slot of a request that ended
// meanwhile is freed with the last of its tasks.
func (k *ledger) leave(t int32, then policy.TaskState) bool {
	ta := &k.tasks.List[t]
	ta.State = then
	q := &k.requests[ta.Req]
	q.running--
	if q.state == waiting {
		return true
	}
	ta.State = policy.TaskUnused
	if q.running == 0 {
		k.release(ta.Req)
	}
	return false
}

// dropRequest ends a request without an answer. It returns an error if the request is not
// open.
func (k *ledger) drop(now time.Duration, slot int32, reason policy.Reason) error {
	if slot < 0 || int(slot) >= len(k.requests) || k.requests[slot].state != waiting {
		return fmt.Errorf("the policy drops request slot %d, which is not open", slot)
	}
	q := &k.requests[slot]
	k.acc.Drop(q.model, q.arrived, int(reason))
	k.giveBack(now, q, reason == policy.ReasonDeadline || reason == policy.ReasonWorkerLost)
	k.end(slot)
	return nil
}

// recordAnswer counts the answer to a request.
func (k *ledger) answered(q *request, at time.Duration) {
	k.acc.Complete(q.model, q.arrived, at, q.deadline)
	k.giveBack(at, q, at > q.deadline)
}

// releaseClientShare notes that a client's request has ended, and whether it was late
// although it had all of the model's SLO.
func (k *ledger) giveBack(now time.Duration, q *request, late bool) {
	if q.client != 0 {
		k.shares.Ended(now, q.model, q.client, 1, late && q.wholeSLO)
	}
}

// closeRequest closes a request. Its slot is freed once no batch holds a task of it.
func (k *ledger) end(slot int32) {
	q := &k.requests[slot]
	if q.state = over; q.running == 0 {
		k.release(slot)
	}
}

// freeSlot makes the slot of a request available again.
func (k *ledger) release(slot int32) {
	k.requests[slot].state = unused
	k.free = append(k.free, slot)
}

// openRequests returns the number of request slots in use.
func (k *ledger) open() int { return len(k.requests) - len(k.free) }
