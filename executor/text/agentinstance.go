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
	process     *agentProcess
	runs        *agentRuns // of all instances of the process
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

// checkAdapters returns the adapters (small additions to a base model) whose base is at a server of the instance, and
// whether all servers have answered; it waits for no server. If a server has the base of an adapter but does not support
// the adapter, it returns llm.ErrNoAdapter.
func (p *servedInstance) checkAdapters(ctx context.Context) (adapters []string, allAnswered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, adapterCheckTimeout)
	defer cancel()
	_, err = p.servers.probeServers(ctx)
	adapters = p.servers.adaptersWithBase()
	if adapterErr := p.servers.checkAdapterSupport(ctx, adapters); err == nil || errors.Is(adapterErr, llm.ErrNoAdapter) {
		err = adapterErr
	}
	if err != nil && !errors.Is(err, llm.ErrNoAdapter) {
		p.process.opt.Log.Warn("the server of an instance does not answer yet", "instance", p.instance, "error", err)
		return adapters, false, nil
	}
	return adapters, true, err
}

// adapterCheckTimeout bounds the time that checkAdapters waits for servers.
const adapterCheckTimeout = 5 * time.Second

// execute carries out one order and replies to it. An order is a message from the process that plans. It has the
// number of that process's term (period of planning), and one of another term is refused: since then another
// process plans. The caller holds the lock of the order queue.
func (p *servedInstance) execute(o *AgentOrder, reply func([]byte)) {
	a := AgentAnswer{BootID: p.process.bootID}
	switch {
	case o.Kind == OrderLook && o.Term == 0: // an agent that starts asks whether there is another: any reply shows this one
	case o.Term != p.runs.currentTerm() || o.Term == 0:
		a.Error = toWireError(ErrOldTerm)
	case o.Kind == OrderLook:
		select {
		case p.statusSlots <- struct{}{}:
			p.process.wg.Go(func() { p.answerStatus(o, a, reply); <-p.statusSlots })
		default: // too many questions are open: no reply, and the planner asks again
		}
		return // answerStatus replies
	case o.Kind == OrderRun && p.countRuns() >= maxRuns:
		a.Error = toWireError(&llm.Error{Kind: llm.ErrFull, Text: "more requests run at this agent than a plan has"})
	case o.Kind == OrderRun:
		p.startRun(o)
	case o.Kind == OrderLeave:
		if run := p.runs.find(o.Number); run != nil {
			run.cancel(errEvicted)
		}
	default:
		a.Done, a.Error = p.pollLongOrder(o)
	}
	reply(Encode(a))
}

// answerStatus asks the servers how they are and replies with that to the planner's order to look. It runs in the
// background, because servers may be slow.
func (p *servedInstance) answerStatus(o *AgentOrder, a AgentAnswer, reply func([]byte)) {
	ctx, cancel := context.WithTimeout(p.process.ctx, time.Minute)
	defer cancel()
	status, err := p.servers.Status(ctx, o.Model, p.countRuns)
	a.Done, a.Status, a.Error = true, status, toWireError(err)
	reply(Encode(a))
}

// countRuns returns the number of runs of this instance.
func (p *servedInstance) countRuns() int { return p.runs.count(p) }

// pollLongOrder starts a long order (to prepare, load or unload a model) if its number is new, and returns whether it is
// done, and its error. The process that plans sends the same order again and again until it is. A newer order cancels
// the one before. Older numbers get an error.
func (p *servedInstance) pollLongOrder(o *AgentOrder) (done bool, err *wireError) {
	current := p.longOrder
	if current == nil || current.number < o.Number {
		if current != nil {
			current.cancel()
		}
		ctx, cancel := context.WithCancel(p.process.ctx)
		order := &longOrder{number: o.Number, cancel: cancel, done: make(chan struct{})}
		p.longOrder, current = order, order
		p.process.wg.Go(func() {
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

// executeLong executes a long order: it loads or unloads a model, or prepares the servers for a process that begins to
// plan. Before it prepares, it cancels all runs (attempts to answer a request) and waits for their ends, because that
// process does not know of them.
func (p *servedInstance) executeLong(ctx context.Context, o *AgentOrder) error {
	if o.Kind != OrderPrepare {
		return p.servers.SetLoaded(ctx, o.Model, o.Kind == OrderLoad)
	}
	// End the runs from before and wait for them.
	earlierRuns := p.runs.runsOf(p)
	for _, r := range earlierRuns {
		r.cancel(errTakenOver)
	}
	for _, r := range earlierRuns {
		select {
		case <-r.finished:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Prepare the servers. An empty model stands for none.
	if !p.servers.hasServer(o.Model) && o.Model != "" {
		return fmt.Errorf("instance %d has no server for %s", p.instance, o.Model)
	}
	return p.servers.Prepare(ctx, o.Model, o.OtherModels)
}
