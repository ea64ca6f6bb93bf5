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
	store      durable.Shared // over which orders are sent and claims are handed on
	Term       atomic.Uint64  // 0 if this process does not plan
	lastNumber atomic.Uint64  // number of the last order

	mu   sync.Mutex
	Runs map[uint64]*runMailbox // by number: the runs that are under way
}

// runMailbox holds the last update about a run.
type runMailbox struct {
	mu         sync.Mutex
	LastUpdate RunUpdate
	updated    chan struct{} // has an element when LastUpdate is new
}

// NewAgents returns the agents that can be reached over a store.
func NewAgents(store durable.Shared) *Agents {
	return &Agents{store: store, Runs: map[uint64]*runMailbox{}}
}

// deliverUpdates puts the updates in an agent's message (on the progress and ends of its runs) into the mailboxes of
// those runs, where followRun waits. A newer update replaces one that was not read. If this process does not plan in the
// term of the message (a term is a period in which one process plans; 0 stands for none), it returns false.
func (a *Agents) deliverUpdates(n *AgentMessage) bool {
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
		r.AddedTokens = r.AddedTokens || m.LastUpdate.AddedTokens
		m.LastUpdate = r
		m.mu.Unlock()
		select {
		case m.updated <- struct{}{}:
		default:
		}
	}
	return true
}

// remoteServers control the servers of an instance by orders to the process of its agent. They implement
// serverControl.
type remoteServers struct {
	agents   *Agents
	instance int
	bootID   atomic.Pointer[string] // of the agent's process; nil until it has answered
}

func newRemoteServers(a *Agents, instance int) *remoteServers {
	return &remoteServers{agents: a, instance: instance}
}

// ResendInterval is the time after which an order without an answer is sent again. PollInterval is the time between
// two questions whether a long order is done.
const (
	ResendInterval = time.Second
	PollInterval   = 30 * time.Millisecond
)

