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
type sharedPlanner struct {
	queues  *Queues
	Agents  *Agents
	front   completions.Options // options of the front end that claims requests
	refused refusedMessages

	stop    context.CancelFunc
	leading sync.WaitGroup
}

// OpenAgents opens the shared store through which the process that plans sends orders to agents, which run language
// models in other processes. If the plan is not one of queues, or the options name no shared store, it returns nil.
func (o *QueueOptions) OpenAgents(ctx context.Context, plan *formats.Plan) (*Agents, error) {
	if !ServesText(plan) || o.OpenShared == nil {
		return nil, nil
	}
	store, err := o.OpenShared(ctx)
	if err != nil {
		return nil, err
	}
	return NewAgents(store), nil
}

// startLeading starts to compete, in the background, to be the process that plans, among those that share the
// store. When this one gets the lead, planUntilDone runs.
func (p *sharedPlanner) startLeading() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.leading.Go(func() {
		if err := p.Agents.store.Lead(ctx, p.planUntilDone); err != nil {
			p.front.Log.Error("this process plans no more", "error", err)
		}
	})
}

// stopLeading gives up the lead, or stops competing for it.
func (p *sharedPlanner) stopLeading() {
	p.stop()
	p.leading.Wait()
}

// planUntilDone is called when this process gets the lead. It plans in a term (the number of its period) until ctx
// ends: agents can reach it, and it takes over the stored requests. Then all requests are given back.
func (p *sharedPlanner) planUntilDone(ctx context.Context, term uint64) {
	p.front.Log.Info("this process plans", "term", term)
	p.Agents.Term.Store(term)
	p.queues.host.PlansGauge.Set(1)
	stopPlanning := sync.OnceFunc(func() {
		p.Agents.Term.Store(0)
		p.queues.host.PlansGauge.Set(0)
	})
	defer stopPlanning()

	// Receive the messages of agents.
	stop, err := p.Agents.store.Answer(PlannerName, p.AnswerMessage)
	if err != nil {
		p.front.Log.Error("agents cannot reach this process", "error", err)
		return
	}
	defer stop()

	// Claim requests, and have them served.
	frontOptions := p.front
	frontOptions.Store, frontOptions.Server = p.Agents.store, p.queues
	front, err := completions.New(frontOptions)
	if err != nil {
		p.front.Log.Error("this process cannot claim requests", "error", err)
		return
	}
	<-ctx.Done()
	stopPlanning() // what is sent from now on does not come from the process that plans
	if err := front.Close(); err != nil {
		p.front.Log.Warn("requests were not given back", "error", err)
	}
	p.queues.forgetAll()
}

// AnswerMessage is called for each message to the process that plans: updates of agents about their requests, and
// questions of other front ends whether a request may come in. It replies only while this process plans, in the
// message's term, because the process that plans receives the message, too.
func (p *sharedPlanner) AnswerMessage(message []byte, reply func([]byte)) {
	received := &AgentMessage{}
	if err := json.Unmarshal(message, received); err != nil {
		p.refused.add(err)
		return
	}
	answer := PlannerAnswer{}
	switch {
	case received.Admission != nil && p.Agents.Term.Load() != 0:
		_, err := p.queues.Admit(received.Admission)
		errors.As(err, &answer.Refusal)
	case received.Admission != nil || !p.Agents.deliverUpdates(received):
		return
	}
	reply(Encode(answer))
}

// Models implements completions.Server.
func (p *sharedPlanner) Models() []completions.Model { return p.queues.Models() }

// admitTimeout bounds the time that the process that plans has to decide about a request. Without an answer the
// request is accepted: it is stored, and waits.
const admitTimeout = time.Second

// Admit decides whether a new request may come in. If another process plans, it is asked; without an answer in time
// the request is admitted, because the planner can still refuse it. It implements completions.Server.
func (p *sharedPlanner) Admit(r *completions.Request) (time.Duration, error) {
	if p.Agents.Term.Load() != 0 {
		return p.queues.Admit(r)
	}
	ask := *r
	ask.Body, ask.Partial = nil, ""
	ctx, cancel := context.WithTimeout(context.Background(), admitTimeout)
	defer cancel()
	data, err := p.Agents.store.Ask(ctx, PlannerName, Encode(AgentMessage{Admission: &ask}))
	var a PlannerAnswer
	if err != nil || json.Unmarshal(data, &a) != nil || a.Refusal == nil {
		return 0, nil
	}
	return a.Refusal.RetryAfter, a.Refusal
}

// Serve implements completions.Server. It is not called, because requests are served elsewhere.
func (p *sharedPlanner) Serve(*completions.Request, completions.Output) {}

// Forget implements completions.Server. The process that serves the request finds its result in the store.
func (p *sharedPlanner) Forget(string) {}

var _ completions.Server = (*sharedPlanner)(nil)
