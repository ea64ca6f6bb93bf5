package jetstream

import (
	"errors"

	"inferplan/executor/durable"
)

// Anybody with access to the servers may write under our names. Messages that none of our processes has written are
// refused: they are counted, logged and left alone.

// errWrongForm is returned when a message does not have the form of our messages.
var errWrongForm = errors.New("it has not the form of what is stored here")

// isForeign reports whether an error is about a foreign message. The key of the store itself was checked when it was
// opened, so a wrong key is the message's fault.
func isForeign(err error) bool {
	return errors.Is(err, errWrongForm) || errors.Is(err, durable.ErrWrongKey)
}

// countRefused counts a message that does not come from this program, or is sealed with another key, and logs it
// from time to time.
func (s *clusterClient) countRefused(subject string, err error) {
	s.refusedCount.Add(1)
	s.refusalLog.Do(func() {
		s.opt.Log.Warn("a message is refused that is none of ours", "what", subject, "error", err, "so far", s.refusedCount.Load())
	})
}

// RefusedMessages implements durable.Shared.
func (s *clusterClient) RefusedMessages() uint64 { return s.refusedCount.Load() }
