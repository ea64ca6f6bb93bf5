package text

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
)

// writing is a run of a request that a server answers.
type writing struct {
	*text
	number uint64               // of the run
	now    func() time.Duration // on the clock of the text
	heard  func()               // a piece came
	told   func(tokens int)     // the answer has so many tokens
}

// streamEnd is how a run ended.
type streamEnd struct {
	err    error
	result completions.Result
	tokens int // of the answer so far
	added  bool
}

// errDiverged: an answer that was written again differs from what was sent before.
var errDiverged = errors.New("the server wrote another text than before")

// errUnreached: a server has not been seen since this process began.
var errUnreached = &llm.Error{Kind: llm.ErrGone, Text: "it has not answered yet"}

// errEnough: a server writes more than it was asked for, or than an answer may have.
var errEnough = errors.New("the answer is as long as it may be")

// mostText is the longest answer, in bytes. Servers count tokens in their own ways: an
// answer may have overrun more than it was asked to have.
const (
	mostText  = 8 << 20
	Overrun   = 64
	tokenText = 1 << 10 // no token is longer
)

// mostBytes is the longest answer of so many tokens (0: no bound), of which each takes
// each bytes, and all together most.
func mostBytes(tokens, each, most int) int {
	if tokens == 0 || tokens > most/each {
		return most
	}
	return min(most, (tokens+Overrun)*each)
}

func (r *reach) write(ctx context.Context, w *writing) *streamEnd {
	partial, tokens, ok := w.SoFar(w.number)
	end := &streamEnd{tokens: tokens}
	if !ok {
		end.err = errLeft
		return end
	}
	if w.request.Events {
		r.writeEvents(ctx, w, partial, end)
		return end
	}
	if most := w.request.MaxTokens; most > 0 && tokens >= most { // all but its end was there
		end.result = completions.Result{Finish: "length", PromptTokens: w.prompt, OutputTokens: tokens}
		return end
	}
	answer, err := r.complete(ctx, w, partial, end)
	if end.err = err; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			end.err = cause
		}
		return end
	}
	end.result = completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: end.tokens}
	if answer.Told { // what was continued counted as prompt
		end.result.PromptTokens = max(0, answer.Usage.PromptTokens-tokens)
		end.result.OutputTokens = tokens + answer.Usage.OutputTokens
	}
	return end
}

// complete asks for what follows the partial answer.
func (r *reach) complete(ctx context.Context, w *writing, partial string, end *streamEnd) (*llm.Answer, error) {
	server, use, err := r.Use(w.request.Model)
	if err != nil {
		return nil, err
	}
	ask := llm.Request{Model: use.Model, Chat: w.request.Chat, Body: w.request.Body, Fields: use.Fields}
	if most := w.request.MaxTokens; most > 0 {
		ask.MaxTokens = most - end.tokens
	}
	next, err := server.Resumed(ctx, ask, partial)
	again := ""
	if errors.Is(err, llm.ErrNotResumed) {
		// It is written anew, and what was sent before has to come again.
		again = partial
		ask.MaxTokens = w.request.MaxTokens
		next, err = &ask, nil
	}
	if err != nil {
		return nil, err
	}
	counted, written, longest := 0, 0, mostBytes(w.request.MaxTokens, tokenText, mostText)
	answer, err := server.Complete(ctx, next, func(p llm.Token) error {
		w.heard()
		piece, fresh := p.Text, min(p.Count-counted, len(p.Text)+Overrun)
		counted = p.Count
		if again != "" {
			n := min(len(again), len(piece))
			if !strings.HasPrefix(again, piece[:n]) {
				return fmt.Errorf("%w: %w", llm.ErrNotResumed, errDiverged)
			}
			if again, piece = again[n:], piece[n:]; piece == "" {
				return nil
			}
		}
		if most := w.request.MaxTokens; most > 0 && end.tokens+fresh > most+Overrun || len(partial)+written+len(piece) > longest {
			return errEnough
		}
		written += len(piece)
		all, ok := w.add(w.number, piece, fresh, w.now())
		if !ok {
			return errLeft
		}
		end.tokens, end.added = all, true
		w.told(all)
		return nil
	})
	if errors.Is(err, errEnough) {
		return &llm.Answer{Finish: "length", Usage: answer.Usage}, nil
	}
	return answer, err
}
