package executor

import (
	"sync"

	"inferplan/engine/worker"
)

// inbox is what others leave for the core.
type inbox struct {
	mu     sync.Mutex
	closed bool
	inboxContent
}

type inboxContent struct {
	events   []deviceEvent
	arrivals []*job
	cancels  []*job
}

type deviceEventKind uint8

const (
	resultCame deviceEventKind = iota
	workerLost
	workerBack
)

// deviceEvent is news of a worker.
type deviceEvent struct {
	kind   deviceEventKind
	device int32
	gen    int
	proc   *worker.Process // workerBack
	result worker.Result
}

// submit hands a job over; false once the core takes no more.
func (c *core) submit(j *job) bool {
	c.in.mu.Lock()
	if c.in.closed {
		c.in.mu.Unlock()
		return false
	}
	c.in.arrivals = append(c.in.arrivals, j)
	c.in.mu.Unlock()
	c.loop.Attend()
	return true
}

// cancelJob tells that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (c *core) cancelJob(j *job) {
	j.refs.Add(1)
	c.in.mu.Lock()
	c.in.cancels = append(c.in.cancels, j)
	c.in.mu.Unlock()
	c.loop.Attend()
}

func (c *core) post(events ...deviceEvent) {
	c.in.mu.Lock()
	c.in.events = append(c.in.events, events...)
	c.in.mu.Unlock()
	c.loop.Attend()
}

// closeInbox refuses further jobs.
func (c *core) closeInbox() {
	c.in.mu.Lock()
	c.in.closed = true
	c.in.mu.Unlock()
}

// take exchanges the inbox for the emptied one of the last round.
func (c *core) take() {
	t := &c.taken
	clear(t.arrivals)
	clear(t.cancels)
	t.events, t.arrivals, t.cancels = t.events[:0], t.arrivals[:0], t.cancels[:0]
	c.in.mu.Lock()
	*t, c.in.inboxContent = c.in.inboxContent, *t
	c.in.mu.Unlock()
}
