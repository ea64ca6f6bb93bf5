package jetstream

import (
	"errors"

	"inferplan/executor/durable"
)

// Whoever may write to the servers may write under our names. What is none of ours is
// refused: it is counted, told of, and left aside.

// errForm: a message has not the form of ours.
var errForm = errors.New("it has not the form of what is stored here")

// foreign says whether an error is about a message that none of ours has written. The
// store's own key was found to fit when it was opened.
func foreign(err error) bool { return errors.Is(err, errForm) || errors.Is(err, durable.ErrKey) }

// refuse notes a message that is none of ours.
func (s *link) refuse(what string, err error) {
	s.others.Add(1)
	s.odd.Do(func() {
		s.opt.Log.Warn("a message is refused that is none of ours", "what", what, "error", err, "so far", s.others.Load())
	})
}

// Refused is how many messages came here that were none of ours.
func (s *link) Refused() uint64 { return s.others.Load() }
