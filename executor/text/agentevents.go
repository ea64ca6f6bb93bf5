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
	mostEvents = 32 << 20
	tokenEvent = 16 << 10
)

// eventRun is a run of an answer that is more than a text.
type eventRun struct {
	*writing
	run     *deltas.Run
	end     *streamEnd
	counted int // tokens that the server has reported
	written int // bytes of the log that this run has added
}

// writeEventAnswer has an answer written that is more than a text. The server writes all of it in each run. What a
// client may have seen must come again; what none has seen is withdrawn.
func (r *reach) writeEvents(ctx context.Context, w *writing, partial string, end *streamEnd) {
	server, use, err := r.Use(w.request.Model)
	if end.err = err; err != nil {
		return
	}
	x := &eventRun{writing: w, run: deltas.NewRun(""), end: end, counted: end.tokens}

	// Prepare the log: end a line that was cut off when its process died, and withdraw what no client has seen.
	begin := ""
	if deltas.Complete(partial) < len(partial) {
		begin = "\n"
	}
	if w.request.Shown {
		x.run = deltas.NewRun(partial)
	} else if partial != "" {
		begin += deltas.Anew
	}
	if begin != "" {
		if end.err = x.line([]byte(begin), 0); end.err != nil {
			return
		}
	}

	// If the whole answer was written before, only its end is missing.
	if w.request.Shown && x.run.Finished(max(w.request.Choices, 1)) {
		end.result = completions.Result{Finish: "stop", PromptTokens: w.prompt, OutputTokens: end.tokens}
		return
	}

	// Ask the server, and add its events to the log.
	answer, err := server.Complete(ctx, &llm.Request{Model: use.Model, Chat: w.request.Chat, Body: w.request.Body, Fields: use.Fields, Events: true}, x.take)
	if errors.Is(err, errEnough) {
		answer.Finish, answer.Told, err = "length", false, nil
	} else if err == nil {
		err = x.run.Behind()
	}

	// Add the event that ends the choices, if the server has not sent one.
	if err == nil {
		if last := x.run.Ending(answer.Finish, w.request.Chat); last != nil {
			err = x.line(append(last, '\n'), 0)
		}
	}

	// Find the cause of the error.
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = cause
	case errors.Is(err, deltas.ErrDiffers):
		err = fmt.Errorf("%w: %w", llm.ErrNotResumed, err)
	}
	end.err = err
	end.result = completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: end.tokens}
	if answer.Told {
		end.result.OutputTokens = answer.Usage.OutputTokens
	}
}

// addEvent adds an event of the server to the log, as far as it is new.
func (x *eventRun) take(p llm.Token) error {
	x.heard()
	fresh := max(p.Count-x.counted, 0)
	x.counted += fresh
	choices, err := x.run.Fresh(p.Choices)
	var line []byte
	if err == nil && choices != nil {
		line, err = deltas.Line(choices)
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
	most := x.request.MaxTokens * max(x.request.Choices, 1)
	if most > 0 && x.end.tokens+fresh > most+Overrun || x.written+len(line) > mostBytes(most, tokenEvent, mostEvents) {
		return errEnough
	}
	return x.line(line, fresh)
}

// addLine adds a line with so many tokens to the log. A line without tokens is no progress of the answer.
func (x *eventRun) line(line []byte, tokens int) error {
	x.written += len(line)
	all, ok := x.add(x.number, string(line), tokens, x.now())
	if !ok {
		return errLeft
	}
	if tokens > 0 {
		x.end.tokens, x.end.added = all, true
		x.told(all)
	}
	return nil
}
