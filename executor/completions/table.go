package completions

import (
	"maps"
	"slices"
	"sync"
)

// requestTable holds the requests that have not ended. Its lock is never held while that of a request is taken.
type requestTable struct {
	mu       sync.Mutex
	byID     map[string]*trackedRequest
	bySender map[string]int // number of requests, by sender
}

// find returns the request with an id. If there is none, it returns nil.
func (t *requestTable) find(id string) *trackedRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// findOrAdd returns the open request with the id of e and false, or, if there is none, adds e, counts it for its sender,
// and returns it and true.
func (t *requestTable) findOrAdd(e *trackedRequest) (_ *trackedRequest, isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if present := t.byID[e.id]; present != nil {
		return present, false
	}
	t.byID[e.id] = e
	t.bySender[e.record.sender()]++
	return e, true
}

// remove removes a request from the table and from its sender's count. If the table does not have this very request, it
// does nothing.
func (t *requestTable) remove(e *trackedRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[e.id] != e {
		return
	}
	delete(t.byID, e.id)
	sender := e.record.sender()
	if t.bySender[sender]--; t.bySender[sender] == 0 {
		delete(t.bySender, sender)
	}
}

// counts returns the number of requests, of those of a sender, and of senders.
func (t *requestTable) counts(sender string) (requests, ofSender, senders int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID), t.bySender[sender], len(t.bySender)
}

// served returns the requests that this process's server answers (others are followed in the store) and whose result is
// not known, in no order.
func (t *requestTable) served() (out []*trackedRequest) {
	t.mu.Lock()
	tracked := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, e := range tracked {
		e.mu.Lock()
		if e.handedToServer && !e.resultKnown {
			out = append(out, e)
		}
		e.mu.Unlock()
	}
	return out
}

// runningBatches holds the batches that run here.
type runningBatches struct {
	mu   sync.Mutex
	byID map[string]*runningBatch
}

// find returns the batch with an id. If it does not run here, it returns nil.
func (t *runningBatches) find(id string) *runningBatch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// add adds a batch to those that run in this process, and returns a function that removes it.
func (t *runningBatches) add(b *runningBatch) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[b.state.ID] = b
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.byID, b.state.ID)
	}
}
