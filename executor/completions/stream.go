package completions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/engine/llm/deltas"
	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// eventStream is an answer that is sent as server-sent events.
type eventStream struct{ *httplimit.Events }

// firstEventTimeout is how long the head of the answer waits for the first event, so that an early failure can have
// its own status. keepAliveInterval is the time between comments that show that the stream lives.
const (
	firstEventTimeout = 5 * time.Second
	keepAliveInterval = 15 * time.Second
)

// streamAnswer answers with a stream of events, sent as text comes, until the request has ended. wantsUsage adds
// the token counts at the end. It returns errClientGone if the client leaves. An error before the first event is a
// plain HTTP answer.
func (f *apiHandlers) streamAnswer(req *apiRequest, e *trackedRequest, wantsUsage bool) error {
	s := &eventStream{httplimit.NewEvents(req.w, f.front.opt.StallTimeout)}
	var err error

	// Send what has come since the last event, until the request has ended or sending fails.
	for sentBytes, isFirst := 0, true; err == nil; {
		update := e.snapshot(sentBytes)

		// Only whole lines of a log of events can be sent.
		if e.record.Events {
			update.text = update.text[:deltas.CompleteBytes(update.text)]
			update.textBytes = sentBytes + len(update.text)
		}
		if update.result != nil || update.textBytes > sentBytes {
			req.trace.Answered(time.Now(), tracing.Progress{})
		}
		if update.result != nil && update.result.Error != nil {
			req.trace.Fail(update.result.Error.Message)
		}
		switch {
		case update.result != nil && update.result.Error != nil && !s.HasBegun():
			writeError(req.w, update.result.Error)
			return nil
		case update.result != nil:
			err = s.sendEnd(e, update, isFirst, wantsUsage)
			if err == nil {
				return nil
			}
		case update.textBytes > sentBytes && e.record.showsPartialText():
			err = s.sendText(e, update.text, isFirst, wantsUsage)
			sentBytes, isFirst = update.textBytes, false
		default:
			err = s.waitForChange(req.r.Context(), update.nextChange, f.front.closeSignal)
		}
	}

	// The client is gone, or the server leaves: in that case the client is told.
	if !errors.Is(err, errDraining) {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	if s.HasBegun() {
		_ = s.Send(errorBody{toClientError(err).toAPIError()})
		return nil
	}
	return err
}

// errClientGone is returned when the client has disconnected or does not read. No error can be sent to it.
var errClientGone = errors.New("the client is gone")

// clientGoneError converts the error of a request's context to errClientGone if the client has disconnected.
func clientGoneError(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return err
}

// waitForChange waits until a request has more text or has ended. After keepAliveInterval it sends a comment, to
// show that the stream lives, and returns. It returns an error if the client leaves or the server closes.
func (s *eventStream) waitForChange(ctx context.Context, nextChange, closing <-chan struct{}) error {
	wait := keepAliveInterval
	if !s.HasBegun() {
		wait = firstEventTimeout
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-nextChange:
		return nil
	case <-timer.C:
		return s.SendLine(":", []byte(" waiting"))
	case <-ctx.Done():
		return ctx.Err()
	case <-closing:
		return errDraining
	}
}

// sendText sends new text of an answer to the client as chunks. The text of one answer is one chunk. If the answer is a
// log of events (several answers, mixed), each line of it is a chunk. isFirst and wantsUsage are for the chunk's form:
// the first one names the role, and one with usage has a null until the end.
func (s *eventStream) sendText(e *trackedRequest, text string, isFirst, wantsUsage bool) error {
	if !e.record.Events {
		return s.sendChunk(e.record.chunkCompletion(e.id, text, isFirst, nil), nil, wantsUsage)
	}
	for choices := range deltas.LoggedEvents(text) {
		c := e.record.completionHead(e.id, true)
		c.Choices = rawChoices(choices)
		if err := s.sendChunk(c, nil, wantsUsage); err != nil {
			return err
		}
	}
	return nil
}

// sendChunk sends one chunk of a stream. If the client wants token counts, each chunk has the field usage, which is
// null in all but the last.
func (s *eventStream) sendChunk(c completion, tokenUsage *usage, withUsage bool) error {
	if !withUsage {
		return s.Send(c)
	}
	return s.Send(chunk{c, tokenUsage})
}

// sendEnd sends the rest of the text, the reason why the answer ends, the token counts if they are wanted, and the
// end of the stream ([DONE]); or the error with which the request ended.
func (s *eventStream) sendEnd(e *trackedRequest, update requestUpdate, isFirst, wantsUsage bool) error {
	if update.result.Error != nil {
		return s.Send(errorBody{update.result.Error.toAPIError()})
	}
	var err error
	if update.text != "" {
		err = s.sendText(e, update.text, isFirst, wantsUsage)
		isFirst = false
	}
	if err == nil && !e.record.Events { // events contain the reason why a choice ends
		err = s.sendChunk(e.record.chunkCompletion(e.id, "", isFirst, update.result), nil, wantsUsage)
	}
	if err == nil && wantsUsage {
		err = s.sendChunk(e.record.completionHead(e.id, true), update.result.usage(), true)
	}
	if err == nil {
		err = s.SendLine("data: ", []byte("[DONE]"))
	}
	return err
}