// sendOrder sends an order to the agent of the instance, again every ResendInterval, until it is answered, and returns
// the answer. It sets o.Term to the term in which this process plans. It returns an error if this process does not plan
// (term 0), there is no agent, or the agent has been restarted since Prepare and so has forgotten its runs.
func (h *remoteServers) sendOrder(ctx context.Context, o *AgentOrder) (*AgentAnswer, error) {
	if o.Term = h.agents.Term.Load(); o.Term == 0 {
		return nil, ErrOldTerm
	}
	for {
		sendCtx, cancel := context.WithTimeout(ctx, ResendInterval)
		data, err := h.agents.store.Ask(sendCtx, AgentName(h.instance), Encode(o))
		cancel()
		switch {
		case err == nil:
			a := &AgentAnswer{}
			if err := json.Unmarshal(data, a); err != nil {
				return nil, fmt.Errorf("the answer of an agent: %w", err)
			}
			if boot := h.bootID.Load(); boot != nil && *boot != a.BootID {
				return nil, errors.New("the agent was started anew")
			}
			return a, a.Error.Err()
		case errors.Is(err, durable.ErrNoAnswerer):
			return nil, errors.New("there is no agent")
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

// Status asks the agent of the instance for the status of its servers. The agent counts the requests itself. It
// implements serverControl.
func (h *remoteServers) Status(ctx context.Context, model string, _ func() int) (serverStatus, error) {
	answer, err := h.sendOrder(ctx, &AgentOrder{Kind: OrderLook, Model: model})
	if answer == nil {
		return serverStatus{}, err
	}
	return answer.Status, err
}

// Prepare orders the agent to make its servers ready for a model, and waits until they are. It begins with a look,
// which shows the boot ID of the agent's process: later answers with another ID mean a restart. It implements
// serverControl.
func (h *remoteServers) Prepare(ctx context.Context, model string, otherModels []string) error {
	// Learn which process answers, to notice a restart.
	h.bootID.Store(nil)
	a, err := h.sendOrder(ctx, &AgentOrder{Kind: OrderLook})
	if a == nil {
		return err
	}
	h.bootID.Store(&a.BootID)
	return h.sendAndWait(ctx, &AgentOrder{Kind: OrderPrepare, Model: model, OtherModels: otherModels})
}

// SetLoaded orders the agent to load or unload a model, and waits until that is done. It implements serverControl.
func (h *remoteServers) SetLoaded(ctx context.Context, model string, loaded bool) error {
	o := &AgentOrder{Kind: OrderUnload, Model: model}
	if loaded {
		o.Kind = OrderLoad
	}
	return h.sendAndWait(ctx, o)
}

// sendAndWait sends an order that takes long (prepare, load, unload) to the agent that has the instance, under a new
// number, and repeats it every PollInterval until the agent answers that it is done, or with an error. By the number the
// agent knows a repeated order.
func (h *remoteServers) sendAndWait(ctx context.Context, o *AgentOrder) error {
	o.Number = h.agents.lastNumber.Add(1)
	for {
		a, err := h.sendOrder(ctx, o)
		if err != nil || a.Done {
			return err
		}
		select {
		case <-time.After(PollInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeAnswer implements serverControl: it hands the claim of the request to the agent, orders the run, and follows
// its updates. The claim is the right of one process to serve a stored request. The run ends with an error if the
// request cannot be handed over or the agent does not answer.
func (h *remoteServers) writeAnswer(ctx context.Context, w *answerRun) *runResult {
	_, tokens, ok := w.text.PartialOf(w.runNumber)
	result := &runResult{tokens: tokens}
	if !ok {
		result.err = errTakenOver
		return result
	}

	// Hand on the claim.
	o := &AgentOrder{Kind: OrderRun, Number: h.agents.lastNumber.Add(1), ID: w.text.request.ID}
	if o.Ticket, result.err = h.agents.store.HandOver(o.ID); result.err != nil {
		result.err = fmt.Errorf("%w: %w", errTakenOver, result.err)
		h.pauseBeforeRetry(ctx)
		return result
	}

	// Receive updates under the order's number.
	mailbox := &runMailbox{updated: make(chan struct{}, 1)}
	h.agents.mu.Lock()
	h.agents.Runs[o.Number] = mailbox
	h.agents.mu.Unlock()
	defer func() {
		h.agents.mu.Lock()
		delete(h.agents.Runs, o.Number)
		h.agents.mu.Unlock()
	}()

	// Send the order.
	if _, err := h.sendOrder(ctx, o); err != nil && ctx.Err() == nil {
		result.err = &llm.Error{Kind: llm.ErrGone, Text: err.Error()}
		h.pauseBeforeRetry(ctx)
		return result
	}
	return h.followRun(ctx, w, mailbox, o.Number, result)
}

// retryPause is how long a run that ended for no reason of its request keeps its place, so that the next one does not
// end the same way at once.
const retryPause = 500 * time.Millisecond

// pauseBeforeRetry waits for retryPause or until ctx ends, so that a request whose run failed at once does not run
// again and again without a break.
func (h *remoteServers) pauseBeforeRetry(ctx context.Context) {
	select {
	case <-time.After(retryPause):
	case <-ctx.Done():
	}
}

// leaveTimeout is the time that a run which is ordered to end has to store its text.
const leaveTimeout = 10 * time.Second

// followRun applies the updates of a run with an order's number at an agent (tokens so far, then its result), which come
// into the mailbox, until the run has ended, and returns the result. If ctx ends, it orders the run to end, and returns
// at once. After an eviction it waits up to leaveTimeout for the result, because the text is then stored and the request
// will be continued.
func (h *remoteServers) followRun(ctx context.Context, w *answerRun, mailbox *runMailbox, number uint64, result *runResult) *runResult {
	cancelled, deadline := ctx.Done(), (<-chan time.Time)(nil) // a nil channel is never ready
	for {
		select {
		case <-mailbox.updated:
			mailbox.mu.Lock()
			update := mailbox.LastUpdate
			mailbox.mu.Unlock()

			// Progress.
			if update.Tokens > result.tokens {
				result.tokens, result.addedTokens = update.Tokens, true
				w.text.noteRemoteProgress(w.runNumber, update.Tokens, w.clock())
				w.onPiece()
				w.onTokens(update.Tokens)
			}

			// The end.
			if update.Result == nil {
				continue
			}
			result.addedTokens = result.addedTokens || update.AddedTokens
			result.result = completions.Result{Finish: update.Result.Finish, PromptTokens: update.Result.PromptTokens, OutputTokens: update.Result.OutputTokens}
			if result.err = update.Result.Error.Err(); result.err != nil && context.Cause(ctx) != nil {
				result.err = context.Cause(ctx)
			} else if errors.Is(result.err, errTakenOver) {
				h.pauseBeforeRetry(ctx)
			}
			return result

		// Order the run to end.
		case <-cancelled:
			cancelled, result.err = nil, context.Cause(ctx)
			leaveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
			_, err := h.sendOrder(leaveCtx, &AgentOrder{Kind: OrderLeave, Number: number})
			cancel()
			if err != nil || !errors.Is(result.err, errEvicted) {
				return result
			}
			deadline = time.After(leaveTimeout)
		case <-deadline:
			return result
		}
	}
}

// noteRemoteProgress records how many tokens an answer has that another process writes, and when the first and the
// latest came, for the report. Updates of a run that is no longer the current one are ignored.
func (t *requestText) noteRemoteProgress(run uint64, tokens int, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.CurrentRun.Load() != run || t.answered.Load() {
		return
	}
	t.newTokens += tokens - t.tokens
	t.tokens = tokens
	if t.lastTokenAt = now; t.firstTokenAt == 0 {
		t.firstTokenAt = now
	}
}
