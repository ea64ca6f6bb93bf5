package text

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/engine/llm"
)

// servedInstance is an instance of the process of an agent.
type agentPlace struct {
	*agentProcess
	instance int
	reach    *reach
	looks    chan struct{} // one element per question for the status that is being answered
	work     *agentWork    // the last one of this term; nil if there was none
}

// longOrder is an order to prepare, load or unload a model.
type agentWork struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set when done is closed
}

// maxStatusRequests bounds the questions for the status that are answered at once, and maxRuns the runs. The process
// that plans stays below both.
const (
	mostLooks = 16
	mostRuns  = 1 << 14
)

// checkAdapters returns an error if a server has the base of an adapter but does not support the adapter. It returns
// the adapters whose base is here, and whether all servers have answered. Servers that have not are waited for later.
func (p *agentPlace) suits(ctx context.Context) (fitting []string, all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, suitsWithin)
	defer cancel()
	_, err = p.reach.reached(ctx)
	fitting = p.reach.fitting()
	if lacks := p.reach.offered(ctx, fitting); err == nil || errors.Is(lacks, llm.ErrNoAdapter) {
		err = lacks
	}
	if err != nil && !errors.Is(err, llm.ErrNoAdapter) {
		p.opt.Log.Warn("the server of an instance does not answer yet", "instance", p.instance, "error", err)
		return fitting, false, nil
	}
	return fitting, true, err
}

// adapterCheckTimeout bounds the time that checkAdapters waits for servers.
const suitsWithin = 5 * time.Second

// execute carries out an order and answers it. The caller holds the lock of the order queue.
func (p *agentPlace) order(o *AgentOrder, reply func([]byte)) {
	a := AgentAnswer{Boot: p.boot}
	p.mu.Lock()
	old := o.Term != p.term
	p.mu.Unlock()
	switch {
	case o.What == OrderLook && o.Term == 0: // an agent that starts asks whether there is another
	case old || o.Term == 0:
		a.Error = toWire(ErrOldTerm)
	case o.What == OrderLook:
		select {
		case p.looks <- struct{}{}:
			p.wg.Go(func() { p.look(o, a, reply); <-p.looks })
		default: // the question is repeated
		}
		return
	case o.What == OrderRun && p.count() >= mostRuns:
		a.Error = toWire(&llm.Error{Kind: llm.ErrFull, Text: "more requests run at this agent than a plan has"})
	case o.What == OrderRun:
		p.run(o)
	case o.What == OrderLeave:
		p.mu.Lock()
		if run := p.numbers[o.Number]; run != nil {
			run.cancel(errEvicted)
		}
		p.mu.Unlock()
	default:
		a.Done, a.Error = p.worked(o)
	}
	reply(Encode(a))
}

// answerStatus answers with the status of the servers. If they say nothing, there is no answer.
func (p *agentPlace) look(o *AgentOrder, a AgentAnswer, reply func([]byte)) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	sight, err := p.reach.Look(ctx, o.Model, p.count)
	a.Done, a.Sight, a.Error = true, sight, toWire(err)
	reply(Encode(a))
}

// countRuns returns the number of runs of this instance.
func (p *agentPlace) count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		if r.place == p {
			n++
		}
	}
	return n
}

// pollLongOrder starts a long order if its number is new, and reports whether it is done. A newer order cancels the
// one before.
func (p *agentPlace) worked(o *AgentOrder) (done bool, err *wireError) {
	w := p.work
	if w == nil || w.number < o.Number {
		if w != nil {
			w.cancel()
		}
		ctx, cancel := context.WithCancel(p.ctx)
		next := &agentWork{number: o.Number, cancel: cancel, done: make(chan struct{})}
		p.work, w = next, next
		p.wg.Go(func() {
			defer close(next.done)
			defer cancel()
			next.err = p.carryOut(ctx, o)
		})
	}
	if w.number != o.Number {
		return true, toWire(ErrOldTerm)
	}
	select {
	case <-w.done:
		return true, toWire(w.err)
	default:
		return false, nil
	}
}

// executeLong executes a long order. Before it prepares the servers, it ends all runs, because the planner does not
// know of them.
func (p *agentPlace) carryOut(ctx context.Context, o *AgentOrder) error {
	if o.What != OrderPrepare {
		return p.reach.Change(ctx, o.Model, o.What == OrderLoad)
	}
	// End the runs from before and wait for them.
	p.mu.Lock()
	var before []*agentRun
	for _, r := range p.runs {
		if r.place == p {
			r.cancel(errLeft)
			before = append(before, r)
		}
	}
	p.mu.Unlock()
	for _, r := range before {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !p.reach.has(o.Model) && o.Model != "" {
		return fmt.Errorf("instance %d has no server for %s", p.instance, o.Model)
	}
	return p.reach.Prepare(ctx, o.Model, o.Others)
}
