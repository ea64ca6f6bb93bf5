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

// entry is a request that has not ended, or that somebody still reads. It is the
// Output of its request.
type entry struct {
	front *Front
	id    string
	rec   *record

	storing sync.Mutex // held while text or the end is stored

	mu           sync.Mutex
	text         []byte // it only grows, so a part of it may be read without the lock
	tokens       int
	stored       int // bytes of text in the store
	storedTokens int
	served       bool          // Server.Serve was called
	ending       bool          // the end is known, and is being stored
	end          *end          // durable, unless the store has failed
	failed       bool          // it has
	changed      chan struct{} // closed at the next news; nil: nobody waits
}

// storeTimeout bounds a call of the store.
const storeTimeout = time.Minute

// Text takes what came next.
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

// over says that the request has ended, or is about to.
func (e *entry) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending
}

// tell wakes those who wait for news; e.mu is held.
func (e *entry) tell() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Partial stores the text so far.
func (e *entry) Partial() error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return e.storeText(ctx)
}

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

// mostPiece is how much text is stored at once.
const mostPiece = 256 << 10

// storePieces stores text until at most left bytes are not; e.storing is held.
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

// Done ends the request. The end is stored beside the caller.
func (e *entry) Done(r Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.served {
		e.close(r)
	}
}

// close has the end stored, if there is none yet; e.mu is held.
func (e *entry) close(r Result) {
	if e.ending {
		return
	}
	// What ends while the front end closes is served again later.
	e.ending = e.front.begin(func() { e.finish(r) })
}

// finish stores the end, and then tells of it.
func (e *entry) finish(r Result) {
	e.storing.Lock()
	defer e.storing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	err := e.storePieces(ctx, mostPiece) // what is left goes with the end
	cancel()
	x := &end{Finish: r.Finish, Prompt: r.PromptTokens, Output: r.OutputTokens, Tail: string(e.text[e.stored:])}
	set(&x.Prompt, e.rec.Prompt)
	set(&x.Output, e.tokens)
	if r.Err != nil {
		x.Error = failed(r.Err)
	}
	var text []byte
	if err == nil || errors.Is(err, durable.ErrFinished) {
		x, text, err = e.front.storeEnd(e.id, x)
	}
	if errors.Is(err, durable.ErrMoved) {
		away{e.front}.lost(e)
		return
	}
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

// settle makes the end known, and the text where another process has made it.
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

// tries is how often a failing store is asked.
const tries = 3

var errNotStored = errors.New("the request or its answer could not be stored")

// storeEnd stores an end. Where another is there already, it is that one with its text.
func (f *Front) storeEnd(id string, x *end) (_ *end, text []byte, err error) {
	data, err := json.Marshal(x)
	if err != nil {
		return nil, nil, err
	}
	for try := range tries {
		if try > 0 {
			time.Sleep(time.Duration(try) * 100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err = f.opt.Store.Finish(ctx, id, data)
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

// final says that asking the store again gives the same answer.
func final(err error) bool {
	return errors.Is(err, durable.ErrClosed) || errors.Is(err, durable.ErrNotFound) || errors.Is(err, durable.ErrMoved)
}

// news is what has become of a request since a reader looked last.
type news struct {
	text    string
	at      int // bytes of text so far
	tokens  int
	end     *end
	changed <-chan struct{}
}

// look tells what is there beyond the first at bytes of text.
func (e *entry) look(at int) news {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil && e.end == nil {
		e.changed = make(chan struct{})
	}
	return news{text: string(e.text[min(at, len(e.text)):]), at: len(e.text), tokens: e.tokens, end: e.end, changed: e.changed}
}

// wait returns when the request has ended, or ctx.
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

// restore takes text that the store has and that did not come here; more says that
// there was some.
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
