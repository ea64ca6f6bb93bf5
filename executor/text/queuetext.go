package text

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// requestText is a request and the text that was written so far. One run at a time adds to it. Every run has a
// number: if another instance gets the request, CurrentRun changes, and what the earlier run still receives is
// ignored.
type text struct {
	queues  *Queues
	request *completions.Request
	out     completions.Output

	Run    atomic.Uint64 // number of the run that may add text
	cancel atomic.Pointer[context.CancelCauseFunc]
	closed atomic.Bool // there is a result; no more text is added

	mu       sync.Mutex // also held while output is called
	partial  []byte
	tokens   int           // number of tokens of partial
	began    time.Duration // start of the first run, on the core's clock; 0 if there was none
	first    time.Duration // when the first token came to this process, on the core's clock; 0 if none has
	last     time.Duration // when the last token came
	fresh    int           // tokens since firstTokenAt
	prompt   int           // as a server reported, or estimated
	result   completions.Result
	attempts int // consecutive runs that added no token; belongs to the core's turn
}

// Causes that end runs.
var (
	errEvicted = errors.New("evicted")
	errLeft    = errors.New("another run has the request")
	errOver    = errors.New("nobody waits for the answer")
)

// JobText returns the request and text of a job of a plan of queues.
func JobText(j *turn.Job) *text { return j.Text.(*text) }

// newRequestText returns a request with the text that was written before.
func newText(q *Queues, r *completions.Request, out completions.Output) *text {
	return &text{queues: q, request: r, out: out, partial: []byte(r.Partial), tokens: r.PartialTokens, prompt: r.PromptTokens}
}

// Lengths returns the tokens of the prompt, and the most tokens that all choices together may have, for the policy.
func (t *text) Lengths() (prompt, limit int32) {
	return int32(max(t.request.PromptTokens, 1)), int32(t.request.MaxTokens * max(t.request.Choices, 1))
}

// startRun returns the number of the next run. Earlier runs cannot add text any more.
func (t *text) begin() uint64 { return t.Run.Add(1) }

// revokeRun ends the current run. It cannot add text any more.
func (t *text) stop(cause error) {
	t.Run.Add(1)
	t.end(cause)
}

// cancelRun ends the current run. The text that it gets until its end counts.
func (t *text) end(cause error) {
	if cancel := t.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// PartialOf returns the text that a run continues, and its tokens. ok is false if the run is no longer the current
// one.
func (t *text) SoFar(run uint64) (partial string, tokens int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.partial), t.tokens, t.Run.Load() == run && !t.closed.Load()
}

// addPiece adds a piece of the answer. It returns how many tokens there are, and false if the run is no longer the
// current one.
func (t *text) add(run uint64, piece string, tokens int, now time.Duration) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Run.Load() != run || t.closed.Load() {
		return t.tokens, false
	}
	t.partial = append(t.partial, piece...)
	t.tokens += tokens
	t.fresh += tokens
	if t.last = now; t.first == 0 && tokens > 0 {
		t.first = now
	}
	t.out.Text(piece, tokens)
	return t.tokens, true
}

// storePartial stores the text that was written so far.
func (t *text) keep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return nil
	}
	return t.out.Partial()
}

// Over ends the request of a job. It is called on the core's turn and does not wait for the store.
func (t *text) Over(j *turn.Job) {
	t.closed.Store(true)
	r := completions.Result{}
	switch {
	case j.Outcome == turn.Served:
		r = t.result
	case j.Outcome == turn.Failed:
		var said *completions.ServerError
		if r.Err = j.Failure; !errors.As(j.Failure, &said) {
			r.Err = &completions.ServerError{Status: http.StatusBadGateway, Type: "server_error", Msg: fmt.Sprintf("model %s: %v", j.Model.Label, j.Failure)}
		}
	default:
		r.Err = &completions.Refusal{Reason: j.Reason.String(), Msg: refusal(j), RetryAfter: max(j.RetryAfter, 0)}
	}
	// Cancel the run after answered is set, so that it adds nothing more.
	t.end(errOver)
	t.queues.finish(t, j, r, j.Reason == policy.ReasonDraining && j.Outcome == turn.Dropped)
}

// refusalMessage returns the reason why a request was given up, for clients.
func refusal(j *turn.Job) string {
	if err := j.Problem(); err != nil {
		return err.Error()
	}
	return "the request was given up"
}
