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

// store keeps requests until they end.
type store struct {
	limits   Limits
	backend  Backend
	mu       sync.Mutex
	requests map[string]*request
	clients  map[string]int // requests that are open, by client
	draining bool
	idle     chan struct{} // closed once none is open; nil: nobody waits for that
}

// request is a request with its tasks.
type request struct {
	name   string
	from   *httplimit.Holder
	client string
	mu     sync.Mutex
	tasks  []*task
	ended  bool
	users  int // calls that are under way
	expiry *time.Timer
	// deadline is when the request is late. One that nobody asks after holds no drain
	// beyond it.
	deadline time.Time
}

// task is a task of a request.
type task struct {
	state   string
	outputs calls.Outputs
	err     string
	changed chan struct{} // closed with its end; nil: it has ended
}

// open takes a request of a client in.
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

// use finds a request of an owner, and keeps it from expiring until release.
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

// expire ends a request whose client has gone.
func (s *store) expire(r *request) {
	r.mu.Lock()
	used := r.users > 0
	r.mu.Unlock()
	if !used {
		s.end(r)
	}
}

// end ends a request and frees what was kept of it. Who waits hears of it.
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

// forget takes a request off the books.
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

// forgotten is how often a drain looks for requests that nobody asks after.
const forgotten = 50 * time.Millisecond

// drain takes in nothing new, waits for what is open and ends what is left: requests
// that nobody asks after at their deadline, the others when ctx does.
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

// ongoing lists the requests that are open.
func (s *store) ongoing() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.requests))
}

// late tells whether a request is past its deadline.
func (r *request) late(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deadline.IsZero() && now.After(r.deadline)
}

// add takes tasks in, with the places of those that they read.
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

// undo takes back the last tasks, which the backend refused.
func (r *request) undo(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = r.tasks[:max(0, len(r.tasks)-n)]
}

func handle(i int) calls.Handle { return calls.Handle("t" + strconv.Itoa(i)) }

// index is the place of a handle; "#1" is the second of those from first on.
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

// find is a task by its handle; nil: there is none.
func (r *request) find(h calls.Handle) *task {
	if i, ok := index(h, 0); ok && h[0] == 't' && i < len(r.tasks) {
		return r.tasks[i]
	}
	return nil
}

// Ended implements News. Who waits for the task is told.
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

// look returns the state of a task, and a channel that its end closes.
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
