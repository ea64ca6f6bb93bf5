package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/durable"
)

// Agents are the agents of other processes, as seen by a process that may plan. Each process that shares the store
// has them; only the one that plans (see Lead) gives orders.
type Agents struct {
	store  durable.Shared // over which orders are sent and claims are handed on
	Term   atomic.Uint64  // 0 if this process does not plan
	number atomic.Uint64  // number of the last order

	mu   sync.Mutex
	Runs map[uint64]*mail // by number: the runs that are under way
}

// runMailbox holds the last update about a run.
type mail struct {
	mu   sync.Mutex
	Last RunNews
	came chan struct{} // has an element when LastUpdate is new
}

// NewAgents returns the agents that can be reached over a store.
func NewAgents(store durable.Shared) *Agents { return &Agents{store: store, Runs: map[uint64]*mail{}} }

// deliverUpdates puts the updates of an agent into their mailboxes. It returns false if this process does not plan in
// their term.
func (a *Agents) took(n *AgentNews) bool {
	if n.Term == 0 || n.Term != a.Term.Load() {
		return false
	}
	for _, r := range n.Runs {
		a.mu.Lock()
		m := a.Runs[r.Number]
		a.mu.Unlock()
		if m == nil {
			continue
		}
		m.mu.Lock()
		r.Added = r.Added || m.Last.Added
		m.Last = r
		m.mu.Unlock()
		select {
		case m.came <- struct{}{}:
		default:
		}
	}
	return true
}

// remoteServers control the servers of an instance by orders to the process of its agent. They implement
// serverControl.
type away struct {
	*Agents
	instance int
	boot     atomic.Pointer[string] // of the agent's process; nil until it has answered
}

func newAway(a *Agents, instance int) *away { return &away{Agents: a, instance: instance} }

// ResendInterval is the time after which an order without an answer is sent again. PollInterval is the time between
// two questions whether a long order is done.
const (
	Resend   = time.Second
	AskAfter = 30 * time.Millisecond
)

// sendOrder sends an order until it is answered. It returns an error if this process does not plan, there is no
// agent, or the agent has been restarted.
func (h *away) tell(ctx context.Context, o *AgentOrder) (*AgentAnswer, error) {
	if o.Term = h.Term.Load(); o.Term == 0 {
		return nil, ErrOldTerm
	}
	for {
		try, cancel := context.WithTimeout(ctx, Resend)
		data, err := h.store.Ask(try, NameOfAgent(h.instance), Encode(o))
		cancel()
		switch {
		case err == nil:
			a := &AgentAnswer{}
			if err := json.Unmarshal(data, a); err != nil {
				return nil, fmt.Errorf("the answer of an agent: %w", err)
			}
			if boot := h.boot.Load(); boot != nil && *boot != a.Boot {
				return nil, errors.New("the agent was started anew")
			}
			return a, a.Error.Err()
		case errors.Is(err, durable.ErrNobody):
			return nil, errors.New("there is no agent")
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

// Status implements serverControl.
func (h *away) Look(ctx context.Context, model string, _ func() int) (sight, error) {
	a, err := h.tell(ctx, &AgentOrder{What: OrderLook, Model: model})
	if a == nil {
		return sight{}, err
	}
	return a.Sight, err
}

// Prepare implements serverControl.
func (h *away) Prepare(ctx context.Context, model string, others []string) error {
	// Learn which process answers, to notice a restart.
	h.boot.Store(nil)
	a, err := h.tell(ctx, &AgentOrder{What: OrderLook})
	if a == nil {
		return err
	}
	h.boot.Store(&a.Boot)
	return h.finish(ctx, &AgentOrder{What: OrderPrepare, Model: model, Others: others})
}

// SetLoaded implements serverControl.
func (h *away) Change(ctx context.Context, model string, up bool) error {
	o := &AgentOrder{What: OrderUnload, Model: model}
	if up {
		o.What = OrderLoad
	}
	return h.finish(ctx, o)
}

// sendAndWait sends a long order and waits until it is done.
func (h *away) finish(ctx context.Context, o *AgentOrder) error {
	o.Number = h.number.Add(1)
	for {
		a, err := h.tell(ctx, o)
		if err != nil || a.Done {
			return err
		}
		select {
		case <-time.After(AskAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeAnswer implements serverControl: it hands the claim of the request to the agent, orders the run, and follows
// its updates.
func (h *away) write(ctx context.Context, w *writing) *streamEnd {
	_, tokens, ok := w.SoFar(w.number)
	end := &streamEnd{tokens: tokens}
	if !ok {
		end.err = errLeft
		return end
	}

	// Hand on the claim.
	o := &AgentOrder{What: OrderRun, Number: h.number.Add(1), ID: w.request.ID}
	if o.Ticket, end.err = h.store.Hand(o.ID); end.err != nil {
		end.err = fmt.Errorf("%w: %w", errLeft, end.err)
		h.pause(ctx)
		return end
	}

	// Receive updates under the order's number.
	m := &mail{came: make(chan struct{}, 1)}
	h.mu.Lock()
	h.Runs[o.Number] = m
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.Runs, o.Number)
		h.mu.Unlock()
	}()

	// Send the order.
	if _, err := h.tell(ctx, o); err != nil && ctx.Err() == nil {
		end.err = &llm.Error{Kind: llm.ErrGone, Text: err.Error()}
		h.pause(ctx)
		return end
	}
	return h.follow(ctx, w, m, o.Number, end)
}

// retryPause is how long a run that ended for no reason of its request keeps its place, so that the next one does not
// end the same way at once.
const againAfter = 500 * time.Millisecond

// pauseBeforeRetry waits for retryPause or until ctx ends.
func (h *away) pause(ctx context.Context) {
	select {
	case <-time.After(againAfter):
	case <-ctx.Done():
	}
}

// leaveTimeout is the time that a run which is ordered to end has to store its text.
const leaveWithin = 10 * time.Second

// followRun applies the updates of a run until it has ended. If ctx ends, it orders the run to end. After an eviction
// it waits for the text to be stored.
func (h *away) follow(ctx context.Context, w *writing, m *mail, number uint64, end *streamEnd) *streamEnd {
	stop, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-m.came:
			m.mu.Lock()
			n := m.Last
			m.mu.Unlock()

			// Progress.
			if n.Tokens > end.tokens {
				end.tokens, end.added = n.Tokens, true
				w.reached(w.number, n.Tokens, w.now())
				w.heard()
				w.told(n.Tokens)
			}

			// The end.
			if n.End == nil {
				continue
			}
			end.added = end.added || n.Added
			end.result = completions.Result{Finish: n.End.Finish, PromptTokens: n.End.Prompt, OutputTokens: n.End.Output}
			if end.err = n.End.Error.Err(); end.err != nil && context.Cause(ctx) != nil {
				end.err = context.Cause(ctx)
			} else if errors.Is(end.err, errLeft) {
				h.pause(ctx)
			}
			return end

		// Order the run to end.
		case <-stop:
			stop, end.err = nil, context.Cause(ctx)
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			_, err := h.tell(limit, &AgentOrder{What: OrderLeave, Number: number})
			cancel()
			if err != nil || !errors.Is(end.err, errEvicted) {
				return end
			}
			late = time.After(leaveWithin)
		case <-late:
			return end
		}
	}
}

// noteRemoteProgress records how many tokens an answer has that another process writes.
func (t *text) reached(run uint64, tokens int, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Run.Load() != run || t.closed.Load() {
		return
	}
	t.fresh += tokens - t.tokens
	t.tokens = tokens
	if t.last = now; t.first == 0 {
		t.first = now
	}
}
