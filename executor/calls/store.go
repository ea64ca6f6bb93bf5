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
type store struct {
	limits   Limits
	backend  Backend
	mu       sync.Mutex
	requests map[string]*request
	clients  map[string]int // number of open requests, by client
	draining bool
	idle     chan struct{} // closed when no request is open; nil if nobody waits for that
}

// openRequest is a request with its tasks. It implements TaskListener.
type request struct {
	name   string
	from   *httplimit.Holder
	client string
	mu     sync.Mutex
	tasks  []*task
	ended  bool
	users  int // calls of the client that are under way; the request cannot expire meanwhile
	expiry *time.Timer
	// deadline is the time after which the request is late. A drain ends a late request to which no call is under
	// way.
	deadline time.Time
}

// requestTask is a task of a request.
type task struct {
	state   string
	outputs calls.Outputs
	err     string
	changed chan struct{} // closed when the task ends; nil after that
}

// admit opens a request of a client. It returns an error if a limit is exceeded or the backend refuses the request.
func (s *store) open(o *calls.Open, from *httplimit.Holder, client string) (*request, error) {
	if err := from.Begin(); err != nil {
		return nil, err
	}
	r, err := s.enter(o, from, client)
	if err != nil {
		from.End()
	}
	return r, err
}

// register adds a request to the store and begins it at the backend.
func (s *store) enter(o *calls.Open, from *httplimit.Holder, client string) (*request, error) {
	s.mu.Lock()
	switch {
	case s.draining:
		s.mu.Unlock()
		return nil, ErrDraining
	case len(s.requests) >= s.limits.Requests:
		s.mu.Unlock()
		return nil, &Refused{Reason: "too many requests", Retry: time.Second}
	case s.clients[client] >= s.limits.PerClient:
		s.mu.Unlock()
		return nil, &Refused{Reason: "too many requests of one client", Retry: time.Second}
	}
	r := &request{name: rand.Text(), from: from, client: client}
	s.requests[r.name] = r
	s.clients[client]++
	s.mu.Unlock()
	budget, err := s.backend.Begin(r.name, o)
	if err != nil {
		s.forget(r)
		return nil, err
	}
	r.mu.Lock()
	r.deadline = time.Now().Add(budget)
	r.expiry = time.AfterFunc(s.limits.Idle, func() { s.expire(r) })
	r.mu.Unlock()
	return r, nil
}

// acquire returns a request of an owner and keeps it from expiring until release. It returns nil if there is none.
func (s *store) use(name, owner string) *request {
	s.mu.Lock()
	r := s.requests[name]
	s.mu.Unlock()
	if r == nil || r.from.Name != owner {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	r.users++
	if r.expiry != nil {
		r.expiry.Stop()
	}
	return r
}

// release lets a request expire again.
func (s *store) release(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 && !r.ended {
		r.expiry.Reset(s.limits.Idle)
	}
}

// expire ends a request whose client has gone, unless a call is under way.
func (s *store) expire(r *request) {
	r.mu.Lock()
	used := r.users > 0
	r.mu.Unlock()
	if !used {
		s.end(r)
	}
}

// endRequest ends a request and frees what was held of it. Those who wait for its tasks are woken.
func (s *store) end(r *request) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
	if r.expiry != nil {
		r.expiry.Stop()
	}
	for _, t := range r.tasks {
		if t.state == calls.Running {
			close(t.changed)
		}
	}
	r.tasks = nil
	r.mu.Unlock()
	s.forget(r)
	r.from.End()
	s.backend.End(r.name)
}

// remove removes a request from the store.
func (s *store) forget(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, r.name)
	if s.clients[r.client]--; s.clients[r.client] == 0 {
		delete(s.clients, r.client)
	}
	if len(s.requests) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// drainCheckInterval is the time between two searches for late requests during a drain.
const forgotten = 50 * time.Millisecond

// drain accepts no further requests and waits until none is open. Late requests to which no call is under way are
// ended, and all others when ctx ends.
func (s *store) drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	idle := make(chan struct{})
	if s.idle = idle; len(s.requests) == 0 {
		close(idle)
		s.idle = nil
	}
	s.mu.Unlock()
	look := time.NewTicker(forgotten)
	defer look.Stop()
	for {
		select {
		case <-idle:
			return
		case now := <-look.C:
			for _, r := range s.ongoing() {
				if r.late(now) {
					s.expire(r)
				}
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, r := range s.ongoing() {
		s.end(r)
	}
}

// openRequests lists the open requests.
func (s *store) ongoing() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.requests))
}

// isLate reports whether a request is past its deadline.
func (r *request) late(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deadline.IsZero() && now.After(r.deadline)
}

// add adds tasks, after it has resolved the handles that they read.
func (r *request) add(e *calls.Enqueue) ([]Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, calls.ErrEnded
	}
	if err := e.Check(len(r.tasks)); err != nil {
		return nil, err
	}
	first := len(r.tasks)
	var out []Task
	for i := range e.Tasks {
		t := Task{Handle: handle(first + i), Call: e.Tasks[i]}
		t.Reads = nil
		for k, h := range e.Tasks[i].Reads {
			at, ok := index(h, first)
			if !ok || at >= first+i {
				return nil, fmt.Errorf("tasks[%d].reads[%d]: %w: %q", i, k, calls.ErrUnknown, h)
			}
			t.Reads = append(t.Reads, handle(at))
		}
		out = append(out, t)
	}
	for range out {
		r.tasks = append(r.tasks, &task{state: calls.Running, changed: make(chan struct{})})
	}
	return out, nil
}

// removeLast removes the last n tasks, which the backend has refused.
func (r *request) undo(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = r.tasks[:max(0, len(r.tasks)-n)]
}

// handleOf returns the handle of the i-th task.
func handle(i int) calls.Handle { return calls.Handle("t" + strconv.Itoa(i)) }

// taskIndex returns the index of a handle's task. The handle "#1" means the second task from firstIndex on.
func index(h calls.Handle, first int) (int, bool) {
	for _, form := range []struct {
		prefix string
		from   int
	}{{"t", 0}, {"#", first}} {
		if rest, ok := strings.CutPrefix(string(h), form.prefix); ok {
			i, err := strconv.Atoi(rest)
			return form.from + i, err == nil && i >= 0 && i <= calls.MaxTasks && strconv.Itoa(i) == rest
		}
	}
	return 0, false
}

// findTask returns the task with a handle, or nil.
func (r *request) find(h calls.Handle) *task {
	if i, ok := index(h, 0); ok && h[0] == 't' && i < len(r.tasks) {
		return r.tasks[i]
	}
	return nil
}

// TaskEnded implements TaskListener. It wakes those who wait for the task.
func (r *request) Ended(h calls.Handle, outputs calls.Outputs, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.find(h)
	if t == nil || t.state != calls.Running {
		return
	}
	if t.state, t.outputs = calls.Done, outputs; err != nil {
		t.state, t.err = calls.Failed, err.Error()
	}
	close(t.changed)
	t.changed = nil
}

// taskResult returns the state of a task, and a channel that is closed when the task ends.
func (r *request) look(h calls.Handle) (res calls.Result, ended <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return res, nil, calls.ErrEnded
	}
	t := r.find(h)
	if t == nil {
		return res, nil, fmt.Errorf("%w: %q", calls.ErrUnknown, h)
	}
	return calls.Result{Task: h, State: t.state, Outputs: t.outputs, Error: t.err}, t.changed, nil
}
