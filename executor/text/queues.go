package text

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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

	mu           sync.Mutex
	openRequests map[string]openRequest // by the request's id

	forwarded   *prometheus.CounterVec // requests that passed through, by path and status
	forwardTurn atomic.Uint32          // which server is asked first for the next of them
}

// openRequest is a request that a core has. It holds a reference to the job.
type openRequest struct {
	core *turn.Core
	job  *turn.Job
}

// admissionPolicy is a policy that predicts what happens to a request that comes now.
type admissionPolicy interface {
	Expect(now time.Duration, model, prompt, client int32, deadline time.Duration) vqueue.Expectation
}

// Host holds what requests for text need of the executor.
type Host struct {
	CurrentCore func() *turn.Core // returns the core of the plan in force
	IsDraining  func() bool       // reports whether no new request is accepted
	Log         *slog.Logger
	Registry    *prometheus.Registry // of series that outlive plans
	PlansGauge  prometheus.Gauge     // 1 while this process plans a queue that it shares
	Agents      *Agents              // agents of other processes, which serve in place of this one; nil if there are none
}

// NewQueues returns the queues of an executor's plans.
func NewQueues(h Host) *Queues {
	return &Queues{host: h, openRequests: map[string]openRequest{}, forwarded: newForwardedCounter()}
}

// Wait returns when the front end has received all results. It is called after the executor has been closed.
func (q *Queues) Wait() { q.wg.Wait() }

// Models implements completions.Server: it returns each model of the plan in force once, with its classes.
func (q *Queues) Models() []completions.Model {
	c := q.host.CurrentCore()
	var out []completions.Model
	seenNames := map[string]bool{}
	for _, m := range c.ServedModels.Models {
		if seenNames[m.Name] {
			continue
		}
		seenNames[m.Name] = true
		o := completions.Model{ID: m.Name, OwnedBy: "inferplan", Created: c.Loop.Epoch()}
		if c.ServedModels.ClassNames.HasNamedClasses(m.Name) {
			o.Classes = c.ServedModels.ClassNames.ClassesOf(m.Name)
		}
		out = append(out, o)
	}
	return out
}

// findModel returns the served model of a request's model and SLO class in the plan of core c. If the model does not
// exist it returns an error 404 for the client, if it has no such class an error 400.
func (q *Queues) findModel(c *turn.Core, r *completions.Request) (*turn.Model, error) {
	if i, ok := c.ServedModels.ClassNames.Find(r.Model, r.Class); ok {
		return c.ServedModels.Models[i], nil
	}
	e := &completions.ServerError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model", Msg: fmt.Sprintf("the model %q does not exist", r.Model)}
	if c.ServedModels.ClassNames.ClassesOf(r.Model) != nil {
		e.Status, e.Code, e.Param, e.Msg = http.StatusBadRequest, "class_not_found", "class", fmt.Sprintf("the model %q has no class %q", r.Model, r.Class)
	}
	return nil, e
}

// ArrivalAndDeadline returns when a request arrived and when it is due, on the clock of core c (0 is its start). A
// request that was accepted before, by an earlier process or plan, arrived then, at 0 at the earliest. The deadline is
// the request's own, or else its arrival plus the model's SLO; it is below 0 if it passed before the clock began.
func ArrivalAndDeadline(c *turn.Core, m *turn.Model, r *completions.Request) (arrived, deadline time.Duration) {
	now, clock := c.Loop.Now(), c.Options.Clock()
	// Zero times in the request stand for none.
	arrivedAt := now
	if !r.Accepted.IsZero() {
		arrivedAt = min(now-clock.Sub(r.Accepted), now)
	}
	deadline = arrivedAt + m.Slo
	if !r.Deadline.IsZero() {
		deadline = now + r.Deadline.Sub(clock)
	}
	return max(arrivedAt, 0), deadline
}

