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
type remoteRequests struct{ *Front }

// A request that another process serves is read from the store at intervals. They start at firstPollPause, and grow
// to maxPollPause while nothing changes. If the store reports changes itself they grow to pollPauseWithNotices: the
// store is read only in case a notice was lost.
const (
	firstPollPause       = 50 * time.Millisecond
	maxPollPause         = 2 * time.Second
	pollPauseWithNotices = 5 * time.Second
)

// followRequest takes the text and the result of a request from the store, until the request ends or is served here.
func (f remoteRequests) followRequest(e *trackedRequest) {
	// Subscribe to changes, if the store has them.
	maxPause := maxPollPause
	if shared, ok := f.opt.Store.(durable.Shared); ok {
		unsubscribe, err := shared.Follow(e.id, func(c durable.Change) { f.applyChange(e, c) })
		if err == nil {
			defer unsubscribe()
			maxPause = pollPauseWithNotices
		} else if f.ctx.Err() == nil {
			f.opt.Log.Warn("news of a request come late", "id", e.id, "error", err)
		}
	}

	// Read the store at growing intervals.
	for pause := firstPollPause; f.ctx.Err() == nil; {
		e.mu.Lock()
		ended := e.handedToServer || e.resultKnown
		e.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-e.snapshot(math.MaxInt).nextChange:
			continue
		case <-time.After(pause):
		case <-f.closeSignal:
			return
		}
		ended, hasMore := f.readFromStore(e)
		if ended {
			return
		}
		if hasMore {
			pause = firstPollPause
		}
		pause = min(pause*3/2, maxPause)
	}
}

// readFromStore reads a request once from the store and takes its text or its result. ended reports that it has
// ended, hasMore that there was more text.
func (f remoteRequests) readFromStore(e *trackedRequest) (ended, hasMore bool) {
	st, err := f.opt.Store.Get(f.ctx, e.id)
	if errors.Is(err, durable.ErrNotFound) {
		e.publishResult(&requestResult{Error: toClientError(httplimit.NotFound("the request is not kept any more"))}, nil)
		return true, false
	}
	if err != nil {
		return false, false
	}
	_, result, err := readRecord(st)
	if err == nil && result != nil {
		e.publishResult(result, result.fullText(st))
		return true, false
	}
	return false, e.adoptStoredText(st)
}

// cancelRequest ends a request with the error cause, and has the server forget it.
func (f *Front) cancelRequest(e *trackedRequest, cause error) {
	e.mu.Lock()
	e.startEnding(Result{Err: cause})
	e.mu.Unlock()
	f.opt.Server.Forget(e.id)
}

// handleTakeover stops a request that another process has taken over, and then follows it in the store. If the front
// end serves only requests that TakeOver gets, it stops tracking the request instead.
func (f remoteRequests) handleTakeover(e *trackedRequest) {
	e.mu.Lock()
	wasServed := e.handedToServer
	e.handedToServer, e.resultKnown = false, e.result != nil
	e.mu.Unlock()
	if !wasServed {
		return
	}
	f.opt.Log.Warn("another process has taken a request over: this one was silent for too long", "id", e.id)
	f.opt.Server.Forget(e.id)
	if f.opt.OnRequestGone != nil {
		f.untrack(e)
		f.opt.OnRequestGone(e.id, false)
	} else {
		f.startBackground(func() { f.followRequest(e) })
	}
}

// untrack removes a request from those that have not ended.
func (f *Front) untrack(e *trackedRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests[e.id] == e {
		delete(f.requests, e.id)
		sender := e.record.sender()
		if f.openBySender[sender]--; f.openBySender[sender] == 0 {
			delete(f.openBySender, sender)
		}
	}
}

// GiveBack stores the text of a request that TakeOver was given, and returns the request to the store. The server can
// add no more to it. It does nothing if the request has ended or another process has taken it over.
func (f *Front) GiveBack(ctx context.Context, id string) error {
	f.mu.Lock()
	e := f.requests[id]
	f.mu.Unlock()
	if e == nil {
		return nil
	}
	err := e.storeText(ctx)
	e.mu.Lock()
	ended := e.resultKnown
	e.handedToServer = e.handedToServer && ended
	e.mu.Unlock()
	if ended {
		return nil
	}
	f.untrack(e)
	if errors.Is(err, durable.ErrFinished) || errors.Is(err, durable.ErrConflict) {
		return nil
	}
	return errors.Join(err, f.opt.Store.Release(ctx, id))
}

// applyChange adds the text that another process has stored. If text before it is missing, or the request has ended,
// it reads the store instead.
func (f remoteRequests) applyChange(e *trackedRequest, change durable.Change) {
	e.mu.Lock()
	ignored := e.handedToServer || e.resultKnown
	incomplete := change.Ended || change.Offset > len(e.text)
	if !ignored && !incomplete && change.Offset == len(e.text) {
		e.text = append(e.text, change.Text...)
		e.tokens += change.Tokens
		e.storedBytes, e.storedTokens = len(e.text), e.tokens
		e.wakeReaders()
	}
	e.mu.Unlock()
	if !ignored && incomplete {
		f.startBackground(func() { f.readFromStore(e) })
	}
}

// When another process stores the result of a request that is served here, the server here may still finish.
// readRemoteResult waits remoteResultDelay before it reads that result, and remoteAnswerGrace before it publishes one
// that is no error.
const (
	remoteResultDelay = 200 * time.Millisecond
	remoteAnswerGrace = 2 * time.Second
)

// handleRemoteEnd is called when another process has stored the result of a request.
func (f remoteRequests) handleRemoteEnd(id string) {
	f.mu.Lock()
	e := f.requests[id]
	f.mu.Unlock()
	if e != nil {
		f.startBackground(func() { f.readRemoteResult(e) })
	}
}

// readRemoteResult takes the result of a request that another process has stored. If the request is served here, its
// server is given time to report the end itself; then it is stopped.
func (f remoteRequests) readRemoteResult(e *trackedRequest) {
	e.mu.Lock()
	wasServed := e.handedToServer
	e.mu.Unlock()
	if !wasServed {
		f.readFromStore(e)
		return
	}

	// Give the server here a moment to end it.
	if pause(f.Front, remoteResultDelay); e.hasEnded() {
		return
	}
	st, err := f.opt.Store.Get(f.ctx, e.id)
	if err != nil {
		return // storing the request's text will fail later, which also ends it
	}
	_, result, err := readRecord(st)
	if err != nil || result == nil {
		return
	}

	// A server that is about to answer gets more time.
	if result.Error == nil {
		pause(f.Front, remoteAnswerGrace)
	}
	if !e.hasEnded() {
		e.publishResult(result, result.fullText(st))
		f.opt.Server.Forget(e.id)
	}
}
