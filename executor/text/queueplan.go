package text

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"inferplan/executor/completions"
	"inferplan/formats"
)

// sharedPlanner is the part of a process that shares its store with others: it accepts requests, and plans while no
// other process does. The process that plans claims the requests that wait. Their places in virtual queues are only
// in its memory; the next process that plans makes them anew from the store.
type planning struct {
	queues *Queues
	Agents *Agents
	front  completions.Options // options of the front end that claims requests
	others refusals

	stop context.CancelFunc
	done sync.WaitGroup
}

// OpenAgents opens the shared store of a plan of queues, for orders to the agents of other processes. If there are
// none, it returns nil.
func (o *QueueOptions) OpenAgents(ctx context.Context, plan *formats.Plan) (*Agents, error) {
	if !Writes(plan) || o.Share == nil {
		return nil, nil
	}
	store, err := o.Share(ctx)
	if err != nil {
		return nil, err
	}
	return NewAgents(store), nil
}

// startLeading starts to compete for the lead.
func (p *planning) begin() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.done.Go(func() {
		if err := p.Agents.store.Lead(ctx, p.lead); err != nil {
			p.front.Log.Error("this process plans no more", "error", err)
		}
	})
}

// stopLeading gives up the lead, or stops competing for it.
func (p *planning) end() {
	p.stop()
	p.done.Wait()
}

// planUntilDone plans in a term until ctx ends.
func (p *planning) lead(ctx context.Context, term uint64) {
	p.front.Log.Info("this process plans", "term", term)
	p.Agents.Term.Store(term)
	p.queues.host.Plans.Set(1)
	leave := sync.OnceFunc(func() {
		p.Agents.Term.Store(0)
		p.queues.host.Plans.Set(0)
	})
	defer leave()

	// Receive the messages of agents.
	stop, err := p.Agents.store.Answer(Planner, p.Answer)
	if err != nil {
		p.front.Log.Error("agents cannot reach this process", "error", err)
		return
	}
	defer stop()

	// Claim requests, and have them served.
	own := p.front
	own.Store, own.Server = p.Agents.store, p.queues
	front, err := completions.New(own)
	if err != nil {
		p.front.Log.Error("this process cannot claim requests", "error", err)
		return
	}
	<-ctx.Done()
	leave() // what is sent from now on does not come from the process that plans
	if err := front.Close(); err != nil {
		p.front.Log.Warn("requests were not given back", "error", err)
	}
	p.queues.forgetAll()
}

// AnswerMessage answers agents in its term, and other front ends, while this process plans. Otherwise it does not
// answer, because the process that plans receives the message, too.
func (p *planning) Answer(message []byte, reply func([]byte)) {
	n := &AgentNews{}
	if err := json.Unmarshal(message, n); err != nil {
		p.others.add(err)
		return
	}
	out := NewsAnswer{}
	switch {
	case n.Ask != nil && p.Agents.Term.Load() != 0:
		_, err := p.queues.Admit(n.Ask)
		errors.As(err, &out.Refused)
	case n.Ask != nil || !p.Agents.took(n):
		return
	}
	reply(Encode(out))
}

// Models implements completions.Server.
func (p *planning) Models() []completions.Model { return p.queues.Models() }

// admitTimeout bounds the time that the process that plans has to decide about a request. Without an answer the
// request is accepted: it is stored, and waits.
const admitWithin = time.Second

// Admit implements completions.Server: the process that plans decides.
func (p *planning) Admit(r *completions.Request) (time.Duration, error) {
	if p.Agents.Term.Load() != 0 {
		return p.queues.Admit(r)
	}
	ask := *r
	ask.Body, ask.Partial = nil, ""
	ctx, cancel := context.WithTimeout(context.Background(), admitWithin)
	defer cancel()
	data, err := p.Agents.store.Ask(ctx, Planner, Encode(AgentNews{Ask: &ask}))
	var a NewsAnswer
	if err != nil || json.Unmarshal(data, &a) != nil || a.Refused == nil {
		return 0, nil
	}
	return a.Refused.RetryAfter, a.Refused
}

// Serve implements completions.Server. It is not called, because requests are served elsewhere.
func (p *planning) Serve(*completions.Request, completions.Output) {}

// Forget implements completions.Server. The process that serves the request finds its result in the store.
func (p *planning) Forget(string) {}

var _ completions.Server = (*planning)(nil)
