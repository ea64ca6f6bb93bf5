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
type answerRun struct {
	text      *requestText
	runNumber uint64               // of the run
	clock     func() time.Duration // clock of the text's times
	onPiece   func()               // called at each piece
	onTokens  func(tokens int)     // called with the number of tokens that the answer has so far
}

// addPiece adds a piece of an answer to the request's text, with the number of tokens in the piece, and returns the
// number of tokens of the whole text. If another run (an attempt to have the request answered) is the current one by
// now, it adds nothing and returns errTakenOver.
func (w *answerRun) addPiece(piece string, tokens int) (totalTokens int, err error) {
	totalTokens, ok := w.text.addPiece(w.runNumber, piece, tokens, w.clock())
	if !ok {
		return 0, errTakenOver
	}
	return totalTokens, nil
}

// runResult is how a run ended.
type runResult struct {
	err         error
	result      completions.Result
	tokens      int  // tokens of the whole answer so far
	addedTokens bool // the run has added tokens
}

// errDiverged is returned when an answer that was written again differs from what was sent before.
var errDiverged = errors.New("the server wrote another text than before")

// errServerUnseen is returned when a server has not answered since this process began.
var errServerUnseen = &llm.Error{Kind: llm.ErrGone, Text: "it has not answered yet"}

// errLengthReached is returned when a server writes more than it was asked for, or more than an answer may have.
var errLengthReached = errors.New("the answer is as long as it may be")

// maxTextBytes bounds an answer. MaxOverrun is the number of tokens by which an answer may exceed what was asked for,
// because servers count tokens differently. maxTokenBytes bounds a token.
const (
	maxTextBytes  = 8 << 20
	MaxOverrun    = 64
	maxTokenBytes = 1 << 10
)

// maxAnswerBytes returns how many bytes an answer of at most `tokens` tokens may have: bytesPerToken for each token and
// for MaxOverrun more, at most maxBytes. If tokens is 0, the number of tokens has no limit, and it returns maxBytes.
// Comparing before multiplying avoids an overflow.
func maxAnswerBytes(tokens, bytesPerToken, maxBytes int) int {
	if tokens == 0 || tokens > maxBytes/bytesPerToken {
		return maxBytes
	}
	return min(maxBytes, (tokens+MaxOverrun)*bytesPerToken)
}

// writeAnswer has the rest of a request's answer written by a server of this process, and adds it to the text of the
// request, piece by piece. It returns when the answer is complete or has failed, or when ctx has ended, with the cause
// of that as the error. If another run has taken the request over, it returns errTakenOver and changes nothing.
func (r *localServers) writeAnswer(ctx context.Context, w *answerRun) *runResult {
	request := w.text.request
	parent, end := r.tracer.BeginAnswer(request.Parent, request.Model, r.name, w.text.waitingSince())
	result := r.writeRest(llm.WithTrace(ctx, parent.Traceparent, parent.Tracestate), w)
	end(result.err)
	w.text.waitAgain()
	return result
}

// writeRest has the rest of an answer written, see writeAnswer.
func (r *localServers) writeRest(ctx context.Context, w *answerRun) *runResult {
	partial, tokens, ok := w.text.PartialOf(w.runNumber)
	result := &runResult{tokens: tokens}
	if !ok {
		result.err = errTakenOver
		return result
	}

	// Answers that are more than a text have a method of their own.
	if w.text.request.Events {
		r.writeEventAnswer(ctx, w, partial, result)
		return result
	}

	// If all of the answer was written before, only its end is missing.
	if maxTokens := w.text.request.MaxTokens; maxTokens > 0 && tokens >= maxTokens {
		result.result = completions.Result{Finish: "length", PromptTokens: w.text.promptTokens, OutputTokens: tokens}
		return result
	}

	// Ask the server for the rest.
	answer, err := r.completeText(ctx, w, partial, result)
	if result.err = err; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			result.err = cause
		}
		return result
	}

	// Count the tokens. Servers count the text that was continued as a part of the prompt.
	result.result = completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: result.tokens}
	if answer.HasUsage {
		result.result.PromptTokens = max(0, answer.Usage.PromptTokens-tokens)
		result.result.OutputTokens = tokens + answer.Usage.OutputTokens
	}
	return result
}

// completeText asks the server for the text that follows the partial answer of earlier runs, and adds it piece by
// piece. A server that cannot continue a text writes it again, which must then be the same. An answer that becomes
// too long ends as one that has reached its length.
func (r *localServers) completeText(ctx context.Context, w *answerRun, partial string, result *runResult) (*llm.Answer, error) {
	server, use, err := r.ServerAndUse(w.text.request.Model)
	if err != nil {
		return nil, err
	}
	request := llm.Request{Model: use.Model, Chat: w.text.request.Chat, Body: w.text.request.Body, Fields: use.Fields}
	if maxTokens := w.text.request.MaxTokens; maxTokens > 0 {
		request.MaxTokens = maxTokens - result.tokens
	}

	// Let the server continue the partial answer. If it cannot, it writes the answer again.
	continued, err := server.ResumeRequest(ctx, request, partial)
	expectedText := ""
	if errors.Is(err, llm.ErrNotResumed) {
		// The text that was sent before must come again.
		expectedText = partial
		request.MaxTokens = w.text.request.MaxTokens
		continued, err = &request, nil
	}
	if err != nil {
		return nil, err
	}

	// Add the pieces.
	x := &plainRun{run: w, result: result, expectedText: expectedText, textBytes: len(partial)}
	answer, err := server.Complete(ctx, continued, x.addPiece)
	if errors.Is(err, errLengthReached) {
		return &llm.Answer{Finish: "length", Usage: answer.Usage}, nil
	}
	return answer, err
}

// plainRun is a run of an answer that is a text.
type plainRun struct {
	run           *answerRun
	result        *runResult
	expectedText  string // text that was sent before and must come again
	countedTokens int    // tokens that the server has reported
	textBytes     int    // bytes of the answer so far
}

// addPiece is called for each piece that the server sends. It adds the piece to the text, except for the part that
// repeats expectedText (what an earlier run wrote). It returns an error, which ends the answer, if the text differs
// from what was sent before or becomes too long.
func (x *plainRun) addPiece(p llm.Token) error {
	x.run.onPiece()
	// A piece has no more tokens than bytes, up to a small surplus, whatever the server counts.
	piece, newTokens := p.Text, min(p.Count-x.countedTokens, len(p.Text)+MaxOverrun)
	x.countedTokens = p.Count

	// Compare with the expected text first.
	if x.expectedText != "" {
		n := min(len(x.expectedText), len(piece))
		if !strings.HasPrefix(x.expectedText, piece[:n]) {
			return fmt.Errorf("%w: %w", llm.ErrNotResumed, errDiverged)
		}
		if x.expectedText, piece = x.expectedText[n:], piece[n:]; piece == "" {
			return nil
		}
	}

	// Stop a server that writes too much.
	maxTokens := x.run.text.request.MaxTokens
	x.textBytes += len(piece)
	if maxTokens > 0 && x.result.tokens+newTokens > maxTokens+MaxOverrun || x.textBytes > maxAnswerBytes(maxTokens, maxTokenBytes, maxTextBytes) {
		return errLengthReached
	}
	totalTokens, err := x.run.addPiece(piece, newTokens)
	if err != nil {
		return err
	}
	x.result.tokens, x.result.addedTokens = totalTokens, true
	x.run.onTokens(totalTokens)
	return nil
}
