package executor

import (
	"sync"
	"sync/atomic"

	"inferplan/engine/worker"
)

// inbox is what others leave for the core.
type inbox struct {
	mu     sync.Mutex
	closed bool
	news   atomic.Bool   // something was left, or a wake-up is due, since the last round
	signal chan struct{} // wakes core.loop
	inboxContent
}

type inboxContent struct {
	events   []deviceEvent
	arrivals []*job
	cancels  []*job
	calls    []func()
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

// wake has core.loop look.
func (i *inbox) wake() {
	select {
	case i.signal <- struct{}{}:
	default:
	}
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
	c.attend()
	return true
}

// cancelJob tells that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (c *core) cancelJob(j *job) {
	j.refs.Add(1)
	c.in.mu.Lock()
	c.in.cancels = append(c.in.cancels, j)
	c.in.mu.Unlock()
	c.attend()
}

func (c *core) post(events ...deviceEvent) {
	c.in.mu.Lock()
	c.in.events = append(c.in.events, events...)
	c.in.mu.Unlock()
	c.attend()
}

// call runs f in a round; false when the core has ended.
func (c *core) call(f func()) bool {
	ran := make(chan struct{})
	c.in.mu.Lock()
	c.in.calls = append(c.in.calls, func() { f(); close(ran) })
	c.in.mu.Unlock()
	c.attend()
	select {
	case <-ran:
		return true
	case <-c.done:
		return false
	}
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
	clear(t.calls)
	t.events, t.arrivals, t.cancels, t.calls = t.events[:0], t.arrivals[:0], t.cancels[:0], t.calls[:0]
	c.in.news.Store(false)
	c.in.mu.Lock()
	*t, c.in.inboxContent = c.in.inboxContent, *t
	c.in.mu.Unlock()
}
