package completions

import (
	"context"
	"errors"
	"math"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// remoteRequests are the methods of the front end for requests that other processes serve.
type away struct{ *Front }

// A request that another process serves is read from the store at intervals. They start at firstPollPause, and grow
// to maxPollPause while nothing changes. If the store reports changes itself they grow to pollPauseWithNotices: the
// store is read only in case a notice was lost.
const (
	followFirst = 50 * time.Millisecond
	followLast  = 2 * time.Second
	followTold  = 5 * time.Second
)

// followRequest takes the text and the result of a request from the store, until the request ends or is served here.
func (f away) follow(e *entry) {
	// Subscribe to changes, if the store has them.
	last := followLast
	if shared, ok := f.opt.Store.(durable.Shared); ok {
		stop, err := shared.Follow(e.id, func(c durable.Change) { f.changed(e, c) })
		if err == nil {
			defer stop()
			last = followTold
		} else if f.ctx.Err() == nil {
			f.opt.Log.Warn("news of a request come late", "id", e.id, "error", err)
		}
	}

	// Read the store at growing intervals.
	for pause := followFirst; f.ctx.Err() == nil; {
		e.mu.Lock()
		over := e.served || e.ending
		e.mu.Unlock()
		if over {
			return
		}
		select {
		case <-e.look(math.MaxInt).changed:
			continue
		case <-time.After(pause):
		case <-f.closing:
			return
		}
		over, more := f.refresh(e)
		if over {
			return
		}
		if more {
			pause = followFirst
		}
		pause = min(pause*3/2, last)
	}
}

// readFromStore reads a request once from the store and takes its text or its result. ended reports that it has
// ended, hasMore that there was more text.
func (f away) refresh(e *entry) (over, more bool) {
	st, err := f.opt.Store.Get(f.ctx, e.id)
	if errors.Is(err, durable.ErrNotFound) {
		e.settle(&end{Error: failed(httplimit.NotFound("the request is not kept any more"))}, nil)
		return true, false
	}
	if err != nil {
		return false, false
	}
	_, x, err := readRecord(st)
	if err == nil && x != nil {
		e.settle(x, x.text(st))
		return true, false
	}
	return false, e.restore(st)
}

// cancelRequest ends a request with the error cause, and has the server forget it.
func (f *Front) cancel(e *entry, why error) {
	e.mu.Lock()
	e.close(Result{Err: why})
	e.mu.Unlock()
	f.opt.Server.Forget(e.id)
}

// handleTakeover stops a request that another process has taken over, and then follows it in the store. If the front
// end serves only requests that TakeOver gets, it stops tracking the request instead.
func (f away) lost(e *entry) {
	e.mu.Lock()
	served := e.served
	e.served, e.ending = false, e.end != nil
	e.mu.Unlock()
	if !served {
		return
	}
	f.opt.Log.Warn("another process has taken a request over: this one was silent for too long", "id", e.id)
	f.opt.Server.Forget(e.id)
	if f.opt.Gone != nil {
		f.drop(e)
		f.opt.Gone(e.id, false)
	} else {
		f.begin(func() { f.follow(e) })
	}
}

// untrack removes a request from those that have not ended.
func (f *Front) drop(e *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[e.id] == e {
		delete(f.entries, e.id)
		sender := e.rec.sender()
		if f.open[sender]--; f.open[sender] == 0 {
			delete(f.open, sender)
		}
	}
}

// GiveBack stores the text of a request that TakeOver was given, and returns the request to the store. The server can
// add no more to it. It does nothing if the request has ended or another process has taken it over.
func (f *Front) Leave(ctx context.Context, id string) error {
	f.mu.Lock()
	e := f.entries[id]
	f.mu.Unlock()
	if e == nil {
		return nil
	}
	err := e.storeText(ctx)
	e.mu.Lock()
	over := e.ending
	e.served = e.served && over
	e.mu.Unlock()
	if over {
		return nil
	}
	f.drop(e)
	if errors.Is(err, durable.ErrFinished) || errors.Is(err, durable.ErrMoved) {
		return nil
	}
	return errors.Join(err, f.opt.Store.Release(ctx, id))
}

// applyChange adds the text that another process has stored. If text before it is missing, or the request has ended,
// it reads the store instead.
func (f away) changed(e *entry, c durable.Change) {
	e.mu.Lock()
	over := e.served || e.ending
	lacks := c.Ended || c.At > len(e.text)
	if !over && !lacks && c.At == len(e.text) {
		e.text = append(e.text, c.Text...)
		e.tokens += c.Tokens
		e.stored, e.storedTokens = len(e.text), e.tokens
		e.tell()
	}
	e.mu.Unlock()
	if !over && lacks {
		f.begin(func() { f.refresh(e) })
	}
}

// When another process stores the result of a request that is served here, the server here may still finish.
// readRemoteResult waits remoteResultDelay before it reads that result, and remoteAnswerGrace before it publishes one
// that is no error.
const (
	toldSoon   = 200 * time.Millisecond
	toldWithin = 2 * time.Second
)

// handleRemoteEnd is called when another process has stored the result of a request.
func (f away) endedElsewhere(id string) {
	f.mu.Lock()
	e := f.entries[id]
	f.mu.Unlock()
	if e != nil {
		f.begin(func() { f.readEnd(e) })
	}
}

// readRemoteResult takes the result of a request that another process has stored. If the request is served here, its
// server is given time to report the end itself; then it is stopped.
func (f away) readEnd(e *entry) {
	e.mu.Lock()
	served := e.served
	e.mu.Unlock()
	if !served {
		f.refresh(e)
		return
	}

	// Give the server here a moment to end it.
	if pause(f.Front, toldSoon); e.over() {
		return
	}
	st, err := f.opt.Store.Get(f.ctx, e.id)
	if err != nil {
		return // storing the request's text will fail later, which also ends it
	}
	_, x, err := readRecord(st)
	if err != nil || x == nil {
		return
	}

	// A server that is about to answer gets more time.
	if x.Error == nil {
		pause(f.Front, toldWithin)
	}
	if !e.over() {
		e.settle(x, x.text(st))
		f.opt.Server.Forget(e.id)
	}
}
