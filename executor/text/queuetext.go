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

// text is what a job asks of a language model, with what was written so far. One run
// at a time adds to it. A run that lost the right to, because another instance has
// the request, is told apart by its number: what it still gets is not the answer's.
type text struct {
	queues  *Queues
	request *completions.Request
	out     completions.Output

	Run    atomic.Uint64 // that adds
	cancel atomic.Pointer[context.CancelCauseFunc]
	closed atomic.Bool // there is an answer: nothing is added any more

	mu       sync.Mutex // of those who call out
	partial  []byte
	tokens   int           // of partial
	began    time.Duration // of the first run; 0: none so far
	first    time.Duration // when text came first here, on the core's clock; 0: none
	last     time.Duration
	fresh    int // tokens since then
	prompt   int // tokens of the prompt, as a server said
	result   completions.Result
	attempts int // runs in a row that added nothing; of the core's turn
}

// Causes for which runs end.
var (
	errEvicted = errors.New("evicted")
	errLeft    = errors.New("another run has the request")
	errOver    = errors.New("nobody waits for the answer")
)

// JobText holds the prompt and options of a job of a plan of queues.
func JobText(j *turn.Job) *text { return j.Text.(*text) }

func newText(q *Queues, r *completions.Request, out completions.Output) *text {
	return &text{queues: q, request: r, out: out, partial: []byte(r.Partial), tokens: r.PartialTokens, prompt: r.PromptTokens}
}

// Lengths are the tokens of the prompt and the most to write, in all choices, for the
// policy.
func (t *text) Lengths() (prompt, limit int32) {
	return int32(max(t.request.PromptTokens, 1)), int32(t.request.MaxTokens * max(t.request.Choices, 1))
}

// begin gives the next run its number. Runs before it add nothing any more.
func (t *text) begin() uint64 { return t.Run.Add(1) }

// stop ends the run under way and takes its right to add.
func (t *text) stop(cause error) {
	t.Run.Add(1)
	t.end(cause)
}

// end has the run under way end. What it has got until then counts.
func (t *text) end(cause error) {
	if cancel := t.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// SoFar is what a run continues; false: it has lost the right to.
func (t *text) SoFar(run uint64) (partial string, tokens int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.partial), t.tokens, t.Run.Load() == run && !t.closed.Load()
}

// add takes a piece of the answer. It tells how many tokens there are, and false
// where the run has lost the right to add.
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

// keep has what was written so far stored.
func (t *text) keep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return nil
	}
	return t.out.Partial()
}

// Over ends the request of a job. The core's turn calls it; what waits for the
// store, waits elsewhere.
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
	// Told after closed: a run that is under way adds nothing once it is known.
	t.end(errOver)
	t.queues.finish(t, j, r, j.Reason == policy.ReasonDraining && j.Outcome == turn.Dropped)
}

// refusal says why a request was given up.
func refusal(j *turn.Job) string {
	if err := j.Problem(); err != nil {
		return err.Error()
	}
	return "the request was given up"
}
