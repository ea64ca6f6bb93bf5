package text

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"inferplan/executor/durable"
)

// agentRun is a request that the process of an agent has been given.
type agentRun struct {
	place  *agentPlace
	term   uint64
	number uint64
	id     string
	ticket string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // nothing of it is left
	text   *text         // nil: it was not begun

	once  sync.Once
	gone  chan struct{} // the front end has it no more
	ended bool          // with gone: its end is stored
}

// over takes that the front end has the request no more.
func (r *agentRun) over(ended bool) {
	r.once.Do(func() {
		r.ended = ended
		close(r.gone)
	})
	r.cancel(errLeft)
}

// Numbers of runs that have ended are known while at most knownRuns are, and else those
// of the last half: an order that comes twice does so within seconds.
const knownRuns = 1 << 16

// run begins a run, unless the order has come before.
func (p *agentPlace) run(o *AgentOrder) {
	r := &agentRun{place: p, term: o.Term, number: o.Number, id: o.ID, ticket: o.Ticket, done: make(chan struct{}), gone: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(p.ctx)
	p.mu.Lock()
	_, known := p.numbers[o.Number]
	before := p.runs[o.ID]
	if !known {
		p.numbers[o.Number], p.runs[o.ID] = r, r
	}
	if len(p.numbers) > knownRuns {
		maps.DeleteFunc(p.numbers, func(n uint64, r *agentRun) bool { return r == nil && n+knownRuns/2 < o.Number })
	}
	p.mu.Unlock()
	if known {
		return
	}
	p.wg.Go(func() {
		if before != nil {
			before.cancel(errLeft)
			<-before.done
		}
		p.mu.Lock()
		p.serving[r.id] = r
		p.mu.Unlock()
		end := r.serve()
		p.mu.Lock()
		if r.term == p.term { // else the number is another run's
			p.numbers[r.number] = nil
		}
		delete(p.serving, r.id)
		if p.runs[r.id] == r {
			delete(p.runs, r.id)
		}
		p.mu.Unlock()
		r.cancel(nil)
		close(r.done)
		news := RunNews{Number: r.number, Tokens: end.tokens, Added: end.added, End: &WireEnd{Error: toWire(end.err), Finish: end.result.Finish, Prompt: end.result.PromptTokens, Output: end.result.OutputTokens}}
		p.say(r.term, news)
	})
}

// backWithin bounds how long the text of a run that ended early may take to be stored.
const backWithin = 20 * time.Second

// serve takes the request over and has it answered. When it returns, the end is stored,
// or the text and the request is given back.
func (r *agentRun) serve() *streamEnd {
	p := r.place
	st, err := p.opt.Store.Adopt(r.ctx, r.id, r.ticket)
	if err == nil {
		if err = p.front.Take(st); err != nil {
			err = errors.Join(err, p.opt.Store.Release(r.ctx, r.id))
		}
	}
	if err != nil || r.text == nil {
		if errors.Is(err, durable.ErrFinished) {
			return &streamEnd{} // who asked finds the end in the store
		}
		return &streamEnd{err: errors.Join(errLeft, err)}
	}
	end := p.reach.write(r.ctx, r.writing())
	if end.err == nil {
		r.text.out.Done(end.result)
		<-r.gone
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), backWithin)
		defer cancel()
		if err := p.front.Leave(ctx, r.id); err != nil {
			p.opt.Log.Error("what a request has so far is not stored", "request", r.id, "error", err)
		}
	}
	select {
	case <-r.gone:
		if end.err = nil; !r.ended {
			end.err = errLeft
		}
	default:
	}
	return end
}

// tellAfter is how long after the last word about a run the next one comes.
const tellAfter = 100 * time.Millisecond

// writing is the run as a hand takes it. The first token is stored, and told, at once.
func (r *agentRun) writing() *writing {
	p := r.place
	var last time.Duration
	now := func() time.Duration { return time.Since(p.began) }
	return &writing{text: r.text, number: r.text.begin(), now: now, heard: func() {}, told: func(tokens int) {
		switch at := now(); {
		case last == 0:
			p.wg.Go(func() {
				if err := r.text.keep(); err != nil && r.ctx.Err() == nil {
					p.opt.Log.Warn("text was not stored", "error", err)
				}
			})
			fallthrough
		case at-last >= tellAfter:
			last = at
			p.say(r.term, RunNews{Number: r.number, Tokens: tokens, Added: true})
		}
	}}
}
