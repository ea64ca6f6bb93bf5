package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/slots"
)

// requestTable holds the open requests of the policy, and the batches in which they run.
// A request number is an index in byNumber, by which events name the request.
// A batch of this policy is one request; events name it by its batch number.
type requestTable struct {
	byNumber         []Request // by request number
	openRequests     int       // number of open requests
	requestOfBatch   []int32   // by batch number: its request; -1 if the number is free
	freeBatchNumbers []int32   // batch numbers that are free
	unplaced         []int32   // numbers of the requests that no instance which is up can serve
	turns            clientTurns
	groupLinks       slots.Links // of the members of groups, by request number
	lineLinks        slots.Links // of the lines of clients
}

// Request is a request to a served model. -1 stands for no group, batch or line.
type Request struct {
	isOpen                  bool          // it is not answered, dropped or cancelled
	Model                   int32         // served model
	groupIndex              int32         // group in which it waits, or -1
	batchNumber             int32         // batch in which it runs, or -1
	instanceIndex           int32         // instance on which it runs, or ran last
	client                  int32         // client that sent it
	Session                 int64         // session of which it is a turn; 0 if it has none
	clientLine              int32         // line of its client in which it waits, an index in clientTurns.lines, or -1
	promptTokens, maxTokens int32         // tokens of the prompt, and at most of the answer
	producedTokens          int32         // tokens of the answer produced so far
	reservedKVTokens        int64         // tokens of KV memory that are reserved for it while it runs
	takenTokens             int64         // tokens of free KV memory that it took when it started
	evictionCount           int8          // number of times that it was evicted
	isEvictionOrdered       bool          // its eviction was ordered and has not ended
	isUnplaced              bool          // no instance that could serve it is up
	AnswerPromised          bool          // it is answered however late it is
	ArrivedAt, Deadline     time.Duration // the deadline is that of its class's milestone, the point to which the SLO applies
}

// addRequest makes the entry of a request that arrives by an event. due is the time by which it has to reach its milestone, the point to
// which its SLO applies. It is in no group, batch or list (-1). An event with Value 1 says that its answer was promised already.
func (t *requestTable) addRequest(event *policy.Event, due time.Duration) {
	for int(event.Req) >= len(t.byNumber) {
		t.byNumber = append(t.byNumber, Request{})
	}
	t.byNumber[event.Req] = Request{isOpen: true, Model: event.Model, groupIndex: -1, batchNumber: -1, client: event.Client, Session: event.Key, clientLine: -1,
		promptTokens: event.Tokens, maxTokens: event.Limit, ArrivedAt: event.ArrivedAt, Deadline: due, AnswerPromised: event.Value == 1}
	t.openRequests++
}

// waitingRequests returns the number of open requests that run in no batch.
func (t *requestTable) waitingRequests() int {
	return t.openRequests - (len(t.requestOfBatch) - len(t.freeBatchNumbers))
}

// closeRequest closes a request that was answered, dropped or cancelled, given by its number.
func (t *requestTable) closeRequest(requestNumber int32) {
	if request := &t.byNumber[requestNumber]; request.isOpen {
		request.isOpen = false
		t.openRequests--
	}
}

// markUnplaced notes that no instance which is up can serve a request, given by its number.
func (t *requestTable) markUnplaced(requestNumber int32) {
	t.byNumber[requestNumber].isUnplaced = true
	t.unplaced = append(t.unplaced, requestNumber)
}

// unmarkUnplaced removes a request, given by its number, from those that no instance can serve.
func (t *requestTable) unmarkUnplaced(requestNumber int32) {
	if request := &t.byNumber[requestNumber]; request.isUnplaced {
		request.isUnplaced = false
		t.unplaced = slices.DeleteFunc(t.unplaced, func(other int32) bool { return other == requestNumber })
	}
}

// takeBatch returns the batch number of a request that is dispatched: a free one, or a new one at the end. A batch of this policy is one request.
func (t *requestTable) takeBatch(requestNumber int32) int32 {
	batchNumber := slots.Take(&t.requestOfBatch, &t.freeBatchNumbers)
	t.requestOfBatch[batchNumber], t.byNumber[requestNumber].batchNumber = requestNumber, batchNumber
	return batchNumber
}

// freeBatch frees a batch number when its batch has ended or comes back.
func (t *requestTable) freeBatch(batchNumber int32) {
	t.byNumber[t.requestOfBatch[batchNumber]].batchNumber = -1
	t.requestOfBatch[batchNumber] = -1
	t.freeBatchNumbers = append(t.freeBatchNumbers, batchNumber)
}