// Admit returns an error, and when to try again, if a new request may not come in: too many wait, or its answer is
// expected too late. The policy decides, in the core's loop. It implements completions.Server.
func (q *Queues) Admit(r *completions.Request) (time.Duration, error) {
	c := q.host.CurrentCore()
	m, err := q.findModel(c, r)
	if err != nil {
		return 0, err
	}
	draining := &completions.Refusal{Reason: policy.ReasonDraining.String(), Msg: "the server is shutting down", RetryAfter: time.Second}
	if q.host.IsDraining() {
		return draining.RetryAfter, draining
	}

	// Ask the policy, on the core's turn.
	_, deadline := ArrivalAndDeadline(c, m, r)
	var expectation vqueue.Expectation
	if !c.Loop.CallInRound(func() {
		if p, ok := policy.FindExtension[admissionPolicy](c.Policy); ok {
			expectation = p.Expect(c.Loop.Now(), m.Index, int32(max(r.PromptTokens, 1)), policy.ClientNumber(r.Client), deadline)
		}
		if c.Ledger.IsFull(1) {
			expectation.RefusalReason = policy.ReasonQueueFull
		}
	}) {
		return draining.RetryAfter, draining
	}

	// Say why the request is refused.
	if expectation.RefusalReason == policy.ReasonNone {
		return 0, nil
	}
	retryAfter := max(expectation.RetryAfter, time.Second)
	refusal := &completions.Refusal{Reason: expectation.RefusalReason.String(), RetryAfter: retryAfter}
	switch expectation.RefusalReason {
	case policy.ReasonQueueFull:
		refusal.Msg = fmt.Sprintf("model %s: %d requests wait already", m.Label, expectation.WaitingRequests)
	default:
		refusal.Msg = fmt.Sprintf("model %s: %s is expected in %v, %v after its deadline", m.Label, expectation.Milestone, (expectation.MilestoneAt - c.Loop.Now()).Round(time.Millisecond), (expectation.MilestoneAt - deadline).Round(time.Millisecond))
	}
	return retryAfter, refusal
}

// Serve submits a request of the front end to the core of the plan in force, as a job. If another plan comes into
// force meanwhile, it submits the request to that one. If the executor ends, the request stays in the store. It
// implements completions.Server.
func (q *Queues) Serve(r *completions.Request, output completions.Output) {
	for {
		c := q.host.CurrentCore()
		m, err := q.findModel(c, r)
		if err != nil {
			q.wg.Go(func() { output.Done(completions.Result{Err: err}) })
			return
		}
		j := turn.NewJob(m, 1)
		j.Answerer = c.Answerer
		j.Text = newRequestText(q, r, output)
		j.ArrivedAt, j.Deadline = ArrivalAndDeadline(c, m, r)
		j.Client, j.Session = policy.ClientNumber(r.Client), r.Session
		q.mu.Lock()
		q.openRequests[r.ID] = openRequest{c, j}
		q.mu.Unlock()
		if c.Inbox.SubmitJob(j) {
			return
		}
		q.mu.Lock()
		delete(q.openRequests, r.ID)
		q.mu.Unlock()
		j.ReleaseUntaken()
		if q.host.CurrentCore() == c {
			return // the executor ends, and the store keeps the request
		}
	}
}

// Forget cancels a request that the front end no longer needs an answer to. If it has ended, nothing happens. It
// implements completions.Server.
func (q *Queues) Forget(id string) {
	q.mu.Lock()
	a, ok := q.openRequests[id]
	if ok {
		a.job.Holds.Add(1) // the job may end before the core learns of this
	}
	q.mu.Unlock()
	if ok {
		a.core.Inbox.CancelJob(a.job)
		a.job.Release()
	}
}

// forgetAll cancels all requests, because another process has them.
func (q *Queues) forgetAll() {
	q.mu.Lock()
	ids := slices.Collect(maps.Keys(q.openRequests))
	q.mu.Unlock()
	for _, id := range ids {
		q.Forget(id)
	}
}

// finishRequest gives the front end the result of a request or, if the core drains, stores its text and hands the
// request to the next plan. It is called in the core's loop; what may wait for the store is done in a goroutine of
// its own.
func (q *Queues) finishRequest(t *requestText, j *turn.Job, r completions.Result, draining bool) {
	q.mu.Lock()
	open := q.openRequests[t.request.ID]
	isCurrent := open.job == j // false if the request has been served anew meanwhile
	if isCurrent {
		delete(q.openRequests, t.request.ID)
	}
	q.mu.Unlock()
	j.Release()
	q.wg.Go(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !draining {
			t.output.Done(r)
			return
		}
		if err := t.output.Partial(); err != nil {
			q.host.Log.Error("what a request has so far is not stored", "request", t.request.ID, "error", err)
		}

		// If another plan is in force, it continues the request.
		if isCurrent && q.host.CurrentCore() != open.core {
			continued := *t.request
			continued.Partial, continued.PartialTokens = string(t.partial), t.tokens
			q.Serve(&continued, t.output)
		}
	})
}

var _ completions.Server = (*Queues)(nil)
