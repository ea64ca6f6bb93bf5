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

// newRecord makes the record of a parsed request of an owner. It returns an error if the model is not served, or
// has no such class. The record is what the store keeps of the request.
func (f *Front) newRecord(parsed *parsedRequest, owner string) (*requestRecord, error) {
	record := &requestRecord{Owner: owner, Chat: parsed.chat, Resumable: parsed.keepResult, Model: parsed.model, Class: parsed.class, MaxTokens: parsed.maxTokens, PromptTokens: parsed.promptTokens,
		Choices: parsed.choices, Events: parsed.events, Streamed: parsed.stream, Accepted: f.opt.Now(), Body: parsed.body, Parent: parsed.parent}
	record.Session = record.sessionOf(parsed.session)
	for _, m := range f.opt.Server.Models() {
		if m.ID != parsed.model {
			continue
		}

		// A request that names no class gets the model's first one.
		if m.Classes != nil && parsed.class == "" && len(m.Classes) > 0 {
			record.Class = m.Classes[0]
		} else if m.Classes != nil && !slices.Contains(m.Classes, parsed.class) {
			return nil, httplimit.Invalid("slo_class", "model %q has no class %q; its classes: %s", httplimit.Clip(parsed.model), httplimit.Clip(parsed.class), strings.Join(m.Classes, ", "))
		}
		return record, nil
	}
	return nil, &httplimit.Error{Code: httplimit.CodeNotFound, Reason: "model_not_found", Field: "model", Msg: fmt.Sprintf("model %q is not served here", httplimit.Clip(parsed.model))}
}

// admit returns nil if a request may come in now. It returns an error if too many requests are open, in all or of
// this client, or the server does not admit it. The last eighth of the places is shared among the senders, so that
// one with many requests does not lock the others out. It is called before a request is stored, so that a refused
// one leaves nothing behind.
func (f *Front) admit(holder *httplimit.Holder, r *Request) error {
	openRequests, openOfClient, senders := f.requests.counts(r.Client)
	reservedRequests := f.opt.MaxOpenRequests / 8 // shared among the senders
	switch {
	case openRequests >= f.opt.MaxOpenRequests || openRequests >= f.opt.MaxOpenRequests-reservedRequests && openOfClient > reservedRequests/max(1, senders):
		return &Refusal{Reason: "too_many_requests", Msg: fmt.Sprintf("%d requests wait or run, at most %d are taken", openRequests, f.opt.MaxOpenRequests)}
	case holder.MaxOpen > 0 && openOfClient >= holder.MaxOpen:
		return &Refusal{Reason: "too_many_requests", Msg: fmt.Sprintf("%d requests of this key wait or run, at most %d are taken", openOfClient, holder.MaxOpen)}
	}
	retryAfter, err := f.opt.Server.Admit(r)
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.RetryAfter == 0 {
		return &Refusal{Reason: refusal.Reason, Msg: refusal.Msg, RetryAfter: retryAfter}
	}
	return err
}

// findRequest finds a request of an owner that was accepted before: here, else in the store. It returns
// durable.ErrNotFound if there is none. A request that another process serves is followed from then on.
func (f *Front) findRequest(ctx context.Context, id, owner string) (*trackedRequest, error) {
	e := f.requests.find(id)
	if e == nil {
		st, err := f.opt.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		record, result, err := readRecord(st)
		if err != nil {
			return nil, err
		}
		if result != nil {
			e = &trackedRequest{front: f, id: id, record: record, text: result.fullText(st), result: result, resultKnown: true}
		} else {
			var isNew bool
			if e, isNew = f.requests.findOrAdd(&trackedRequest{front: f, id: id, record: record}); isNew {
				f.startBackground(e.follow)
			}
		}
	}
	if e.record.Owner != owner {
		return nil, fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return e, nil
}

// storeTexts writes the text of answers that has come since the last time to the store, every Options.TextStoreInterval,
// until the front end closes. After a crash an answer then continues from there. It runs on a goroutine of its own.
func (f *Front) storeTexts() {
	tick := time.NewTicker(f.opt.TextStoreInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.storeAllTexts(f.ctx)
		case <-f.closeSignal:
			return
		}
	}
}

// storeConcurrency bounds the calls of the store that run at once.
const storeConcurrency = 64

// storeAllTexts is called from time to time and at the end. It stores the text so far of every request that is
// served here, several at once, so that another process can continue it. A request that another process has ended
// or taken over is stopped here.
func (f *Front) storeAllTexts(ctx context.Context) {
	served := f.requests.served()
	pending := make(chan *trackedRequest)
	var wg sync.WaitGroup
	for range min(storeConcurrency, len(served)) {
		wg.Go(func() {
			for e := range pending {
				err := e.storeText(ctx)
				if errors.Is(err, durable.ErrFinished) { // another process has cancelled it
					f.cancelRequest(e, errCancelled)
				} else if errors.Is(err, durable.ErrConflict) {
					e.handleTakeover()
				} else if err != nil && ctx.Err() == nil {
					f.opt.Log.Warn("text was not stored", "error", err)
				}
			}
		})
	}
	for _, e := range served {
		pending <- e
	}
	close(pending)
	wg.Wait()
}

// cleanupInterval is the time between two deletions of expired records and files.
const cleanupInterval = time.Minute

// cleanUp deletes requests, files and batches whose retention is over, every cleanupInterval, until the front end
// closes. It runs on a goroutine of its own.
func (f *Front) cleanUp() {
	for f.ctx.Err() == nil {
		pause(f, cleanupInterval)
		if f.ctx.Err() != nil {
			return
		}
		if err := f.deleteExpired(); err != nil && f.ctx.Err() == nil {
			f.opt.Log.Warn("what is too old was not deleted", "error", err)
		}
	}
}

// deleteExpired deletes records, files and batches whose retention has ended.
func (f *Front) deleteExpired() error {
	at := f.opt.Now()
	_, err := f.opt.Store.Expire(f.ctx, at, f.opt.retention)
	return errors.Join(err, f.files.expireFiles(f.ctx, at))
}
