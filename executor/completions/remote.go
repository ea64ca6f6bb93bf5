package completions

import (
	"context"
	"errors"
	"math"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// A request that another process serves is read from the store at intervals. They start at firstPollPause, and grow
// to maxPollPause while nothing changes. If the store reports changes itself they grow to pollPauseWithNotices: the
// store is read only in case a notice was lost.
const (
	firstPollPause       = 50 * time.Millisecond
	maxPollPause         = 2 * time.Second
	pollPauseWithNotices = 5 * time.Second
)

// follow runs in the background for a request that another process serves. It takes text and result from the store
// until the request ends or is served here. It reads at growing intervals, and at once when the store gives notice
// of a change.
func (e *trackedRequest) follow() {
	// Subscribe to changes, if the store has them.
	maxPause := maxPollPause
	if shared, ok := e.front.opt.Store.(durable.Shared); ok {
		unsubscribe, err := shared.Follow(e.id, func(c durable.Change) { e.applyChange(c) })
		if err == nil {
			defer unsubscribe()
			maxPause = pollPauseWithNotices
		} else if e.front.ctx.Err() == nil {
			e.front.opt.Log.Warn("news of a request come late", "id", e.id, "error", err)
		}
	}

	// Read the store at growing intervals.
	for pause := firstPollPause; e.front.ctx.Err() == nil; {
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
		case <-e.front.closeSignal:
			return
		}
		ended, hasMore := e.readFromStore()
		if ended {
			return
		}
		if hasMore {
			pause = firstPollPause
		}
		pause = min(pause*3/2, maxPause)
	}
}

// readFromStore reads a request that another process serves once from the store, and takes its text or its result.
// ended reports that it has ended, hasMore that there was more text. A request that is no longer kept ends with an
// error.
func (e *trackedRequest) readFromStore() (ended, hasMore bool) {
	st, err := e.front.opt.Store.Get(e.front.ctx, e.id)
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

// cancelRequest ends a request that is tracked here with the error cause, and has the server forget it. If it has
// ended, its result stays.
func (f *Front) cancelRequest(e *trackedRequest, cause error) {
	e.mu.Lock()
	e.startEnding(Result{Err: cause})
	e.mu.Unlock()
	f.opt.Server.Forget(e.id)
}

// handleTakeover stops a request that another process has taken over, and then follows it in the store. If the front
// end serves only requests that TakeOver gets, it stops tracking the request instead.
func (e *trackedRequest) handleTakeover() {
	e.mu.Lock()
	wasServed := e.handedToServer
	e.handedToServer, e.resultKnown = false, e.result != nil
	e.mu.Unlock()
	if !wasServed {
		return
	}
	e.front.opt.Log.Warn("another process has taken a request over: this one was silent for too long", "id", e.id)
	e.front.opt.Server.Forget(e.id)
	if e.front.opt.OnRequestGone != nil {
		e.front.requests.remove(e)
		e.front.opt.OnRequestGone(e.id, false)
	} else {
		e.front.startBackground(e.follow)
	}
}

// GiveBack stores the text of a request that TakeOver was given, and returns the request to the store. The server can
// add no more to it. It does nothing if the request has ended or another process has taken it over.
func (f *Front) GiveBack(ctx context.Context, id string) error {
	e := f.requests.find(id)
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
	f.requests.remove(e)
	if errors.Is(err, durable.ErrFinished) || errors.Is(err, durable.ErrConflict) {
		return nil
	}
	return errors.Join(err, f.opt.Store.Release(ctx, id))
}

// applyChange handles the notice that another process has stored more text of a request: it adds the text. If text
// before it is missing, or the request has ended, it reads the store instead. If the request is served here, it
// does nothing.
func (e *trackedRequest) applyChange(change durable.Change) {
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
		e.front.startBackground(func() { e.readFromStore() })
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
func (f *Front) handleRemoteEnd(id string) {
	if e := f.requests.find(id); e != nil {
		f.startBackground(e.readRemoteResult)
	}
}

// readRemoteResult takes the result of a request that another process has stored. If the request is served here, its
// server is given time to report the end itself; then it is stopped.
func (e *trackedRequest) readRemoteResult() {
	e.mu.Lock()
	wasServed := e.handedToServer
	e.mu.Unlock()
	if !wasServed {
		e.readFromStore()
		return
	}

	// Give the server here a moment to end it.
	if pause(e.front, remoteResultDelay); e.hasEnded() {
		return
	}
	st, err := e.front.opt.Store.Get(e.front.ctx, e.id)
	if err != nil {
		return // storing the request's text will fail later, which also ends it
	}
	_, result, err := readRecord(st)
	if err != nil || result == nil {
		return
	}

	// A server that is about to answer gets more time.
	if result.Error == nil {
		pause(e.front, remoteAnswerGrace)
	}
	if !e.hasEnded() {
		e.publishResult(result, result.fullText(st))
		e.front.opt.Server.Forget(e.id)
	}
}
