package flow

import (
	"time"

	"inferplan/policy"
)

// Book is what a policy keeps of requests and tasks. A policy that keeps tasks in
// queues keeps an Entry of each: what is left of a request that was dropped is
// then seen when the entry is looked at, and nothing has to be searched for.
type Book struct {
	Requests []Request // by slot
	Tasks    []Task    // by slot
}

// Request is a request in its slot.
type Request struct {
	Arrived, Deadline time.Duration
	Model             int32
	life              uint32 // odd: it is open; another one, another request
}

// Task is a task in its slot.
type Task struct {
	Revealed time.Duration
	Req      int32
	Service  int32
}

// Entry is a task as it stands in a queue.
type Entry struct {
	Key       time.Duration // what queues are ordered by
	Task, Req int32
	life      uint32
}

// Arrive opens a request.
func (b *Book) Arrive(ev *policy.Event) {
	for int(ev.Req) >= len(b.Requests) {
		b.Requests = append(b.Requests, Request{})
	}
	r := &b.Requests[ev.Req]
	r.life += 1 + r.life&1 // where it is odd, the one before has ended with its last task
	r.Arrived, r.Deadline, r.Model = ev.Arrived, ev.Deadline, ev.Model
}

// Reveal takes in a task and gives its entry, keyed by the request's deadline.
func (b *Book) Reveal(now time.Duration, ev *policy.Event) Entry {
	for int(ev.Task) >= len(b.Tasks) {
		b.Tasks = append(b.Tasks, Task{})
	}
	b.Tasks[ev.Task] = Task{Revealed: now, Req: ev.Req, Service: ev.Service}
	r := &b.Requests[ev.Req]
	return Entry{Key: r.Deadline, Task: ev.Task, Req: ev.Req, life: r.life}
}

// Wanted tells whether the request of a task is still open.
func (b *Book) Wanted(e *Entry) bool { return b.Requests[e.Req].life == e.life }

// IsOpen tells whether a request is open, as far as was heard.
func (b *Book) IsOpen(req int32) bool {
	return int(req) < len(b.Requests) && b.Requests[req].life&1 == 1
}

// Close ends a request: its tasks are wanted no more.
func (b *Book) Close(req int32) {
	if b.IsOpen(req) {
		b.Requests[req].life++
	}
}
