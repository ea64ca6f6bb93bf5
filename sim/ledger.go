package sim

import (
	"fmt"
	"time"

	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/fair"
	"inferplan/policy/slots"
)

// state of a slot of a request.
type state uint8

const (
	unused  state = iota
	waiting       // it is open
	over          // its slot is still in use by batches
)

type request struct {
	arrived  time.Duration
	deadline time.Duration
	model    int32
	client   int32 // whose it is, see policy.Event
	running  int32 // of its tasks, in batches
	state    state
	wholeSLO bool // it had all of the model's SLO
}

// spot is the device and the stage at which a task is.
type spot struct {
	stage  int32 // that it left last, where a batch ran a part of a pipeline; -1: none
	device int32 // that holds its tensors then
	begun  bool  // an instance knows it
}

// ledger keeps account of requests and tasks. Without a Control the one task of
// a request has its slot.
type ledger struct {
	acc      *report.Accumulator
	shares   *fair.Shares // nil: clients share nothing
	requests []request
	tasks    policy.TaskLedger
	spots    []spot  // by task
	free     []int32 // request slots
}

// usual is how many requests most runs have open at once, at most.
const usual = 256

// init makes room for them.
func (k *ledger) init() {
	k.requests, k.free = make([]request, 0, usual), make([]int32, 0, usual)
	k.tasks.List, k.spots = make([]policy.Task, 0, usual), make([]spot, 0, usual)
}

// take gives a slot for a request, with room for a task of the same slot.
func (k *ledger) take() int32 {
	slot := slots.Take(&k.requests, &k.free)
	for len(k.spots) < len(k.requests) {
		k.tasks.List, k.spots = append(k.tasks.List, policy.Task{}), append(k.spots, spot{})
	}
	return slot
}

// enter puts a task into a batch.
func (k *ledger) enter(t int32) {
	ta := &k.tasks.List[t]
	ta.State = policy.TaskBatched
	k.requests[ta.Req].running++
}

// leave takes a task out of its batch: it waits again, or is over. It tells
// whether anybody still wants it. A request that ended meanwhile gives its slot
// back with the last of its tasks.
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

// drop ends a request without an answer.
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

// answered notes the answer to a request.
func (k *ledger) answered(q *request, at time.Duration) {
	k.acc.Complete(q.model, q.arrived, at, q.deadline)
	k.giveBack(at, q, at > q.deadline)
}

// giveBack returns what a request had of its client's share.
func (k *ledger) giveBack(now time.Duration, q *request, late bool) {
	if q.client != 0 {
		k.shares.Ended(now, q.model, q.client, 1, late && q.wholeSLO)
	}
}

// end closes a request; its slot is free once no batch holds a task of it.
func (k *ledger) end(slot int32) {
	q := &k.requests[slot]
	if q.state = over; q.running == 0 {
		k.release(slot)
	}
}

func (k *ledger) release(slot int32) {
	k.requests[slot].state = unused
	k.free = append(k.free, slot)
}

// open is the number of requests whose slots are in use.
func (k *ledger) open() int { return len(k.requests) - len(k.free) }
