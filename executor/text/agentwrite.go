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

// answerRun is a run of a request: it adds the answer of a server to the text.
type writing struct {
	*text
	number uint64               // of the run
	now    func() time.Duration // clock of the text's times
	heard  func()               // called at each piece
	told   func(tokens int)     // called with the number of tokens that the answer has so far
}

// runResult is how a run ended.
type streamEnd struct {
	err    error
	result completions.Result
	tokens int  // tokens of the whole answer so far
	added  bool // the run has added tokens
}

// errDiverged is returned when an answer that was written again differs from what was sent before.
var errDiverged = errors.New("the server wrote another text than before")

// errServerUnseen is returned when a server has not answered since this process began.
var errUnreached = &llm.Error{Kind: llm.ErrGone, Text: "it has not answered yet"}

// errLengthReached is returned when a server writes more than it was asked for, or more than an answer may have.
var errEnough = errors.New("the answer is as long as it may be")

// maxTextBytes bounds an answer. MaxOverrun is the number of tokens by which an answer may exceed what was asked for,
// because servers count tokens differently. maxTokenBytes bounds a token.
const (
	mostText  = 8 << 20
	Overrun   = 64
	tokenText = 1 << 10
)

// maxAnswerBytes returns the longest answer with so many tokens (0: unbounded), at bytesPerToken each. It is at most
// maxBytes.
func mostBytes(tokens, each, most int) int {
	if tokens == 0 || tokens > most/each {
		return most
	}
	return min(most, (tokens+Overrun)*each)
}

// writeAnswer implements serverControl.
func (r *reach) write(ctx context.Context, w *writing) *streamEnd {
	partial, tokens, ok := w.SoFar(w.number)
	end := &streamEnd{tokens: tokens}
	if !ok {
		end.err = errLeft
		return end
	}

	// Answers that are more than a text have a method of their own.
	if w.request.Events {
		r.writeEvents(ctx, w, partial, end)
		return end
	}

	// If all of the answer was written before, only its end is missing.
	if most := w.request.MaxTokens; most > 0 && tokens >= most {
		end.result = completions.Result{Finish: "length", PromptTokens: w.prompt, OutputTokens: tokens}
		return end
	}

	// Ask the server for the rest.
	answer, err := r.complete(ctx, w, partial, end)
	if end.err = err; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			end.err = cause
		}
		return end
	}

	// Count the tokens. Servers count the text that was continued as a part of the prompt.
	end.result = completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: end.tokens}
	if answer.Told {
		end.result.PromptTokens = max(0, answer.Usage.PromptTokens-tokens)
		end.result.OutputTokens = tokens + answer.Usage.OutputTokens
	}
	return end
}

// completeText asks the server for the text that follows the partial answer, and adds it piece by piece.
func (r *reach) complete(ctx context.Context, w *writing, partial string, end *streamEnd) (*llm.Answer, error) {
	server, use, err := r.Use(w.request.Model)
	if err != nil {
		return nil, err
	}
	ask := llm.Request{Model: use.Model, Chat: w.request.Chat, Body: w.request.Body, Fields: use.Fields}
	if most := w.request.MaxTokens; most > 0 {
		ask.MaxTokens = most - end.tokens
	}

	// Let the server continue the partial answer. If it cannot, it writes the answer again.
	next, err := server.Resumed(ctx, ask, partial)
	again := ""
	if errors.Is(err, llm.ErrNotResumed) {
		// The text that was sent before must come again.
		again = partial
		ask.MaxTokens = w.request.MaxTokens
		next, err = &ask, nil
	}
	if err != nil {
		return nil, err
	}

	// Add the pieces.
	counted, written, longest := 0, 0, mostBytes(w.request.MaxTokens, tokenText, mostText)
	answer, err := server.Complete(ctx, next, func(p llm.Token) error {
		w.heard()
		piece, fresh := p.Text, min(p.Count-counted, len(p.Text)+Overrun)
		counted = p.Count

		// Compare with the expected text first.
		if again != "" {
			n := min(len(again), len(piece))
			if !strings.HasPrefix(again, piece[:n]) {
				return fmt.Errorf("%w: %w", llm.ErrNotResumed, errDiverged)
			}
			if again, piece = again[n:], piece[n:]; piece == "" {
				return nil
			}
		}

		// Stop a server that writes too much.
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
