package completions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/executor/durable"
)

// trackedRequest is a request that has not ended, or that a client still reads. It implements Output for its request.
type trackedRequest struct {
	front  *Front
	id     string
	record *requestRecord

	storeMu sync.Mutex // held while text or the result is stored; taken before mu

	mu             sync.Mutex
	text           []byte // only grows, so a part of it may be read without the lock
	tokens         int
	storedBytes    int            // bytes of text that the store has
	storedTokens   int            // tokens of the text that the store has
	handedToServer bool           // Server.Serve was called, and no other process has taken the request over
	resultKnown    bool           // the result is known and is being stored; no more text is taken
	result         *requestResult // nil until it is stored, or storing it has failed
	storeFailed    bool           // storing the result has failed
	nextChange     chan struct{}  // closed at the next change; nil if nobody waits
}

// storeTimeout bounds a call of the store.
const storeTimeout = time.Minute

// Text is called by the server for each piece of an answer. It adds it to the request's text and wakes those who
// stream it. Pieces after the end, or after the request was given away, are ignored. It implements Output.
func (e *trackedRequest) Text(delta string, tokens int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resultKnown || !e.handedToServer {
		return
	}
	e.text = append(e.text, delta...)
	e.tokens += tokens
	e.wakeReaders()
}

// hasEnded reports whether the result is known.
func (e *trackedRequest) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resultKnown
}

// wakeReaders wakes those who wait for more text or the result, by closing the channel that snapshot gave them. The
// caller holds e.mu.
func (e *trackedRequest) wakeReaders() {
	if e.nextChange != nil {
		close(e.nextChange)
		e.nextChange = nil
	}
}

// Partial implements Output: it stores the text so far.
func (e *trackedRequest) Partial() error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return e.storeText(ctx)
}

// storeText writes the text of the answer that is not stored yet to the store, unless the request has ended. One
// goroutine at a time writes a request's text.
func (e *trackedRequest) storeText(ctx context.Context) error {
	e.storeMu.Lock()
	defer e.storeMu.Unlock()
	e.mu.Lock()
	ended := e.resultKnown
	e.mu.Unlock()
	if ended {
		return nil
	}
	return e.storePieces(ctx, 0)
}

// maxPieceBytes bounds the text of one write to the store.
const maxPieceBytes = 256 << 10

// storePieces stores a request's text, in pieces of at most maxPieceBytes, until at most maxUnstored bytes are not
// stored. The caller holds e.storeMu, so that pieces are stored in order.
func (e *trackedRequest) storePieces(ctx context.Context, maxUnstored int) error {
	for {
		e.mu.Lock()
		offset, text, tokens := e.storedBytes, e.text[e.storedBytes:], e.tokens-e.storedTokens
		e.mu.Unlock()
		if len(text) <= maxUnstored {
			return nil
		}
		if len(text) > maxPieceBytes { // tokens are counted with the last piece
			text, tokens = text[:maxPieceBytes], 0
		}
		if err := e.front.opt.Store.Append(ctx, e.id, offset, text, tokens); err != nil {
			return fmt.Errorf("store the text of %s: %w", e.id, err)
		}
		e.mu.Lock()
		e.storedBytes, e.storedTokens = offset+len(text), e.storedTokens+tokens
		e.mu.Unlock()
	}
}

// Done is called by the server when it has answered a request or given it up. The result is stored in the
// background. It implements Output.
func (e *trackedRequest) Done(r Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handedToServer {
		e.startEnding(r)
	}
}

// startEnding starts to store a result in the background, unless the request has one or the front end closes. Only
// the first result counts. The caller holds e.mu.
func (e *trackedRequest) startEnding(r Result) {
	if e.resultKnown {
		return
	}
	// If the front end is closing, the result is dropped, and the request is served again after the restart.
	e.resultKnown = e.front.startBackground(func() { e.finish(r) })
}

