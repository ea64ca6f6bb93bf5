package text

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/engine/llm"
)

// agentPlace is an instance of the process.
type agentPlace struct {
	*agentProcess
	instance int
	reach    *reach
	looks    chan struct{}
	work     *agentWork // the last of this term; nil: none
}

// agentWork is an order that takes its time.
type agentWork struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{}
	err    error // with done
}

// An agent takes so many orders at once to look at its servers, and so many requests. No
// process that plans gives more.
const (
	mostLooks = 16
	mostRuns  = 1 << 14
)

// suits refuses servers that have the base of an adapter, but lack what the adapter needs.
// It tells which adapters have their base here, and whether all servers have answered.
// What does not answer yet is waited for.
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

const suitsWithin = 5 * time.Second

// order carries out an order; line is held.
func (p *agentPlace) order(o *AgentOrder, reply func([]byte)) {
	a := AgentAnswer{Boot: p.boot}
	p.mu.Lock()
	old := o.Term != p.term
	p.mu.Unlock()
	switch {
	case o.What == OrderLook && o.Term == 0: // another agent asks
	case old || o.Term == 0:
		a.Error = toWire(ErrOldTerm)
	case o.What == OrderLook:
		select {
		case p.looks <- struct{}{}:
			p.wg.Go(func() { p.look(o, a, reply); <-p.looks })
		default: // it is asked again
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

// look looks at the servers. One that says nothing is not answered for.
func (p *agentPlace) look(o *AgentOrder, a AgentAnswer, reply func([]byte)) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	sight, err := p.reach.Look(ctx, o.Model, p.count)
	a.Done, a.Sight, a.Error = true, sight, toWire(err)
	reply(Encode(a))
}

// count is how many requests run here.
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

// worked begins an order that takes its time, or tells how it goes.
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

func (p *agentPlace) carryOut(ctx context.Context, o *AgentOrder) error {
	if o.What != OrderPrepare {
		return p.reach.Change(ctx, o.Model, o.What == OrderLoad)
	}
	// What runs is of before: who plans does not know of it.
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
