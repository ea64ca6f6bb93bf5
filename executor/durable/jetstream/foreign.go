package jetstream

import (
	"errors"

	"inferplan/executor/durable"
)

// Anybody with access to the servers may write under our names. Messages that none of our processes has written are
// refused: they are counted, logged and left alone.

// errWrongForm is returned when a message does not have the form of our messages.
var errForm = errors.New("it has not the form of what is stored here")

// isForeign reports whether an error is about a foreign message. The key of the store itself was checked when it was
// opened, so a wrong key is the message's fault.
func foreign(err error) bool { return errors.Is(err, errForm) || errors.Is(err, durable.ErrKey) }

// countRefused counts a foreign message and logs it from time to time.
func (s *link) refuse(what string, err error) {
	s.others.Add(1)
	s.odd.Do(func() {
		s.opt.Log.Warn("a message is refused that is none of ours", "what", what, "error", err, "so far", s.others.Load())
	})
}

// RefusedMessages implements durable.Shared.
func (s *link) Refused() uint64 { return s.others.Load() }
