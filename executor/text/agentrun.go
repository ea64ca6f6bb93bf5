package text

import (
	"context"
	"errors"
	"sync"
	"time"

	"inferplan/executor/durable"
)

// agentRun is a run of a request in the process of an agent.
type agentRun struct {
	instance *servedInstance
	term     uint64
	number   uint64
	id       string
	ticket   string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	finished chan struct{} // closed when nothing of the run is left
	text     *requestText  // nil until the front end has handed the request to the run

	releaseOnce  sync.Once
	released     chan struct{} // closed when the front end no longer has the request
	resultStored bool          // set with released: the result of the request is stored
}

// release is called when the front end no longer has the request: its result is stored, or another process has
// taken it. It ends the run (the attempt to answer it).
func (r *agentRun) release(resultStored bool) {
	r.releaseOnce.Do(func() {
		r.resultStored = resultStored
		close(r.released)
	})
	r.cancel(errTakenOver)
}

// startRun starts, on a goroutine, a run (one attempt to answer a request) that the process that plans has ordered. An
// order that has been received before does nothing, because orders are sent again until they are answered. A run of the
// same request that is under way ends first.
func (p *servedInstance) startRun(o *AgentOrder) {
	r := &agentRun{instance: p, term: o.Term, number: o.Number, id: o.ID, ticket: o.Ticket, finished: make(chan struct{}), released: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(p.process.ctx)
	earlierRun, isKnown := p.runs.add(r)
	if isKnown {
		return
	}

	// Wait for the earlier run of this request, and then answer it.
	p.process.wg.Go(func() {
		if earlierRun != nil {
			earlierRun.cancel(errTakenOver)
			<-earlierRun.finished
		}
		p.runs.setServing(r)
		result := r.serve()

		// Forget the run, and report its end.
		p.runs.remove(r)
		r.cancel(nil)
		close(r.finished)
		update := RunUpdate{Number: r.number, Tokens: result.tokens, AddedTokens: result.addedTokens, Result: &WireResult{Error: toWireError(result.err), Finish: result.result.Finish, PromptTokens: result.result.PromptTokens, OutputTokens: result.result.OutputTokens}}
		p.runs.queueUpdate(r.term, update)
	})
}

// giveBackTimeout bounds the time to store the text of a run that ended early.
const giveBackTimeout = 20 * time.Second

// serve carries out a run: it claims the request from the store and has it answered. When it returns, either the
// result is stored, or the text so far is stored and the request was given back. If another process has the request
// by then, the error is errTakenOver.
func (r *agentRun) serve() *runResult {
	p := r.instance

	// Claim the request and let the front end serve it, which calls Serve of the process.
	st, err := p.process.opt.Store.Adopt(r.ctx, r.id, r.ticket)
	if err == nil {
		if err = p.process.front.TakeOver(st); err != nil {
			err = errors.Join(err, p.process.opt.Store.Release(r.ctx, r.id))
		}
	}
	if err != nil || r.text == nil {
		// If another process has stored a result, the planner finds it in the store.
		if errors.Is(err, durable.ErrFinished) {
			return &runResult{}
		}
		return &runResult{err: errors.Join(errTakenOver, err)}
	}

	// Have it answered. Store the result, or give the request back.
	result := p.servers.writeAnswer(r.ctx, r.newAnswerRun())
	if result.err == nil {
		r.text.output.Done(result.result)
		<-r.released
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), giveBackTimeout)
		defer cancel()
		if err := p.process.front.GiveBack(ctx, r.id); err != nil {
			p.process.opt.Log.Error("what a request has so far is not stored", "request", r.id, "error", err)
		}
	}

	// If the front end lost the request meanwhile, that decides.
	select {
	case <-r.released:
		if result.err = nil; !r.resultStored {
			result.err = errTakenOver
		}
	default:
	}
	return result
}

// updateInterval is the time between two updates about a run.
const updateInterval = 100 * time.Millisecond

// newAnswerRun returns the run in the form that a server control takes, with functions for its progress. With the
// first token the text is stored and reported at once, so that a restart can continue it; later progress is
// reported every updateInterval.
func (r *agentRun) newAnswerRun() *answerRun {
	p := r.instance
	var lastUpdate time.Duration
	clock := func() time.Duration { return time.Since(p.process.beganAt) }
	return &answerRun{text: r.text, runNumber: r.text.startRun(), clock: clock, onPiece: func() {}, onTokens: func(tokens int) {
		switch elapsed := clock(); {
		case lastUpdate == 0:
			p.process.wg.Go(func() {
				if err := r.text.storePartial(); err != nil && r.ctx.Err() == nil {
					p.process.opt.Log.Warn("text was not stored", "error", err)
				}
			})
			fallthrough
		case elapsed-lastUpdate >= updateInterval:
			lastUpdate = elapsed
			p.runs.queueUpdate(r.term, RunUpdate{Number: r.number, Tokens: tokens, AddedTokens: true})
		}
	}}
}
