package text

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/completions"
	"inferplan/executor/turn"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// Queues has requests for text answered by an executor's plans of queues. It implements completions.Server for the
// front end. A request that a plan leaves unfinished goes to the next plan with the text that it has. If the executor
// ends, the request stays in the front end's store.
type Queues struct {
	host Host
	wg   sync.WaitGroup // calls that wait for the front end's store

	mu   sync.Mutex
	open map[string]holding // by the request's id
}

// openRequest is a request that a core has. It holds a reference to the job.
type holding struct {
	core *turn.Core
	job  *turn.Job
}

// admissionPolicy is a policy that predicts what happens to a request that comes now.
type expecter interface {
	Expect(now time.Duration, model, prompt, client int32, deadline time.Duration) vqueue.Expectation
}

// Host holds what requests for text need of the executor.
type Host struct {
	InForce  func() *turn.Core // returns the core of the plan in force
	Draining func() bool       // reports whether no new request is accepted
	Log      *slog.Logger
	Registry *prometheus.Registry // of series that outlive plans
	Plans    prometheus.Gauge     // 1 while this process plans a queue that it shares
	Agents   *Agents              // agents of other processes, which serve in place of this one; nil if there are none
}

// NewQueues returns the queues of an executor's plans.
func NewQueues(h Host) *Queues { return &Queues{host: h, open: map[string]holding{}} }

// Wait returns when the front end has received all results. It is called after the executor has been closed.
func (q *Queues) Wait() { q.wg.Wait() }

// Models implements completions.Server: it returns each model of the plan in force once, with its classes.
func (q *Queues) Models() []completions.Model {
	c := q.host.InForce()
	var out []completions.Model
	seen := map[string]bool{}
	for _, m := range c.Served.Models {
		if seen[m.Name] {
			continue
		}
		seen[m.Name] = true
		o := completions.Model{ID: m.Name, OwnedBy: "inferplan", Created: c.Epoch()}
		if c.Served.Named.Named(m.Name) {
			o.Classes = c.Served.Named.Of(m.Name)
		}
		out = append(out, o)
	}
	return out
}

// findModel returns the model and class of a request in a core's plan. It returns an error for the client if there is
// none.
func (q *Queues) find(c *turn.Core, r *completions.Request) (*turn.Model, error) {
	if i, ok := c.Served.Named.Find(r.Model, r.Class); ok {
		return c.Served.Models[i], nil
	}
	e := &completions.ServerError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model", Msg: fmt.Sprintf("the model %q does not exist", r.Model)}
	if c.Served.Named.Of(r.Model) != nil {
		e.Status, e.Code, e.Param, e.Msg = http.StatusBadRequest, "class_not_found", "class", fmt.Sprintf("the model %q has no class %q", r.Model, r.Class)
	}
	return nil, e
}

// ArrivalAndDeadline returns the arrival and the deadline of a request on a core's clock. A deadline may have passed
// before the clock began.
func Due(c *turn.Core, m *turn.Model, r *completions.Request) (arrived, deadline time.Duration) {
	now, clock := c.Now(), c.Options.Clock()
	came := now
	if !r.Accepted.IsZero() {
		came = min(now-clock.Sub(r.Accepted), now)
	}
	deadline = came + m.Slo
	if !r.Deadline.IsZero() {
		deadline = now + r.Deadline.Sub(clock)
	}
	return max(came, 0), deadline
}

// Admit implements completions.Server. The policy decides, by when it expects the answer.
func (q *Queues) Admit(r *completions.Request) (time.Duration, error) {
	c := q.host.InForce()
	m, err := q.find(c, r)
	if err != nil {
		return 0, err
	}
	draining := &completions.Refusal{Reason: policy.ReasonDraining.String(), Msg: "the server is shutting down", RetryAfter: time.Second}
	if q.host.Draining() {
		return draining.RetryAfter, draining
	}

	// Ask the policy, on the core's turn.
	_, deadline := Due(c, m, r)
	var e vqueue.Expectation
	if !c.Call(func() {
		if p, ok := policy.As[expecter](c.Policy); ok {
			e = p.Expect(c.Now(), m.Index, int32(max(r.PromptTokens, 1)), policy.ClientNumber(r.Client), deadline)
		}
		if c.Full(1) {
			e.Reason = policy.ReasonQueueFull
		}
	}) {
		return draining.RetryAfter, draining
	}

	// Say why the request is refused.
	if e.Reason == policy.ReasonNone {
		return 0, nil
	}
	again := max(e.Again, time.Second)
	refusal := &completions.Refusal{Reason: e.Reason.String(), RetryAfter: again}
	switch e.Reason {
	case policy.ReasonQueueFull:
		refusal.Msg = fmt.Sprintf("model %s: %d requests wait already", m.Label, e.Waiting)
	default:
		refusal.Msg = fmt.Sprintf("model %s: the answer is expected in %v, %v after its deadline", m.Label, (e.Answered - c.Now()).Round(time.Millisecond), (e.Answered - deadline).Round(time.Millisecond))
	}
	return again, refusal
}

// Serve implements completions.Server: it submits the request to the core of the plan in force. If another plan comes
// into force meanwhile, it submits the request to that one.
func (q *Queues) Serve(r *completions.Request, out completions.Output) {
	for {
		c := q.host.InForce()
		m, err := q.find(c, r)
		if err != nil {
			q.wg.Go(func() { out.Done(completions.Result{Err: err}) })
			return
		}
		j := turn.NewJob(m, 1)
		j.Answers = c.Answers
		j.Text = newText(q, r, out)
		j.Arrived, j.Deadline = Due(c, m, r)
		j.Client = policy.ClientNumber(r.Client)
		q.mu.Lock()
		q.open[r.ID] = holding{c, j}
		q.mu.Unlock()
		if c.Submit(j) {
			return
		}
		q.mu.Lock()
		delete(q.open, r.ID)
		q.mu.Unlock()
		j.Forget()
		if q.host.InForce() == c {
			return // the executor ends, and the store keeps the request
		}
	}
}

// Forget implements completions.Server: it cancels a request.
func (q *Queues) Forget(id string) {
	q.mu.Lock()
	a, ok := q.open[id]
	if ok {
		a.job.Refs.Add(1) // the job may end before the core learns of this
	}
	q.mu.Unlock()
	if ok {
		a.core.Cancel(a.job)
		a.job.Release()
	}
}

// forgetAll cancels all requests, because another process has them.
func (q *Queues) forgetAll() {
	q.mu.Lock()
	ids := slices.Collect(maps.Keys(q.open))
	q.mu.Unlock()
	for _, id := range ids {
		q.Forget(id)
	}
}

// finishRequest gives the front end the result of a request, or hands the request to the next plan. It is called on
// the core's turn; what may wait for the store is done on a goroutine of its own.
func (q *Queues) finish(t *text, j *turn.Job, r completions.Result, draining bool) {
	q.mu.Lock()
	was := q.open[t.request.ID]
	last := was.job == j // false if the request has been served anew meanwhile
	if last {
		delete(q.open, t.request.ID)
	}
	q.mu.Unlock()
	j.Release()
	q.wg.Go(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !draining {
			t.out.Done(r)
			return
		}
		if err := t.out.Partial(); err != nil {
			q.host.Log.Error("what a request has so far is not stored", "request", t.request.ID, "error", err)
		}

		// If another plan is in force, it continues the request.
		if last && q.host.InForce() != was.core {
			next := *t.request
			next.Partial, next.PartialTokens = string(t.partial), t.tokens
			q.Serve(&next, t.out)
		}
	})
}

var _ completions.Server = (*Queues)(nil)
