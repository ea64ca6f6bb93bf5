package flow

import (
	"time"

	"inferplan/policy"
)

// TaskTable holds the requests and tasks that a policy knows. A policy that queues tasks keeps a QueueEntry of each.
// When a request is dropped its entries stay in the queues, and are recognised when they are read (IsWanted), so nothing
// has to be searched for.
type TaskTable struct {
	Requests []Request // by slot
	Tasks    []Task    // by slot
}

// Request is a request in its slot.
type Request struct {
	ArrivedAt, Deadline time.Duration
	Model               int32
	lifeCount           uint32 // odd while it is open; changes with every request in the slot
}

// Task is a task in its slot.
type Task struct {
	RevealedAt time.Duration
	Req        int32
	Service    int32
}

// QueueEntry is a task in a queue.
type QueueEntry struct {
	Key       time.Duration // order in the queue, lowest first
	Task, Req int32
	lifeCount uint32 // lifeCount of its request
}

// OpenRequest enters a request that arrives into its slot. lifeCount is odd while the slot's request is open, and
// grows with each request, so that entries of an earlier one can be told.
func (b *TaskTable) OpenRequest(ev *policy.Event) {
	for int(ev.Req) >= len(b.Requests) {
		b.Requests = append(b.Requests, Request{})
	}
	r := &b.Requests[ev.Req]
	r.lifeCount += 1 + r.lifeCount&1 // if it is odd, the previous request ended with its last task
	r.ArrivedAt, r.Deadline, r.Model = ev.ArrivedAt, ev.Deadline, ev.Model
}

// AddTask records a revealed task, and returns its entry for a queue, with the request's deadline as key.
func (b *TaskTable) AddTask(now time.Duration, ev *policy.Event) QueueEntry {
	for int(ev.Task) >= len(b.Tasks) {
		b.Tasks = append(b.Tasks, Task{})
	}
	b.Tasks[ev.Task] = Task{RevealedAt: now, Req: ev.Req, Service: ev.Service}
	r := &b.Requests[ev.Req]
	return QueueEntry{Key: r.Deadline, Task: ev.Task, Req: ev.Req, lifeCount: r.lifeCount}
}

// IsWanted returns true if the request of a task is still open.
func (b *TaskTable) IsWanted(e *QueueEntry) bool { return b.Requests[e.Req].lifeCount == e.lifeCount }

// IsOpen returns true if a request is open, as far as the policy has been told.
func (b *TaskTable) IsOpen(req int32) bool {
	return int(req) < len(b.Requests) && b.Requests[req].lifeCount&1 == 1
}

// CloseRequest ends a request. Its tasks are not wanted any more.
func (b *TaskTable) CloseRequest(req int32) {
	if b.IsOpen(req) {
		b.Requests[req].lifeCount++
	}
}
