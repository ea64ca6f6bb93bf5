package text

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/engine/llm"
)

// servedInstance is an instance of the process of an agent.
type servedInstance struct {
	*agentProcess
	instance    int
	servers     *localServers
	statusSlots chan struct{} // one element per question for the status that is being answered
	longOrder   *longOrder    // the last one of this term; nil if there was none
}

// longOrder is an order to prepare, load or unload a model.
type longOrder struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set when done is closed
}

// maxStatusRequests bounds the questions for the status that are answered at once, and maxRuns the runs. The process
// that plans stays below both.
const (
	maxStatusRequests = 16
	maxRuns           = 1 << 14
)

// checkAdapters returns an error if a server has the base of an adapter but does not support the adapter. It returns
// the adapters whose base is here, and whether all servers have answered. Servers that have not are waited for later.
func (p *servedInstance) checkAdapters(ctx context.Context) (adapters []string, allAnswered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adapterCheckTimeout)
	defer cancel()
	_, err = p.servers.probeServers(ctx)
	adapters = p.servers.adaptersWithBase()
	if adapterErr := p.servers.checkAdapterSupport(ctx, adapters); err == nil || errors.Is(adapterErr, llm.ErrNoAdapter) {
		err = adapterErr
	}
	if err != nil && !errors.Is(err, llm.ErrNoAdapter) {
		p.opt.Log.Warn("the server of an instance does not answer yet", "instance", p.instance, "error", err)
		return adapters, false, nil
	}
	return adapters, true, err
}

// adapterCheckTimeout bounds the time that checkAdapters waits for servers.
const adapterCheckTimeout = 5 * time.Second

// execute carries out an order and answers it. The caller holds the lock of the order queue.
func (p *servedInstance) execute(o *AgentOrder, reply func([]byte)) {
	a := AgentAnswer{BootID: p.bootID}
	p.mu.Lock()
	otherTerm := o.Term != p.term
	p.mu.Unlock()
	switch {
	case o.Kind == OrderLook && o.Term == 0: // an agent that starts asks whether there is another
	case otherTerm || o.Term == 0:
		a.Error = toWireError(ErrOldTerm)
	case o.Kind == OrderLook:
		select {
		case p.statusSlots <- struct{}{}:
			p.wg.Go(func() { p.answerStatus(o, a, reply); <-p.statusSlots })
		default: // the question is repeated
		}
		return
	case o.Kind == OrderRun && p.countRuns() >= maxRuns:
		a.Error = toWireError(&llm.Error{Kind: llm.ErrFull, Text: "more requests run at this agent than a plan has"})
	case o.Kind == OrderRun:
		p.startRun(o)
	case o.Kind == OrderLeave:
		p.mu.Lock()
		if run := p.runsByNumber[o.Number]; run != nil {
			run.cancel(errEvicted)
		}
		p.mu.Unlock()
	default:
		a.Done, a.Error = p.pollLongOrder(o)
	}
	reply(Encode(a))
}

// answerStatus answers with the status of the servers. If they say nothing, there is no answer.
func (p *servedInstance) answerStatus(o *AgentOrder, a AgentAnswer, reply func([]byte)) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	status, err := p.servers.Status(ctx, o.Model, p.countRuns)
	a.Done, a.Status, a.Error = true, status, toWireError(err)
	reply(Encode(a))
}

// countRuns returns the number of runs of this instance.
func (p *servedInstance) countRuns() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runsByRequest {
		if r.instance == p {
			n++
		}
	}
	return n
}

// pollLongOrder starts a long order if its number is new, and reports whether it is done. A newer order cancels the
// one before.
func (p *servedInstance) pollLongOrder(o *AgentOrder) (done bool, err *wireError) {
	current := p.longOrder
	if current == nil || current.number < o.Number {
		if current != nil {
			current.cancel()
		}
		ctx, cancel := context.WithCancel(p.ctx)
		order := &longOrder{number: o.Number, cancel: cancel, done: make(chan struct{})}
		p.longOrder, current = order, order
		p.wg.Go(func() {
			defer close(order.done)
			defer cancel()
			order.err = p.executeLong(ctx, o)
		})
	}
	if current.number != o.Number {
		return true, toWireError(ErrOldTerm)
	}
	select {
	case <-current.done:
		return true, toWireError(current.err)
	default:
		return false, nil
	}
}

// executeLong executes a long order. Before it prepares the servers, it ends all runs, because the planner does not
// know of them.
func (p *servedInstance) executeLong(ctx context.Context, o *AgentOrder) error {
	if o.Kind != OrderPrepare {
		return p.servers.SetLoaded(ctx, o.Model, o.Kind == OrderLoad)
	}
	// End the runs from before and wait for them.
	p.mu.Lock()
	var earlierRuns []*agentRun
	for _, r := range p.runsByRequest {
		if r.instance == p {
			r.cancel(errTakenOver)
			earlierRuns = append(earlierRuns, r)
		}
	}
	p.mu.Unlock()
	for _, r := range earlierRuns {
		select {
		case <-r.finished:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !p.servers.hasServer(o.Model) && o.Model != "" {
		return fmt.Errorf("instance %d has no server for %s", p.instance, o.Model)
	}
	return p.servers.Prepare(ctx, o.Model, o.OtherModels)
}