// finish is called once a request has ended. It stores the result, with what is left of the text, and then
// publishes it, so that no client sees a result that a crash could lose. If another process has stored a result or
// taken the request over, that one counts.
func (e *trackedRequest) finish(r Result) {
	e.storeMu.Lock()
	defer e.storeMu.Unlock()

	// Store the text that is too long to be stored with the result. The rest goes into the result.
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	err := e.storePieces(ctx, maxPieceBytes) // the rest is stored with the result
	cancel()

	// Make the result. Counts that the server did not report are our own.
	result := &requestResult{Finish: r.Finish, PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Tail: string(e.text[e.storedBytes:])}
	result.PromptTokens = cmp.Or(result.PromptTokens, e.record.PromptTokens)
	result.OutputTokens = cmp.Or(result.OutputTokens, e.tokens)
	if r.Err != nil {
		result.Error = toClientError(r.Err)
	}

	// Store it. If another process has stored one already, that one and its text count.
	var text []byte
	if err == nil || errors.Is(err, durable.ErrFinished) {
		result, text, err = e.front.storeResult(e.id, result)
	}

	// If another process has the request now, its result counts.
	if errors.Is(err, durable.ErrConflict) {
		e.handleTakeover()
		return
	}

	// If the store failed, clients see that error. It is not durable.
	storeFull := e.front.noteWriteResult(err)
	if err != nil {
		result = &requestResult{Error: toClientError(errStoreFull)}
		if !storeFull {
			e.front.opt.Log.Error("the end of a request was not stored", "id", e.id, "error", err)
			result = &requestResult{Error: toClientError(errNotStored)}
		}
		e.mu.Lock()
		e.storeFailed = true
		e.mu.Unlock()
	}
	e.publishResult(result, text)
}

// publishResult makes a result known to those who wait for it, unless there is one, and ends the tracking of the
// request. text is the whole answer if another process has generated it, else nil.
func (e *trackedRequest) publishResult(result *requestResult, text []byte) {
	e.mu.Lock()
	isFirst := e.result == nil
	if isFirst {
		e.resultKnown, e.result = true, result
		if text != nil {
			e.text = text
		}
		e.wakeReaders()
	}
	e.mu.Unlock()
	if isFirst {
		e.front.finishTracking(e)
	}
}

// storeAttempts is how often a failing store is asked to store a result.
const storeAttempts = 3

var errNotStored = errors.New("the request or its answer could not be stored")

// storeResult stores the result of a request. If another result is stored already, it returns that result and the
// whole text; text is nil otherwise. It tries again while the error may pass.
func (f *Front) storeResult(id string, result *requestResult) (_ *requestResult, text []byte, err error) {
	data, err := json.Marshal(result)
	if err != nil {
		return nil, nil, err
	}

	// Each attempt waits a little longer than the one before.
	for attempt := range storeAttempts {
		if attempt > 0 {
			time.Sleep(time.Duration(attempt) * 100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err = f.opt.Store.Finish(ctx, id, data)

		// Another process has stored a result: read it.
		if errors.Is(err, durable.ErrFinished) {
			var st *durable.State
			if st, err = f.opt.Store.Get(ctx, id); err == nil {
				if _, result, err = readRecord(st); err == nil {
					text = result.fullText(st)
				}
			}
		}
		cancel()
		if err == nil || isPermanent(err) {
			break
		}
	}
	return result, text, err
}

// isPermanent reports whether asking the store again would give the same error.
func isPermanent(err error) bool {
	return errors.Is(err, durable.ErrClosed) || errors.Is(err, durable.ErrNotFound) || errors.Is(err, durable.ErrConflict)
}

// requestUpdate holds the news for a reader of a request: the text after an offset, and the result if it has
// ended.
type requestUpdate struct {
	text       string
	textBytes  int             // length of the whole text so far
	tokens     int             // of the whole text so far
	result     *requestResult  // nil if the request has not ended
	nextChange <-chan struct{} // closed at the next change
}

// snapshot returns the text from byte offset on, the result if there is one, and a channel that is closed at the
// next change.
func (e *trackedRequest) snapshot(offset int) requestUpdate {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nextChange == nil && e.result == nil {
		e.nextChange = make(chan struct{})
	}
	return requestUpdate{text: string(e.text[min(offset, len(e.text)):]), textBytes: len(e.text), tokens: e.tokens, result: e.result, nextChange: e.nextChange}
}

// waitForResult waits until a request has ended, and returns its whole text and the result. It returns an error if
// ctx ends or the front end closes before.
func (e *trackedRequest) waitForResult(ctx context.Context) (requestUpdate, error) {
	for {
		update := e.snapshot(0)
		if update.result != nil {
			return update, nil
		}
		select {
		case <-update.nextChange:
		case <-ctx.Done():
			return update, ctx.Err()
		case <-e.front.closeSignal:
			return update, errDraining
		}
	}
}

// adoptStoredText takes over the answer's text from the store, in state st, and wakes the readers, if it is longer than
// the text here and another process serves the request. It returns true if it did.
func (e *trackedRequest) adoptStoredText(st *durable.State) (hasMore bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handedToServer || len(st.Text) <= len(e.text) {
		return false
	}
	e.text, e.tokens = st.Text, st.Tokens
	e.storedBytes, e.storedTokens = len(e.text), st.Tokens
	e.wakeReaders()
	return true
}
