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
type requestText struct {
	queues  *Queues
	request *completions.Request
	output  completions.Output

	CurrentRun atomic.Uint64 // number of the run that may add text
	cancel     atomic.Pointer[context.CancelCauseFunc]
	answered   atomic.Bool // there is a result; no more text is added

	mu           sync.Mutex // also held while output is called
	partial      []byte
	tokens       int           // number of tokens of partial
	firstRunAt   time.Duration // start of the first run, on the core's clock; 0 if there was none
	firstTokenAt time.Duration // when the first token came to this process, on the core's clock; 0 if none has
	lastTokenAt  time.Duration // when the last token came
	newTokens    int           // tokens since firstTokenAt
	promptTokens int           // as a server reported, or estimated
	result       completions.Result
	runEndedAt   time.Time // end of the last run, on the wall clock; zero if there was none
	failedRuns   int       // consecutive runs that added no token; belongs to the core's turn
}

// Causes that end runs.
var (
	errEvicted     = errors.New("evicted")
	errTakenOver   = errors.New("another run has the request")
	errNobodyWaits = errors.New("nobody waits for the answer")
)

// JobText returns the request and text of a job of a plan of queues.
func JobText(j *turn.Job) *requestText { return j.Text.(*requestText) }

// newRequestText returns a request with the text that was written before.
func newRequestText(q *Queues, r *completions.Request, output completions.Output) *requestText {
	return &requestText{queues: q, request: r, output: output, partial: []byte(r.Partial), tokens: r.PartialTokens, promptTokens: r.PromptTokens}
}

// TokenLengths returns the tokens of the prompt, and the most tokens that all choices together may have, for the policy.
func (t *requestText) TokenLengths() (prompt, limit int32) {
	return int32(max(t.request.PromptTokens, 1)), int32(t.request.MaxTokens * max(t.request.Choices, 1))
}

// waitingSince returns since when the request waits for a run: its arrival, or the end of the run before.
func (t *requestText) waitingSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runEndedAt.IsZero() {
		return t.request.Accepted
	}
	return t.runEndedAt
}

// waitAgain notes that a run has ended.
func (t *requestText) waitAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runEndedAt = time.Now()
}

// startRun returns the number of the next run. Earlier runs cannot add text any more.
func (t *requestText) startRun() uint64 { return t.CurrentRun.Add(1) }

// revokeRun ends the current run. It cannot add text any more.
func (t *requestText) revokeRun(cause error) {
	t.CurrentRun.Add(1)
	t.cancelRun(cause)
}

// cancelRun ends the current run. The text that it gets until its end counts.
func (t *requestText) cancelRun(cause error) {
	if cancel := t.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// PartialOf returns the text that a run continues, and its tokens. ok is false if the run is no longer the current
// one.
func (t *requestText) PartialOf(run uint64) (partial string, tokens int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.partial), t.tokens, t.CurrentRun.Load() == run && !t.answered.Load()
}

// addPiece adds a piece of the answer that run number `run` has written, with its tokens, at time now, and passes it to
// the reader of the output. It returns the tokens of the answer so far. If the run is no longer the request's current
// one (it was evicted or lost), or the request is answered, it changes nothing and returns false.
func (t *requestText) addPiece(run uint64, piece string, tokens int, now time.Duration) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.CurrentRun.Load() != run || t.answered.Load() {
		return t.tokens, false
	}
	t.partial = append(t.partial, piece...)
	t.tokens += tokens
	t.newTokens += tokens
	if t.lastTokenAt = now; t.firstTokenAt == 0 && tokens > 0 {
		t.firstTokenAt = now
	}
	t.output.Text(piece, tokens)
	return t.tokens, true
}

// storePartial stores the text that was written so far, so that another run can continue it. Once the request is
// answered, it does nothing.
func (t *requestText) storePartial() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered.Load() {
		return nil
	}
	return t.output.Partial()
}

// JobAnswered is called in the core's loop when the job of a request was answered. It gives the front end the
// result, or the error for the client, and does not wait for the store. A request that was refused because its core
// drains is not finished: the next plan continues it, or it stays in the store.
func (t *requestText) JobAnswered(j *turn.Job) {
	t.answered.Store(true)
	r := completions.Result{}
	switch {
	case j.Outcome == turn.OutcomeServed:
		r = t.result
	case j.Outcome == turn.OutcomeFailed:
		var serverErr *completions.ServerError
		if r.Err = j.Failure; !errors.As(j.Failure, &serverErr) {
			r.Err = &completions.ServerError{Status: http.StatusBadGateway, Type: "server_error", Msg: fmt.Sprintf("model %s: %v", j.Model.Label, j.Failure)}
		}
	default:
		r.Err = &completions.Refusal{Reason: j.Reason.String(), Msg: refusalMessage(j), RetryAfter: max(j.RetryAfter, 0)}
	}
	// Cancel the run after answered is set, so that it adds nothing more.
	t.cancelRun(errNobodyWaits)
	t.queues.finishRequest(t, j, r, j.Reason == policy.ReasonDraining && j.Outcome == turn.OutcomeDropped)
}

// refusalMessage returns the reason why a request was given up, for clients.
func refusalMessage(j *turn.Job) string {
	if err := j.ClientError(); err != nil {
		return err.Error()
	}
	return "the request was given up"
}
