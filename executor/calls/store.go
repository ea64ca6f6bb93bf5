package calls

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/formats/calls"
)

// requestStore holds the open requests.
type requestStore struct {
	limits   Limits
	backend  Backend
	mu       sync.Mutex
	requests map[string]*openRequest
	clients  map[string]int // number of open requests, by client
	draining bool
	emptied  chan struct{} // closed when no request is open; nil if nobody waits for that
}

// openRequest is a request with its tasks. It implements TaskListener.
type openRequest struct {
	name        string
	holder      *httplimit.Holder
	client      string
	mu          sync.Mutex
	tasks       []*requestTask
	hasEnded    bool
	activeCalls int // calls of the client that are under way; the request cannot expire meanwhile
	expiry      *time.Timer
	// deadline is the time after which the request is late. A drain ends a late request to which no call is under
	// way.
	deadline time.Time
}

// requestTask is a task of a request.
type requestTask struct {
	state   string
	outputs calls.Outputs
	err     string
	ended   chan struct{} // closed when the task ends; nil after that
}

// admit opens a request for a program, under the name that it returns in the request. Until it ends it counts as open,
// for the key of the sender (holder) and for client, which is the key's name or else the address. It returns an error if
// a limit is exceeded or the backend refuses the request.
func (s *requestStore) admit(o *calls.Open, holder *httplimit.Holder, client string) (*openRequest, error) {
	if err := holder.BeginRequest(); err != nil {
		return nil, err
	}
	r, err := s.register(o, holder, client)
	if err != nil {
		holder.EndRequest()
	}
	return r, err
}

// register adds a request to the store and begins it at the backend. Too many open requests, in all or of one
// client, are refused, as are all while the server drains. It expires after IdleTimeout without a call.
func (s *requestStore) register(o *calls.Open, holder *httplimit.Holder, client string) (*openRequest, error) {
	s.mu.Lock()
	switch {
	case s.draining:
		s.mu.Unlock()
		return nil, ErrDraining
	case len(s.requests) >= s.limits.MaxRequests:
		s.mu.Unlock()
		return nil, &RefusedError{Reason: "too many requests", RetryAfter: time.Second}
	case s.clients[client] >= s.limits.MaxPerClient:
		s.mu.Unlock()
		return nil, &RefusedError{Reason: "too many requests of one client", RetryAfter: time.Second}
	}
	r := &openRequest{name: rand.Text(), holder: holder, client: client}
	s.requests[r.name] = r
	s.clients[client]++
	s.mu.Unlock()
	budget, err := s.backend.BeginRequest(r.name, o)
	if err != nil {
		s.remove(r)
		return nil, err
	}
	r.mu.Lock()
	r.deadline = time.Now().Add(budget)
	r.expiry = time.AfterFunc(s.limits.IdleTimeout, func() { s.expire(r) })
	r.mu.Unlock()
	return r, nil
}

// acquire returns the open request of a name, and stops its expiry until release is called. owner is the name of the
// sender's key. It returns nil if there is no such request, it has ended, or it belongs to another owner.
func (s *requestStore) acquire(name, owner string) *openRequest {
	s.mu.Lock()
	r := s.requests[name]
	s.mu.Unlock()
	if r == nil || r.holder.Name != owner {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasEnded {
		return nil
	}
	r.activeCalls++
	if r.expiry != nil {
		r.expiry.Stop()
	}
	return r
}

// release ends a call's use of a request, which may then expire: without further calls it does so after
// IdleTimeout.
func (s *requestStore) release(r *openRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.activeCalls--; r.activeCalls == 0 && !r.hasEnded {
		r.expiry.Reset(s.limits.IdleTimeout)
	}
}

// expire ends a request whose client has gone, unless a call is under way.
func (s *requestStore) expire(r *openRequest) {
	r.mu.Lock()
	inUse := r.activeCalls > 0
	r.mu.Unlock()
	if !inUse {
		s.endRequest(r)
	}
}

// endRequest ends a request, at its client's wish or because it has expired, and frees what was held of it. Those
// who wait for its tasks are woken. If it has ended, nothing happens.
func (s *requestStore) endRequest(r *openRequest) {
	r.mu.Lock()
	if r.hasEnded {
		r.mu.Unlock()
		return
	}
	r.hasEnded = true
	if r.expiry != nil {
		r.expiry.Stop()
	}
	for _, t := range r.tasks {
		if t.state == calls.StatusRunning {
			close(t.ended)
		}
	}
	r.tasks = nil
	r.mu.Unlock()
	s.remove(r)
	r.holder.EndRequest()
	s.backend.EndRequest(r.name)
}

// remove removes a request that has ended from the store and from its client's count. If it was the last one and Drain
// waits, Drain is woken.
func (s *requestStore) remove(r *openRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, r.name)
	if s.clients[r.client]--; s.clients[r.client] == 0 {
		delete(s.clients, r.client)
	}
	if len(s.requests) == 0 && s.emptied != nil {
		close(s.emptied)
		s.emptied = nil
	}
}

