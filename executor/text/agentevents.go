package text

import (
	"context"
	"errors"
	"fmt"

	"inferplan/engine/llm"
	"inferplan/engine/llm/deltas"
	"inferplan/executor/completions"
)

// maxEventBytes bounds the log of an answer that is more than a text. maxTokenEventBytes bounds the event of one
// token, with its twenty likeliest alternatives.
const (
	maxEventBytes      = 32 << 20
	maxTokenEventBytes = 16 << 10
)

// eventRun is a run of an answer that is more than a text.
type eventRun struct {
	run           *answerRun
	deltaRun      *deltas.AnswerRun
	result        *runResult
	countedTokens int // tokens that the server has reported
	writtenBytes  int // bytes of the log that this run has added
}

// newEventRun returns a run that writes an answer as a log of events (an answer that is more than one text, such as
// several choices). partial is the log of earlier runs. If its last line was cut off when a process died, the line is
// ended. If a client may have seen the log, the server must send its events again, and they are compared; if none has, a
// restart line withdraws them.
func newEventRun(w *answerRun, partial string, result *runResult) (*eventRun, error) {
	x := &eventRun{run: w, deltaRun: deltas.NewAnswerRun(""), result: result, countedTokens: result.tokens}
	prefix := ""
	if deltas.CompleteBytes(partial) < len(partial) {
		prefix = "\n"
	}
	if w.text.request.PartialShown {
		x.deltaRun = deltas.NewAnswerRun(partial)
	} else if partial != "" {
		prefix += deltas.RestartLine
	}
	if prefix == "" {
		return x, nil
	}
	return x, x.addLine([]byte(prefix), 0)
}

// writeEventAnswer has a server write an answer that is a log of events, and sets result. The server writes all of it in
// each run: events that a client may have seen must come again and are left out; events that none has seen are
// withdrawn. partial is the log of earlier runs.
func (r *localServers) writeEventAnswer(ctx context.Context, w *answerRun, partial string, result *runResult) {
	request := w.text.request
	server, use, err := r.ServerAndUse(request.Model)
	if result.err = err; err != nil {
		return
	}
	x, err := newEventRun(w, partial, result)
	if result.err = err; err != nil {
		return
	}

	// If the whole answer was written before, only its end is missing.
	if request.PartialShown && x.deltaRun.HasFinished(max(request.Choices, 1)) {
		result.result = completions.Result{Finish: "stop", PromptTokens: w.text.promptTokens, OutputTokens: result.tokens}
		return
	}

	// Ask the server, and add its events to the log.
	answer, err := server.Complete(ctx, &llm.Request{Model: use.Model, Chat: request.Chat, Body: request.Body, Fields: use.Fields, Events: true}, x.addEvent)
	if errors.Is(err, errLengthReached) {
		answer.Finish, answer.HasUsage, err = "length", false, nil
	} else if err == nil {
		err = x.deltaRun.CheckComplete()
	}

	// Add the event that ends the choices, if the server has not sent one.
	if err == nil {
		if ending := x.deltaRun.EndingEvent(answer.Finish, request.Chat); ending != nil {
			err = x.addLine(append(ending, '\n'), 0)
		}
	}

	// Find the cause of the error.
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = cause
	case errors.Is(err, deltas.ErrDiffers):
		err = fmt.Errorf("%w: %w", llm.ErrNotResumed, err)
	}
	result.err = err
	result.result = completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: result.tokens}
	if answer.HasUsage {
		result.result.OutputTokens = answer.Usage.OutputTokens
	}
}

// addEvent adds an event of the server to the log, as far as it is new. It is called for each event that the server
// sends. What an earlier run has sent already is left out. It returns an error, which ends the answer, if the
// events differ from those, or are more than the request allows.
func (x *eventRun) addEvent(token llm.Token) error {
	x.run.onPiece()
	newTokens := max(token.Count-x.countedTokens, 0)
	x.countedTokens += newTokens
	choices, err := x.deltaRun.UnsentPart(token.Choices)
	var line []byte
	if err == nil && choices != nil {
		line, err = deltas.LogLine(choices)
	}
	switch {
	case errors.Is(err, deltas.ErrDiffers):
		return err
	case err != nil:
		return &llm.Error{Kind: llm.ErrBroken, Text: err.Error()}
	case choices == nil:
		return nil
	}

	// Stop a server that writes too much.
	request := x.run.text.request
	maxTokens := request.MaxTokens * max(request.Choices, 1)
	if maxTokens > 0 && x.result.tokens+newTokens > maxTokens+MaxOverrun || x.writtenBytes+len(line) > maxAnswerBytes(maxTokens, maxTokenEventBytes, maxEventBytes) {
		return errLengthReached
	}
	return x.addLine(line, newTokens)
}

// addLine adds a line to the log of the answer, with the number of tokens that it has. A line without tokens (a
// restart, an ending) is no progress of the answer. It returns errTakenOver if another run has the request now.
func (x *eventRun) addLine(line []byte, tokens int) error {
	x.writtenBytes += len(line)
	totalTokens, err := x.run.addPiece(string(line), tokens)
	if err != nil {
		return err
	}
	if tokens > 0 {
		x.result.tokens, x.result.addedTokens = totalTokens, true
		x.run.onTokens(totalTokens)
	}
	return nil
}
