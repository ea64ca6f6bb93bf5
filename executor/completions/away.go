package completions

import (
	"context"
	"errors"
	"math"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// away is about requests that other processes serve.
type away struct{ *Front }

// How often the store is asked for news of a request that another process serves: at
// first, and in the end where nothing comes. A store that tells of news itself is asked
// in case some were lost.
const (
	followFirst = 50 * time.Millisecond
	followLast  = 2 * time.Second
	followTold  = 5 * time.Second
)

// follow takes from the store what becomes of a request, until it is served here.
func (f away) follow(e *entry) {
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

// refresh reads once what the store has of a request: whether it has ended, and whether
// there is more text.
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

// cancel ends a request that nobody wants.
func (f *Front) cancel(e *entry, why error) {
	e.mu.Lock()
	e.close(Result{Err: why})
	e.mu.Unlock()
	f.opt.Server.Forget(e.id)
}

// lost stops a request that another process has taken over, and reads from the store
// what becomes of it.
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

// drop takes a request off the list.
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

// Leave stores the text of a request that Take has brought, and gives it back to the
// store. The server adds no more to it. What has ended, or went to another process
// meanwhile, is left as it is.
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

// changed takes what another process has stored of a request.
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

// How long the server of a request may take to tell of its end, which another process
// has stored: until that is read, and until it counts where it is an answer.
const (
	toldSoon   = 200 * time.Millisecond
	toldWithin = 2 * time.Second
)

// endedElsewhere takes that a request has ended. Where it is served here, and the end is
// an answer, its server tells of it itself.
func (f away) endedElsewhere(id string) {
	f.mu.Lock()
	e := f.entries[id]
	f.mu.Unlock()
	if e != nil {
		f.begin(func() { f.readEnd(e) })
	}
}

func (f away) readEnd(e *entry) {
	e.mu.Lock()
	served := e.served
	e.mu.Unlock()
	if !served {
		f.refresh(e)
		return
	}
	if pause(f.Front, toldSoon); e.over() {
		return
	}
	st, err := f.opt.Store.Get(f.ctx, e.id)
	if err != nil {
		return // it is told of later: the request's text cannot be stored any more
	}
	_, x, err := readRecord(st)
	if err != nil || x == nil {
		return
	}
	if x.Error == nil {
		pause(f.Front, toldWithin)
	}
	if !e.over() {
		e.settle(x, x.text(st))
		f.opt.Server.Forget(e.id)
	}
}
