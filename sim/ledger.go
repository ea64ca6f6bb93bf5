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
type requestState uint8

const (
	slotUnused   requestState = iota
	requestOpen               // neither answered nor dropped
	requestEnded              // answered or dropped, but batches still hold tasks of it
)

// request is the entry of a request slot.
type request struct {
	arrivedAt    time.Duration
	deadline     time.Duration
	model        int32
	client       int32 // number of the client, see policy.Event; 0 if it has none
	batchedTasks int32 // number of its tasks that are in batches
	state        requestState
	wholeSLO     bool // its SLO is not shorter than that of its model
}

// taskLocation is the device and the stage at which a task is.
type taskLocation struct {
	lastStage      int32 // the stage that it left last, if a batch ran a part of a pipeline, else -1
	device         int32 // the device that holds its tensors then
	seenByInstance bool  // an instance has had it
}

// ledger keeps account of requests and tasks. Without a Control the one task of a request
// has the same slot as the request.
type ledger struct {
	acc       *report.Accumulator
	shares    *fair.ClientShares // nil if clients share nothing
	requests  []request
	tasks     policy.TaskLedger
	locations []taskLocation // by task
	freeSlots []int32        // request slots
}

// typicalOpenRequests is the number of open requests that most runs do not exceed.
const typicalOpenRequests = 256

// init allocates the tables for as many requests as most runs have.
func (k *ledger) init() {
	k.requests, k.freeSlots = make([]request, 0, typicalOpenRequests), make([]int32, 0, typicalOpenRequests)
	k.tasks.List, k.locations = make([]policy.Task, 0, typicalOpenRequests), make([]taskLocation, 0, typicalOpenRequests)
}

// takeRequestSlot returns a free slot for a request, and makes sure that a task can have the same slot.
func (k *ledger) takeRequestSlot() int32 {
	slot := slots.Take(&k.requests, &k.freeSlots)
	for len(k.locations) < len(k.requests) {
		k.tasks.List, k.locations = append(k.tasks.List, policy.Task{}), append(k.locations, taskLocation{})
	}
	return slot
}

// enterBatch notes that a task is in a batch.
func (k *ledger) enterBatch(task int32) {
	state := &k.tasks.List[task]
	state.State = policy.TaskBatched
	k.requests[state.Req].batchedTasks++
}

// leaveBatch takes a task out of its batch, which has ended in some way, and gives it a new state: it waits again,
// or is over. It returns whether its request is still open. The slot of a request that ended meanwhile is freed
// with the last of its tasks.
func (k *ledger) leaveBatch(task int32, newState policy.TaskState) bool {
	state := &k.tasks.List[task]
	state.State = newState
	request := &k.requests[state.Req]
	request.batchedTasks--
	if request.state == requestOpen {
		return true
	}
	state.State = policy.TaskUnused
	if request.batchedTasks == 0 {
		k.freeSlot(state.Req)
	}
	return false
}

// dropRequest ends a request without an answer, as the policy orders, and counts it with the reason. For its
// client's share, a missed deadline or a lost worker counts as late. It returns an error if the request is not
// open.
func (k *ledger) dropRequest(now time.Duration, slot int32, reason policy.DropReason) error {
	if slot < 0 || int(slot) >= len(k.requests) || k.requests[slot].state != requestOpen {
		return fmt.Errorf("the policy drops request slot %d, which is not open", slot)
	}
	q := &k.requests[slot]
	k.acc.Drop(q.model, q.arrivedAt, int(reason))
	k.releaseClientShare(now, q, reason == policy.ReasonDeadline || reason == policy.ReasonWorkerLost)
	k.closeRequest(slot)
	return nil
}

// recordAnswer counts the answer to a request.
func (k *ledger) recordAnswer(q *request, answeredAt time.Duration) {
	k.acc.Complete(q.model, q.arrivedAt, answeredAt, q.deadline)
	k.releaseClientShare(answeredAt, q, answeredAt > q.deadline)
}

// releaseClientShare notes that a client's request has ended, and whether it was late
// although it had all of the model's SLO.
func (k *ledger) releaseClientShare(now time.Duration, q *request, isLate bool) {
	if q.client != 0 {
		k.shares.RecordEnd(now, q.model, q.client, 1, isLate && q.wholeSLO)
	}
}

// closeRequest closes a request that was answered or dropped. Its slot is freed once no batch holds a task of it,
// because batches name requests by their slots.
func (k *ledger) closeRequest(slot int32) {
	q := &k.requests[slot]
	if q.state = requestEnded; q.batchedTasks == 0 {
		k.freeSlot(slot)
	}
}

// freeSlot makes the slot of a request available again.
func (k *ledger) freeSlot(slot int32) {
	k.requests[slot].state = slotUnused
	k.freeSlots = append(k.freeSlots, slot)
}

// openRequests returns the number of request slots in use.
func (k *ledger) openRequests() int { return len(k.requests) - len(k.freeSlots) }
