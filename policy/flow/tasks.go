package flow

import (
	"time"

	"inferplan/policy"
)

// TaskTable holds the requests and tasks that a policy knows, by slot (a number that is used again). A policy that
// queues tasks keeps a QueueEntry of each. When a request is dropped, its entries stay in the queues, and are
// recognised when they are read (IsWanted), so nothing has to be searched for.
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

// QueueEntry is a task in a queue of a policy.
type QueueEntry struct {
	Key       time.Duration // order in the queue, lowest first
	Task, Req int32
	lifeCount uint32 // lifeCount of its request
}

// OpenRequest enters a request that arrives into its slot. lifeCount is odd while the slot's request is open, and
// grows with each request, so that entries of an earlier one can be told apart.
func (table *TaskTable) OpenRequest(ev *policy.Event) {
	for int(ev.Req) >= len(table.Requests) {
		table.Requests = append(table.Requests, Request{})
	}
	request := &table.Requests[ev.Req]

	// Make lifeCount the next odd number: add 1, or 2 if it is odd because the previous request of the slot was answered
	// and never closed here.
	request.lifeCount += 1 + request.lifeCount&1
	request.ArrivedAt, request.Deadline, request.Model = ev.ArrivedAt, ev.Deadline, ev.Model
}

// AddTask records a revealed task, and returns its entry for a queue, with the request's deadline as key.
func (table *TaskTable) AddTask(now time.Duration, ev *policy.Event) QueueEntry {
	for int(ev.Task) >= len(table.Tasks) {
		table.Tasks = append(table.Tasks, Task{})
	}
	table.Tasks[ev.Task] = Task{RevealedAt: now, Req: ev.Req, Service: ev.Service}
	request := &table.Requests[ev.Req]
	return QueueEntry{Key: request.Deadline, Task: ev.Task, Req: ev.Req, lifeCount: request.lifeCount}
}

// IsWanted reports whether the request of a task in a queue is still open.
func (table *TaskTable) IsWanted(entry *QueueEntry) bool {
	return table.Requests[entry.Req].lifeCount == entry.lifeCount
}

// IsOpen reports whether a request is open, as far as the policy was told.
func (table *TaskTable) IsOpen(req int32) bool {
	return int(req) < len(table.Requests) && table.Requests[req].lifeCount&1 == 1
}

// CloseRequest ends a request that was answered or dropped. Its tasks are not wanted any more.
func (table *TaskTable) CloseRequest(req int32) {
	if table.IsOpen(req) {
		table.Requests[req].lifeCount++
	}
}
