package completions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// newRecord makes the record of a parsed request of an owner. It returns an error if the model is not served, or has
// no such class.
func (f *Front) record(q *question, owner string) (*record, error) {
	rec := &record{Owner: owner, Chat: q.chat, Keep: q.store, Model: q.model, Class: q.class, Max: q.maxTokens, Prompt: q.prompt,
		Choices: q.choices, Events: q.events, Shown: q.stream, Accepted: f.opt.Now(), Body: q.body}
	for _, m := range f.opt.Server.Models() {
		if m.ID != q.model {
			continue
		}

		// A request that names no class gets the model's first one.
		if m.Classes != nil && q.class == "" && len(m.Classes) > 0 {
			rec.Class = m.Classes[0]
		} else if m.Classes != nil && !slices.Contains(m.Classes, q.class) {
			return nil, httplimit.Invalid("slo_class", "model %q has no class %q; its classes: %s", httplimit.Clip(q.model), httplimit.Clip(q.class), strings.Join(m.Classes, ", "))
		}
		return rec, nil
	}
	return nil, &httplimit.Error{Code: httplimit.CodeNotFound, Reason: "model_not_found", Field: "model", Msg: fmt.Sprintf("model %q is not served here", httplimit.Clip(q.model))}
}

// admit returns nil if a request may come in now. It returns an error if too many requests are open, in all or of
// this client, or the server does not admit it. The last eighth of the places is shared among the senders, so that
// one with many requests does not lock the others out.
func (f *Front) admit(from *httplimit.Holder, r *Request) error {
	f.mu.Lock()
	all, own, senders := len(f.entries), f.open[r.Client], len(f.open)
	f.mu.Unlock()
	last := f.opt.MaxOpen / 8 // shared among the senders
	switch {
	case all >= f.opt.MaxOpen || all >= f.opt.MaxOpen-last && own > last/max(1, senders):
		return &Refusal{Reason: "too_many_requests", Msg: fmt.Sprintf("%d requests wait or run, at most %d are taken", all, f.opt.MaxOpen)}
	case from.Open > 0 && own >= from.Open:
		return &Refusal{Reason: "too_many_requests", Msg: fmt.Sprintf("%d requests of this key wait or run, at most %d are taken", own, from.Open)}
	}
	after, err := f.opt.Server.Admit(r)
	if err == nil {
		return nil
	}
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.RetryAfter == 0 {
		return &Refusal{Reason: refusal.Reason, Msg: refusal.Msg, RetryAfter: after}
	}
	return err
}

// findRequest finds a request of an owner that was accepted before: here, else in the store. It returns
// durable.ErrNotFound if there is none. A request that another process serves is followed from then on.
func (f *Front) find(ctx context.Context, id, owner string) (*entry, error) {
	f.mu.Lock()
	e := f.entries[id]
	f.mu.Unlock()
	if e == nil {
		st, err := f.opt.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		rec, x, err := readRecord(st)
		if err != nil {
			return nil, err
		}
		if x != nil {
			e = &entry{front: f, id: id, rec: rec, text: x.text(st), end: x, ending: true}
		} else {
			var fresh bool
			if e, fresh = f.entry(id, rec); fresh {
				f.begin(func() { away{f}.follow(e) })
			}
		}
	}
	if e.rec.Owner != owner {
		return nil, fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return e, nil
}

// storeTexts stores the text that has come, every Options.TextStoreInterval, until the front end closes.
func (f *Front) storeTexts() {
	tick := time.NewTicker(f.opt.StoreText)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.storeAll(f.ctx)
		case <-f.closing:
			return
		}
	}
}

// storeConcurrency bounds the calls of the store that run at once.
const atOnce = 64

// storeAllTexts stores the text of every request that is served here, several at once. A request that another process
// has ended or taken over is stopped here.
func (f *Front) storeAll(ctx context.Context) {
	due := f.held()
	next := make(chan *entry)
	var wg sync.WaitGroup
	for range min(atOnce, len(due)) {
		wg.Go(func() {
			for e := range next {
				err := e.storeText(ctx)
				if errors.Is(err, durable.ErrFinished) { // another process has cancelled it
					f.cancel(e, errCancelled)
				} else if errors.Is(err, durable.ErrMoved) {
					away{f}.lost(e)
				} else if err != nil && ctx.Err() == nil {
					f.opt.Log.Warn("text was not stored", "error", err)
				}
			}
		})
	}
	for _, e := range due {
		next <- e
	}
	close(next)
	wg.Wait()
}

// cleanupInterval is the time between two deletions of expired records and files.
const cleanEvery = time.Minute

// cleanUp deletes expired records and files from time to time, until the front end closes.
func (f *Front) cleanUp() {
	for f.ctx.Err() == nil {
		pause(f, cleanEvery)
		if f.ctx.Err() != nil {
			return
		}
		if err := (files{f}).deleteOld(); err != nil && f.ctx.Err() == nil {
			f.opt.Log.Warn("what is too old was not deleted", "error", err)
		}
	}
}

// deleteExpired deletes records, files and batches whose retention has ended.
func (f files) deleteOld() error {
	now := f.opt.Now()
	_, err := f.opt.Store.Expire(f.ctx, now, f.opt.kept)
	return errors.Join(err, f.expire(f.ctx, now))
}
