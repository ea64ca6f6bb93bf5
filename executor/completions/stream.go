package completions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/engine/llm/deltas"
	"inferplan/executor/httplimit"
)

// eventStream is an answer that is sent as server-sent events.
type stream struct{ *httplimit.Events }

// firstEventTimeout is how long the head of the answer waits for the first event, so that an early failure can have
// its own status. keepAliveInterval is the time between comments that show that the stream lives.
const (
	patience = 5 * time.Second
	beat     = 15 * time.Second
)

// streamAnswer answers with events as text comes. wantsUsage adds the token counts at the end.
func (f *api) stream(x *inside, e *entry, usage bool) error {
	s := &stream{httplimit.NewEvents(x.w, f.opt.StallTimeout)}
	var err error

	// Send what has come since the last event, until the request has ended or sending fails.
	for at, first := 0, true; err == nil; {
		n := e.look(at)

		// Only whole lines of a log of events can be sent.
		if e.rec.Events {
			n.text = n.text[:deltas.Complete(n.text)]
			n.at = at + len(n.text)
		}
		switch {
		case n.end != nil && n.end.Error != nil && !s.Begun():
			fail(x.w, n.end.Error)
			return nil
		case n.end != nil:
			err = s.last(e, n, first, usage)
			if err == nil {
				return nil
			}
		case n.at > at && e.rec.visible():
			err = s.sendText(e, n.text, first, usage)
			at, first = n.at, false
		default:
			err = s.idle(x.r.Context(), n.changed, f.closing)
		}
	}

	// The client is gone, or the server leaves: in that case the client is told.
	if !errors.Is(err, errLeaves) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if s.Begun() {
		_ = s.Send(errorBody{failed(err).api()})
		return nil
	}
	return err
}

// errClientGone is returned when the client has disconnected or does not read. No error can be sent to it.
var errGone = errors.New("the client is gone")

// clientGoneError converts the error of a request's context to errClientGone if the client has disconnected.
func gone(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// waitForChange waits for more text, and meanwhile sends a comment to show that the stream lives.
func (s *stream) idle(ctx context.Context, changed, closing <-chan struct{}) error {
	wait := beat
	if !s.Begun() {
		wait = patience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return s.Line(":", []byte(" waiting"))
	case <-ctx.Done():
		return ctx.Err()
	case <-closing:
		return errLeaves
	}
}

// sendText sends text that has come: a text as one chunk, a log of events as one chunk per line.
func (s *stream) sendText(e *entry, text string, first, usage bool) error {
	if !e.rec.Events {
		return s.sendPart(e.rec.part(e.id, text, first, nil), nil, usage)
	}
	for choices := range deltas.Lines(text) {
		c := e.rec.head(e.id, true)
		c.Choices = raw(choices)
		if err := s.sendPart(c, nil, usage); err != nil {
			return err
		}
	}
	return nil
}

// sendChunk sends one chunk, with the field usage if withUsage is set.
func (s *stream) sendPart(c completion, u *usage, all bool) error {
	if !all {
		return s.Send(c)
	}
	return s.Send(chunk{c, u})
}

// sendEnd sends the rest of the text and the end of the stream.
func (s *stream) last(e *entry, n news, first, usage bool) error {
	if n.end.Error != nil {
		return s.Send(errorBody{n.end.Error.api()})
	}
	var err error
	if n.text != "" {
		err = s.sendText(e, n.text, first, usage)
		first = false
	}
	if err == nil && !e.rec.Events { // events contain the reason why a choice ends
		err = s.sendPart(e.rec.part(e.id, "", first, n.end), nil, usage)
	}
	if err == nil && usage {
		err = s.sendPart(e.rec.head(e.id, true), n.end.usage(), true)
	}
	if err == nil {
		err = s.Line("data: ", []byte("[DONE]"))
	}
	return err
}
