package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// requestTable has the open requests of the policy, and the batches in which they run.
type requestTable struct {
	bySlot        []request // by request slot
	openRequests  int       // number of open requests
	batchRequests []int32   // by batch slot: its request, or -1
	freeBatches   []int32   // free batch slots
	unplaced      []int32   // requests that no instance which is up can serve
	turns         clientTurns
}

// request is a request of the policy.
type request struct {
	open                                    bool // it is not answered, dropped or cancelled
	model                                   int32
	group                                   int32 // group in which it waits, or -1
	batch                                   int32 // batch in which it runs, or -1
	instance                                int32 // instance on which it runs
	nextInGroup, prevInGroup                int32 // neighbours in its group, or -1
	client                                  int32 // client that sent it
	clientLine                              int32 // line of its client in which it waits, or -1
	aheadInLine, behindInLine               int32 // neighbours in that line, or -1
	promptTokens, maxTokens, producedTokens int32 // tokens: of the prompt, at most of the answer, and produced so far
	countedKV                               int64 // tokens of KV memory that are counted for it while it runs
	evictionCount                           int8
	evictionOrdered                         bool          // its eviction was ordered
	unplaced                                bool          // no instance that could serve it is up
	answerPromised                          bool          // it is answered however late it is
	arrivedAt, deadline                     time.Duration // the deadline is that of its class's milestone
}

// addRequest enters an arriving request into its slot, with the time at which its milestone is due. -1 stands for
// no group, batch or neighbour. Value 1 of the event: its answer was promised already.
func (b *requestTable) addRequest(ev *policy.Event, due time.Duration) {
	for int(ev.Req) >= len(b.bySlot) {
		b.bySlot = append(b.bySlot, request{})
	}
	b.bySlot[ev.Req] = request{open: true, model: ev.Model, group: -1, batch: -1, nextInGroup: -1, prevInGroup: -1, client: ev.Client, clientLine: -1, aheadInLine: -1, behindInLine: -1,
		promptTokens: ev.Tokens, maxTokens: ev.Limit, arrivedAt: ev.ArrivedAt, deadline: due, answerPromised: ev.Value == 1}
	b.openRequests++
}

// waitingRequests returns the number of open requests that run in no batch.
func (b *requestTable) waitingRequests() int {
	return b.openRequests - (len(b.batchRequests) - len(b.freeBatches))
}

// closeRequest closes a request.
func (b *requestTable) closeRequest(req int32) {
	if r := &b.bySlot[req]; r.open {
		r.open = false
		b.openRequests--
	}
}

// markUnplaced notes that no instance which is up can serve a request.
func (b *requestTable) markUnplaced(req int32) {
	b.bySlot[req].unplaced = true
	b.unplaced = append(b.unplaced, req)
}

// unmarkUnplaced removes a request from the unplaced ones.
func (b *requestTable) unmarkUnplaced(req int32) {
	if r := &b.bySlot[req]; r.unplaced {
		r.unplaced = false
		b.unplaced = slices.DeleteFunc(b.unplaced, func(h int32) bool { return h == req })
	}
}

// takeBatch assigns a batch slot to a request that is dispatched, and returns it: a free slot, or a new one at the
// end. A batch of this policy is one request, and its slot is the number by which events name it.
func (b *requestTable) takeBatch(req int32) int32 {
	slot := int32(len(b.batchRequests))
	if n := len(b.freeBatches); n > 0 {
		slot = b.freeBatches[n-1]
		b.freeBatches = b.freeBatches[:n-1]
		b.batchRequests[slot] = req
	} else {
		b.batchRequests = append(b.batchRequests, req)
	}
	b.bySlot[req].batch = slot
	return slot
}

// freeBatch frees a batch slot.
func (b *requestTable) freeBatch(slot int32) {
	b.bySlot[b.batchRequests[slot]].batch = -1
	b.batchRequests[slot] = -1
	b.freeBatches = append(b.freeBatches, slot)
}
