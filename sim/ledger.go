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

// ledger keeps account of the requests and tasks of a run, by slot. Without a Control the one task of a request has
// the same slot as the request.
type ledger struct {
	reportCounts *report.Accumulator // counts what the report shows
	shares       *fair.ClientShares  // nil if clients share nothing
	requests     []request
	tasks        policy.TaskLedger
	locations    []taskLocation // by task
	freeSlots    []int32        // request slots
	// ended is called with every request that ends, and with the reason if it was dropped. It may be nil.
	ended func(request *request, endedAt time.Duration, reason string)
}

// typicalOpenRequests is the number of open requests that most runs do not exceed.
const typicalOpenRequests = 256

// init allocates the tables for as many open requests as most runs have.
func (ledger *ledger) init() {
	ledger.requests, ledger.freeSlots = make([]request, 0, typicalOpenRequests), make([]int32, 0, typicalOpenRequests)
	ledger.tasks.List, ledger.locations = make([]policy.Task, 0, typicalOpenRequests), make([]taskLocation, 0, typicalOpenRequests)
}

// takeRequestSlot returns a free slot for a request, and makes sure that a task can have the same slot.
func (ledger *ledger) takeRequestSlot() int32 {
	requestSlot := slots.Take(&ledger.requests, &ledger.freeSlots)
	for len(ledger.locations) < len(ledger.requests) {
		ledger.tasks.List, ledger.locations = append(ledger.tasks.List, policy.Task{}), append(ledger.locations, taskLocation{})
	}
	return requestSlot
}

// enterBatch notes that a task is now in a batch, for itself and for its request.
func (ledger *ledger) enterBatch(task int32) {
	state := &ledger.tasks.List[task]
	state.State = policy.TaskBatched
	ledger.requests[state.Req].batchedTasks++
}

// leaveBatch takes a task out of its batch, which has ended in some way, and gives the task a new state: it waits
// again, or is over. It returns whether its request is still open. The slot of a request that ended meanwhile is
// freed with the last of its tasks.
func (ledger *ledger) leaveBatch(task int32, newState policy.TaskState) bool {
	state := &ledger.tasks.List[task]
	state.State = newState
	request := &ledger.requests[state.Req]
	request.batchedTasks--
	if request.state == requestOpen {
		return true
	}
	state.State = policy.TaskUnused
	if request.batchedTasks == 0 {
		ledger.freeSlot(state.Req)
	}
	return false
}

// dropRequest ends a request without an answer, as the policy orders, and counts it with the reason. It also records the
// end for the share that the request's client has of the model; there a missed deadline or a lost worker counts as late.
// It returns an error if the request is not open.
func (ledger *ledger) dropRequest(now time.Duration, requestSlot int32, reason policy.DropReason) error {
	if requestSlot < 0 || int(requestSlot) >= len(ledger.requests) || ledger.requests[requestSlot].state != requestOpen {
		return fmt.Errorf("the policy drops request slot %d, which is not open", requestSlot)
	}
	request := &ledger.requests[requestSlot]
	ledger.reportCounts.Drop(request.model, request.arrivedAt, int(reason))
	if ledger.ended != nil {
		ledger.ended(request, now, reason.String())
	}
	ledger.releaseClientShare(now, request, reason == policy.ReasonDeadline || reason == policy.ReasonWorkerLost)
	ledger.closeRequest(requestSlot)
	return nil
}

// recordAnswer counts the answer to a request for the report and for its client's share.
func (ledger *ledger) recordAnswer(request *request, answeredAt time.Duration) {
	ledger.reportCounts.Complete(request.model, request.arrivedAt, answeredAt, request.deadline)
	if ledger.ended != nil {
		ledger.ended(request, answeredAt, "")
	}
	ledger.releaseClientShare(answeredAt, request, answeredAt > request.deadline)
}

// releaseClientShare notes for the shares of clients that a client's request has ended, and whether it was late
// although it had all of the model's SLO.
func (ledger *ledger) releaseClientShare(now time.Duration, request *request, isLate bool) {
	if request.client != 0 {
		ledger.shares.RecordEnd(now, request.model, request.client, 1, isLate && request.wholeSLO)
	}
}

// closeRequest closes a request that was answered or dropped. Its slot is freed once no batch holds a task of it,
// because batches name requests by their slots.
func (ledger *ledger) closeRequest(requestSlot int32) {
	request := &ledger.requests[requestSlot]
	request.state = requestEnded
	if request.batchedTasks == 0 {
		ledger.freeSlot(requestSlot)
	}
}

// freeSlot makes the slot of a request available to another request.
func (ledger *ledger) freeSlot(requestSlot int32) {
	ledger.requests[requestSlot].state = slotUnused
	ledger.freeSlots = append(ledger.freeSlots, requestSlot)
}

// openRequests returns the number of request slots in use. After the end of a run it is 0.
func (ledger *ledger) openRequests() int { return len(ledger.requests) - len(ledger.freeSlots) }
