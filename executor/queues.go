package executor

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"inferplan/executor/completions"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// Queues answers requests for text by an executor's plan of queues: it is what the
// front end asks (completions.Server). Requests that a plan leaves unfinished go to
// the next plan with what was written; those that the end of the executor leaves stay
// with the front end's store.
type Queues struct {
	x  *Executor
	wg sync.WaitGroup // of what waits for the front end's store

	mu   sync.Mutex
	open map[string]holding // by the request's id
}

// holding is a request that a core has. It holds the job.
type holding struct {
	core *core
	job  *job
}

// expecter is a policy that says what a request which came now would meet.
type expecter interface {
	Expect(now time.Duration, model, prompt, client int32, deadline time.Duration) vqueue.Expectation
}

// NewQueues gives the requests for text of an executor's plans.
func NewQueues(x *Executor) *Queues { return &Queues{x: x, open: map[string]holding{}} }

// Wait returns once all that was told to the front end is done. It follows Close of
// the executor.
func (q *Queues) Wait() { q.wg.Wait() }

// Models implements completions.Server.
func (q *Queues) Models() []completions.Model {
	c := q.x.core.Load()
	var out []completions.Model
	seen := map[string]bool{}
	for _, m := range c.served.models {
		if seen[m.name] {
			continue
		}
		seen[m.name] = true
		o := completions.Model{ID: m.name, OwnedBy: "inferplan", Created: c.loop.Epoch()}
		if c.served.named.Named(m.name) {
			o.Classes = c.served.named.Of(m.name)
		}
		out = append(out, o)
	}
	return out
}

// find is the model and class of a request in a core's plan.
func (q *Queues) find(c *core, r *completions.Request) (*model, error) {
	if i, ok := c.served.named.Find(r.Model, r.Class); ok {
		return c.served.models[i], nil
	}
	e := &completions.ServerError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model", Msg: fmt.Sprintf("the model %q does not exist", r.Model)}
	if c.served.named.Of(r.Model) != nil {
		e.Status, e.Code, e.Param, e.Msg = http.StatusBadRequest, "class_not_found", "class", fmt.Sprintf("the model %q has no class %q", r.Model, r.Class)
	}
	return nil, e
}

// due are the arrival and the deadline of a request on a core's clock. A deadline may
// have passed before the clock began.
func due(c *core, m *model, r *completions.Request) (arrived, deadline time.Duration) {
	now, clock := c.now(), c.opt.clock()
	came := now
	if !r.Accepted.IsZero() {
		came = min(now-clock.Sub(r.Accepted), now)
	}
	deadline = came + m.slo
	if !r.Deadline.IsZero() {
		deadline = now + r.Deadline.Sub(clock)
	}
	return max(came, 0), deadline
}

// Admit implements completions.Server: what the policy expects of the queues decides.
func (q *Queues) Admit(r *completions.Request) (time.Duration, error) {
	c := q.x.core.Load()
	m, err := q.find(c, r)
	if err != nil {
		return 0, err
	}
	draining := &completions.Refusal{Reason: policy.ReasonDraining.String(), Msg: "the server is shutting down", RetryAfter: time.Second}
	if q.x.draining.Load() {
		return draining.RetryAfter, draining
	}
	_, deadline := due(c, m, r)
	var e vqueue.Expectation
	if !c.call(func() {
		if p, ok := policy.As[expecter](c.decides); ok {
			e = p.Expect(c.now(), m.index, int32(max(r.PromptTokens, 1)), policy.ClientNumber(r.Client), deadline)
		}
		if len(c.book.reqs)-len(c.book.free) >= c.opt.MaxQueue {
			e.Reason = policy.ReasonQueueFull
		}
	}) {
		return draining.RetryAfter, draining
	}
	if e.Reason == policy.ReasonNone {
		return 0, nil
	}
	again := max(e.Again, time.Second)
	refusal := &completions.Refusal{Reason: e.Reason.String(), RetryAfter: again}
	switch e.Reason {
	case policy.ReasonQueueFull:
		refusal.Msg = fmt.Sprintf("model %s: %d requests wait already", m.label, e.Waiting)
	default:
		refusal.Msg = fmt.Sprintf("model %s: the answer is expected in %v, %v after its deadline", m.label, (e.Answered - c.now()).Round(time.Millisecond), (e.Answered - deadline).Round(time.Millisecond))
	}
	return again, refusal
}

// Serve implements completions.Server.
func (q *Queues) Serve(r *completions.Request, out completions.Output) {
	for {
		c := q.x.core.Load()
		m, err := q.find(c, r)
		if err != nil {
			q.wg.Go(func() { out.Done(completions.Result{Err: err}) })
			return
		}
		j := newJob(m, 1)
		j.answers = c.answers
		j.text = newText(q, r, out)
		j.arrived, j.deadline = due(c, m, r)
		j.client = policy.ClientNumber(r.Client)
		q.mu.Lock()
		q.open[r.ID] = holding{c, j}
		q.mu.Unlock()
		if c.in.submit(j) {
			return
		}
		q.mu.Lock()
		delete(q.open, r.ID)
		q.mu.Unlock()
		j.refs.Store(1)
		j.release()
		if q.x.core.Load() == c {
			return // the end: the store has it
		}
	}
}

// Forget implements completions.Server.
func (q *Queues) Forget(id string) {
	q.mu.Lock()
	a, ok := q.open[id]
	if ok {
		a.job.refs.Add(1) // it may end before the core hears of this
	}
	q.mu.Unlock()
	if ok {
		a.core.in.cancelJob(a.job)
		a.job.release()
	}
}

// forgetAll stops all requests: another process has them.
func (q *Queues) forgetAll() {
	q.mu.Lock()
	ids := slices.Collect(maps.Keys(q.open))
	q.mu.Unlock()
	for _, id := range ids {
		q.Forget(id)
	}
}

// finish tells the front end how a request ended, or gives it to the next plan. The
// turn of the core that had it calls; the rest is done elsewhere.
func (q *Queues) finish(t *text, j *job, r completions.Result, draining bool) {
	q.mu.Lock()
	was := q.open[t.request.ID]
	last := was.job == j // else the request was served anew meanwhile
	if last {
		delete(q.open, t.request.ID)
	}
	q.mu.Unlock()
	j.release()
	q.wg.Go(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !draining {
			t.out.Done(r)
			return
		}
		if err := t.out.Partial(); err != nil {
			q.x.opt.Log.Error("what a request has so far is not stored", "request", t.request.ID, "error", err)
		}
		if last && q.x.core.Load() != was.core {
			next := *t.request
			next.Partial, next.PartialTokens = string(t.partial), t.tokens
			q.Serve(&next, t.out)
		}
	})
}

var _ completions.Server = (*Queues)(nil)
