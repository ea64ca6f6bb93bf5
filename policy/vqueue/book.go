package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// book is the requests that the policy has, and the batches that they run in.
type book struct {
	requests []request // by slot
	open     int
	batches  []int32 // by slot: the request; -1
	slots    []int32 // batches that are free
	homeless []int32
	turns    turns
}

// request is a request that the policy has.
type request struct {
	open                bool
	model               int32
	group               int32 // it waits in; -1
	batch               int32 // it runs in; -1
	instance            int32 // that it runs on
	next, prev          int32 // in its group
	client              int32 // whose it is
	line                int32 // of its client that it waits in; -1
	ahead, behind       int32 // in it
	prompt, limit, made int32
	taken               int64 // tokens of KV memory that it is counted with while it runs
	evictions           int8
	evicting            bool          // it was asked to leave its instance
	homeless            bool          // no instance that could serve it is up
	promised            bool          // it is answered however late
	arrived, deadline   time.Duration // deadline: when it is due, see class
}

// note takes down a request that arrived and is due at a time.
func (b *book) note(ev *policy.Event, due time.Duration) {
	for int(ev.Req) >= len(b.requests) {
		b.requests = append(b.requests, request{})
	}
	b.requests[ev.Req] = request{open: true, model: ev.Model, group: -1, batch: -1, next: -1, prev: -1, client: ev.Client, line: -1, ahead: -1, behind: -1,
		prompt: ev.Tokens, limit: ev.Limit, arrived: ev.Arrived, deadline: due, promised: ev.Value == 1}
	b.open++
}

// waiting is the number of requests that run in no batch.
func (b *book) waiting() int { return b.open - (len(b.batches) - len(b.slots)) }

// end closes a request.
func (b *book) end(req int32) {
	if r := &b.requests[req]; r.open {
		r.open = false
		b.open--
	}
}

// strand notes that no instance which is up can serve a request.
func (b *book) strand(req int32) {
	b.requests[req].homeless = true
	b.homeless = append(b.homeless, req)
}

// unstrand takes a request off those that no instance can serve.
func (b *book) unstrand(req int32) {
	if r := &b.requests[req]; r.homeless {
		r.homeless = false
		b.homeless = slices.DeleteFunc(b.homeless, func(h int32) bool { return h == req })
	}
}

// batchFor is a batch slot for a request.
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

// giveBatch frees a batch slot.
func (b *book) giveBatch(slot int32) {
	b.requests[b.batches[slot]].batch = -1
	b.batches[slot] = -1
	b.slots = append(b.slots, slot)
}
