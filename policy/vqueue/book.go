package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// requestTable has the open requests of the policy, and the batches in which they run.
type book struct {
	requests []request // by request slot
	open     int       // number of open requests
	batches  []int32   // by batch slot: its request, or -1
	slots    []int32   // free batch slots
	homeless []int32   // requests that no instance which is up can serve
	turns    turns
}

// request is a request of the policy.
type request struct {
	open                bool // it is not answered, dropped or cancelled
	model               int32
	group               int32 // group in which it waits, or -1
	batch               int32 // batch in which it runs, or -1
	instance            int32 // instance on which it runs
	next, prev          int32 // neighbours in its group, or -1
	client              int32 // client that sent it
	line                int32 // line of its client in which it waits, or -1
	ahead, behind       int32 // neighbours in that line, or -1
	prompt, limit, made int32 // tokens: of the prompt, at most of the answer, and produced so far
	taken               int64 // tokens of KV memory that are counted for it while it runs
	evictions           int8
	evicting            bool          // its eviction was ordered
	homeless            bool          // no instance that could serve it is up
	promised            bool          // it is answered however late it is
	arrived, deadline   time.Duration // the deadline is that of its class's milestone
}

// addRequest adds a request that arrived and has this deadline.
func (b *book) note(ev *policy.Event, due time.Duration) {
	for int(ev.Req) >= len(b.requests) {
		b.requests = append(b.requests, request{})
	}
	b.requests[ev.Req] = request{open: true, model: ev.Model, group: -1, batch: -1, next: -1, prev: -1, client: ev.Client, line: -1, ahead: -1, behind: -1,
		prompt: ev.Tokens, limit: ev.Limit, arrived: ev.Arrived, deadline: due, promised: ev.Value == 1}
	b.open++
}

// waitingRequests returns the number of open requests that run in no batch.
func (b *book) waiting() int { return b.open - (len(b.batches) - len(b.slots)) }

// closeRequest closes a request.
func (b *book) end(req int32) {
	if r := &b.requests[req]; r.open {
		r.open = false
		b.open--
	}
}

// markUnplaced notes that no instance which is up can serve a request.
func (b *book) strand(req int32) {
	b.requests[req].homeless = true
	b.homeless = append(b.homeless, req)
}

// unmarkUnplaced removes a request from the unplaced ones.
func (b *book) unstrand(req int32) {
	if r := &b.requests[req]; r.homeless {
		r.homeless = false
		b.homeless = slices.DeleteFunc(b.homeless, func(h int32) bool { return h == req })
	}
}

// takeBatch returns a free batch slot and assigns it to a request.
func (b *book) batchFor(req int32) int32 {
	slot := int32(len(b.batches))
	if n := len(b.slots); n > 0 {
		slot = b.slots[n-1]
		b.slots = b.slots[:n-1]
		b.batches[slot] = req
	} else {
		b.batches = append(b.batches, req)
	}
	b.requests[req].batch = slot
	return slot
}

// freeBatch frees a batch slot.
func (b *book) giveBatch(slot int32) {
	b.requests[b.batches[slot]].batch = -1
	b.batches[slot] = -1
	b.slots = append(b.slots, slot)
}