// drainCheckInterval is the time between two searches for late requests during a drain.
const drainCheckInterval = 50 * time.Millisecond

// Drain is called when the server ends. It accepts no further requests and waits until none is open. Late requests
// (past their deadlines) to which no call is under way are ended meanwhile, and all others when ctx ends.
func (s *requestStore) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	emptied := make(chan struct{})
	if s.emptied = emptied; len(s.requests) == 0 {
		close(emptied)
		s.emptied = nil
	}
	s.mu.Unlock()
	ticker := time.NewTicker(drainCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-emptied:
			return
		case now := <-ticker.C:
			for _, r := range s.openRequests() {
				if r.isLate(now) {
					s.expire(r)
				}
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, r := range s.openRequests() {
		s.endRequest(r)
	}
}

// openRequests lists the open requests.
func (s *requestStore) openRequests() []*openRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.requests))
}

// isLate reports whether a request is past its deadline.
func (r *openRequest) isLate(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deadline.IsZero() && now.After(r.deadline)
}

// add adds the tasks of a message to a request, and returns them with their handles. A task may read earlier tasks,
// also of the same message; their handles are checked. If one is unknown or the request has ended, none is added.
func (r *openRequest) add(e *calls.Enqueue) ([]Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasEnded {
		return nil, calls.ErrEnded
	}
	if err := e.Check(len(r.tasks)); err != nil {
		return nil, err
	}
	firstIndex := len(r.tasks)
	var added []Task
	for i := range e.Tasks {
		t := Task{Handle: handleOf(firstIndex + i), Call: e.Tasks[i]}
		t.Reads = nil
		for k, h := range e.Tasks[i].Reads {
			readIndex, ok := taskIndex(h, firstIndex)
			if !ok || readIndex >= firstIndex+i {
				return nil, fmt.Errorf("tasks[%d].reads[%d]: %w: %q", i, k, calls.ErrUnknown, h)
			}
			t.Reads = append(t.Reads, handleOf(readIndex))
		}
		added = append(added, t)
	}
	for range added {
		r.tasks = append(r.tasks, &requestTask{state: calls.StatusRunning, ended: make(chan struct{})})
	}
	return added, nil
}

// removeLast removes the last n tasks, which the backend has refused.
func (r *openRequest) removeLast(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = r.tasks[:max(0, len(r.tasks)-n)]
}

// handleOf returns the handle of the i-th task.
func handleOf(i int) calls.Handle { return calls.Handle("t" + strconv.Itoa(i)) }

// taskIndex returns the index of the task that a handle names, and false for a malformed one. "t3" is the fourth
// task of the request; "#1" is the second task from firstIndex on, that is, of the same message.
func taskIndex(h calls.Handle, firstIndex int) (int, bool) {
	for _, form := range []struct {
		prefix string
		from   int
	}{{"t", 0}, {"#", firstIndex}} {
		if digits, ok := strings.CutPrefix(string(h), form.prefix); ok {
			i, err := strconv.Atoi(digits)
			return form.from + i, err == nil && i >= 0 && i <= calls.MaxTasks && strconv.Itoa(i) == digits
		}
	}
	return 0, false
}

// findTask returns the task with a handle, or nil.
func (r *openRequest) findTask(h calls.Handle) *requestTask {
	if i, ok := taskIndex(h, 0); ok && h[0] == 't' && i < len(r.tasks) {
		return r.tasks[i]
	}
	return nil
}

// TaskEnded is called when a task has ended, with its outputs or an error. It wakes those who wait for the task. If
// the task has ended before, nothing changes. It implements TaskListener.
func (r *openRequest) TaskEnded(h calls.Handle, outputs calls.Outputs, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.findTask(h)
	if t == nil || t.state != calls.StatusRunning {
		return
	}
	if t.state, t.outputs = calls.StatusDone, outputs; err != nil {
		t.state, t.err = calls.StatusFailed, err.Error()
	}
	close(t.ended)
	t.ended = nil
}

// taskResult returns the state of the task of a handle (running, or ended with its outputs or error), and a channel that
// is closed when the task ends. It returns an error if the request has ended or has no such task.
func (r *openRequest) taskResult(h calls.Handle) (result calls.Result, done <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasEnded {
		return result, nil, calls.ErrEnded
	}
	t := r.findTask(h)
	if t == nil {
		return result, nil, fmt.Errorf("%w: %q", calls.ErrUnknown, h)
	}
	return calls.Result{Task: h, State: t.state, Outputs: t.outputs, Error: t.err}, t.ended, nil
}
