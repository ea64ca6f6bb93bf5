package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/executor/durable"
)

// trackedRequest is a request that has not ended, or that a client still reads. It implements Output for its request.
type entry struct {
	front *Front
	id    string
	rec   *record

	storing sync.Mutex // held while text or the result is stored; taken before mu

	mu           sync.Mutex
	text         []byte // only grows, so a part of it may be read without the lock
	tokens       int
	stored       int           // bytes of text that the store has
	storedTokens int           // tokens of the text that the store has
	served       bool          // Server.Serve was called, and no other process has taken the request over
	ending       bool          // the result is known and is being stored; no more text is taken
	end          *end          // nil until it is stored, or storing it has failed
	failed       bool          // storing the result has failed
	changed      chan struct{} // closed at the next change; nil if nobody waits
}

// storeTimeout bounds a call of the store.
const storeTimeout = time.Minute

// Text implements Output: it adds the next piece of the answer.
func (e *entry) Text(delta string, tokens int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending || !e.served {
		return
	}
	e.text = append(e.text, delta...)
	e.tokens += tokens
	e.tell()
}

// hasEnded reports whether the result is known.
func (e *entry) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending
}

// wakeReaders wakes those who wait for a change. The caller holds e.mu.
func (e *entry) tell() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Partial implements Output: it stores the text so far.
func (e *entry) Partial() error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return e.storeText(ctx)
}

// storeText stores the text so far, unless the request has ended.
func (e *entry) storeText(ctx context.Context) error {
	e.storing.Lock()
	defer e.storing.Unlock()
	e.mu.Lock()
	over := e.ending
	e.mu.Unlock()
	if over {
		return nil
	}
	return e.storePieces(ctx, 0)
}

// maxPieceBytes bounds the text of one write to the store.
const mostPiece = 256 << 10

// storePieces stores text, in pieces, until at most maxUnstored bytes are not stored. The caller holds e.storeMu.
func (e *entry) storePieces(ctx context.Context, left int) error {
	for {
		e.mu.Lock()
		at, text, tokens := e.stored, e.text[e.stored:], e.tokens-e.storedTokens
		e.mu.Unlock()
		if len(text) <= left {
			return nil
		}
		if len(text) > mostPiece { // tokens are counted with the last piece
			text, tokens = text[:mostPiece], 0
		}
		if err := e.front.opt.Store.Append(ctx, e.id, at, text, tokens); err != nil {
			return fmt.Errorf("store the text of %s: %w", e.id, err)
		}
		e.mu.Lock()
		e.stored, e.storedTokens = at+len(text), e.storedTokens+tokens
		e.mu.Unlock()
	}
}

// Done implements Output: it ends the request. A goroutine of its own stores the result.
func (e *entry) Done(r Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.served {
		e.close(r)
	}
}

// startEnding starts to store the result, unless one is known already. The caller holds e.mu.
func (e *entry) close(r Result) {
	if e.ending {
		return
	}
	// If the front end is closing, the result is dropped, and the request is served again after the restart.
	e.ending = e.front.begin(func() { e.finish(r) })
}

// finish stores the result of a request and then publishes it.
func (e *entry) finish(r Result) {
	e.storing.Lock()
	defer e.storing.Unlock()

	// Store the text that is too long to be stored with the result. The rest goes into the result.
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	err := e.storePieces(ctx, mostPiece) // the rest is stored with the result
	cancel()

	// Make the result. Counts that the server did not report are our own.
	x := &end{Finish: r.Finish, Prompt: r.PromptTokens, Output: r.OutputTokens, Tail: string(e.text[e.stored:])}
	set(&x.Prompt, e.rec.Prompt)
	set(&x.Output, e.tokens)
	if r.Err != nil {
		x.Error = failed(r.Err)
	}

	// Store it. If another process has stored one already, that one and its text count.
	var text []byte
	if err == nil || errors.Is(err, durable.ErrFinished) {
		x, text, err = e.front.storeEnd(e.id, x)
	}

	// If another process has the request now, its result counts.
	if errors.Is(err, durable.ErrMoved) {
		away{e.front}.lost(e)
		return
	}

	// If the store failed, clients see that error. It is not durable.
	full := e.front.took(err)
	if err != nil {
		x = &end{Error: failed(errFull)}
		if !full {
			e.front.opt.Log.Error("the end of a request was not stored", "id", e.id, "error", err)
			x = &end{Error: failed(errNotStored)}
		}
		e.mu.Lock()
		e.failed = true
		e.mu.Unlock()
	}
	e.settle(x, text)
}

// publishResult makes a result known, unless there is one, and ends the tracking of the request. text is the whole
// answer if another process has generated it, else nil.
func (e *entry) settle(x *end, text []byte) {
	e.mu.Lock()
	fresh := e.end == nil
	if fresh {
		e.ending, e.end = true, x
		if text != nil {
			e.text = text
		}
		e.tell()
	}
	e.mu.Unlock()
	if fresh {
		e.front.ended(e)
	}
}

// storeAttempts is how often a failing store is asked to store a result.
const tries = 3

var errNotStored = errors.New("the request or its answer could not be stored")

// storeResult stores the result of a request. If another result is stored already, it returns that result and the
// whole text; text is nil otherwise. It tries again while the error may pass.
func (f *Front) storeEnd(id string, x *end) (_ *end, text []byte, err error) {
	data, err := json.Marshal(x)
	if err != nil {
		return nil, nil, err
	}

	// Each attempt waits a little longer than the one before.
	for try := range tries {
		if try > 0 {
			time.Sleep(time.Duration(try) * 100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err = f.opt.Store.Finish(ctx, id, data)

		// Another process has stored a result: read it.
		if errors.Is(err, durable.ErrFinished) {
			var st *durable.State
			if st, err = f.opt.Store.Get(ctx, id); err == nil {
				if _, x, err = readRecord(st); err == nil {
					text = x.text(st)
				}
			}
		}
		cancel()
		if err == nil || final(err) {
			break
		}
	}
	return x, text, err
}

// isPermanent reports whether asking the store again would give the same error.
func final(err error) bool {
	return errors.Is(err, durable.ErrClosed) || errors.Is(err, durable.ErrNotFound) || errors.Is(err, durable.ErrMoved)
}

// requestUpdate is what a reader of a request gets: the text after an offset, and the result if the request has
// ended.
type news struct {
	text    string
	at      int             // length of the whole text so far
	tokens  int             // of the whole text so far
	end     *end            // nil if the request has not ended
	changed <-chan struct{} // closed at the next change
}

// snapshot returns the text from byte offset on, and the result if there is one.
func (e *entry) look(at int) news {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil && e.end == nil {
		e.changed = make(chan struct{})
	}
	return news{text: string(e.text[min(at, len(e.text)):]), at: len(e.text), tokens: e.tokens, end: e.end, changed: e.changed}
}

// waitForResult returns the whole text and the result when the request has ended. It returns an error if ctx ends or
// the front end closes before.
func (e *entry) wait(ctx context.Context) (news, error) {
	for {
		n := e.look(0)
		if n.end != nil {
			return n, nil
		}
		select {
		case <-n.changed:
		case <-ctx.Done():
			return n, ctx.Err()
		case <-e.front.closing:
			return n, errLeaves
		}
	}
}

// adoptStoredText takes the text from the store if it is longer than the text here and the request is not served
// here. It reports whether it was.
func (e *entry) restore(st *durable.State) (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.served || len(st.Text) <= len(e.text) {
		return false
	}
	e.text, e.tokens = st.Text, st.Tokens
	e.stored, e.storedTokens = len(e.text), st.Tokens
	e.tell()
	return true
}
