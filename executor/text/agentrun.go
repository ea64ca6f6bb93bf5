package text

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"inferplan/executor/durable"
)

// agentRun is a run of a request in the process of an agent.
type agentRun struct {
	place  *agentPlace
	term   uint64
	number uint64
	id     string
	ticket string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing of the run is left
	text   *text         // nil until the front end has handed the request to the run

	once  sync.Once
	gone  chan struct{} // closed when the front end no longer has the request
	ended bool          // set with released: the result of the request is stored
}

// release is called when the front end no longer has the request. It ends the run.
func (r *agentRun) over(ended bool) {
	r.once.Do(func() {
		r.ended = ended
		close(r.gone)
	})
	r.cancel(errLeft)
}

// maxKnownRuns bounds the numbers of ended runs that are known, to recognise orders that are sent again. When there
// are more, only the later half is kept. An order is repeated within seconds.
const knownRuns = 1 << 16

// startRun starts a run, unless the order has been received before. A run of the same request that is under way ends
// first.
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

	// Wait for the earlier run of this request, and then answer it.
	p.wg.Go(func() {
		if before != nil {
			before.cancel(errLeft)
			<-before.done
		}
		p.mu.Lock()
		p.serving[r.id] = r
		p.mu.Unlock()
		end := r.serve()

		// Forget the run, but remember its number.
		p.mu.Lock()
		if r.term == p.term { // otherwise the number belongs to another run
			p.numbers[r.number] = nil
		}
		delete(p.serving, r.id)
		if p.runs[r.id] == r {
			delete(p.runs, r.id)
		}
		p.mu.Unlock()
		r.cancel(nil)
		close(r.done)

		// Report the end.
		news := RunNews{Number: r.number, Tokens: end.tokens, Added: end.added, End: &WireEnd{Error: toWire(end.err), Finish: end.result.Finish, Prompt: end.result.PromptTokens, Output: end.result.OutputTokens}}
		p.say(r.term, news)
	})
}

// giveBackTimeout bounds the time to store the text of a run that ended early.
const backWithin = 20 * time.Second

// serve claims the request and has it answered. When it returns, either the result is stored, or the text is stored
// and the request was given back.
func (r *agentRun) serve() *streamEnd {
	p := r.place

	// Claim the request and let the front end serve it, which calls Serve of the process.
	st, err := p.opt.Store.Adopt(r.ctx, r.id, r.ticket)
	if err == nil {
		if err = p.front.Take(st); err != nil {
			err = errors.Join(err, p.opt.Store.Release(r.ctx, r.id))
		}
	}
	if err != nil || r.text == nil {
		// If another process has stored a result, the planner finds it in the store.
		if errors.Is(err, durable.ErrFinished) {
			return &streamEnd{}
		}
		return &streamEnd{err: errors.Join(errLeft, err)}
	}

	// Have it answered. Store the result, or give the request back.
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

	// If the front end lost the request meanwhile, that decides.
	select {
	case <-r.gone:
		if end.err = nil; !r.ended {
			end.err = errLeft
		}
	default:
	}
	return end
}

// updateInterval is the time between two updates about a run.
const tellAfter = 100 * time.Millisecond

// newAnswerRun returns the run in the form that a server control takes. The first token is stored and reported at
// once, later ones every updateInterval.
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
