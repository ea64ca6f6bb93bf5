package calls

import (
	"fmt"
	"iter"
	"strconv"

	"inferplan/formats/calls"
)

// Parameters implements calls.Session.
func (s *session) Parameters() map[string]any { return s.parameters }

// Enqueue implements calls.Session.
func (s *session) Enqueue(c calls.Call) (calls.Handle, error) {
	id, ok := s.control.services[c.Model]
	switch {
	case s.gone:
		return "", calls.ErrEnded
	case !ok:
		return "", fmt.Errorf("enqueueing a task: the plan has no model %q", c.Model)
	case len(s.calls) == calls.MaxTasks:
		return "", fmt.Errorf("enqueueing a task: the request has %d already", len(s.calls))
	}
	k := call{Call: c, service: id, slot: -1}
	for _, h := range c.Reads {
		i, err := s.find(h)
		if err != nil {
			return "", fmt.Errorf("enqueueing a task: %w", err)
		}
		k.reads = append(k.reads, i)
	}
	s.calls, s.fresh = append(s.calls, k), append(s.fresh, len(s.calls))
	return calls.Handle("t" + strconv.Itoa(len(s.calls)-1)), nil
}

// find is the place of a task.
func (s *session) find(h calls.Handle) (int, error) {
	if len(h) > 1 && h[0] == 't' {
		if i, err := strconv.Atoi(string(h[1:])); err == nil && i >= 0 && i < len(s.calls) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", calls.ErrUnknown, h)
}

// Wait implements calls.Session.
func (s *session) Wait(tasks ...calls.Handle) error {
	s.waits = s.waits[:0]
	for _, h := range tasks {
		i, err := s.find(h)
		if err != nil {
			return err
		}
		if !s.calls[i].ended {
			s.waits = append(s.waits, i)
		}
	}
	if s.gone || len(s.waits) > 0 && !s.yield(struct{}{}) {
		s.gone = true
		return calls.ErrEnded
	}
	return nil
}

// Result implements calls.Session.
func (s *session) Result(task calls.Handle) (calls.Outputs, error) {
	if err := s.Wait(task); err != nil {
		return nil, err
	}
	i, _ := s.find(task)
	if n := len(s.calls[i].pieces); n > 0 {
		return s.calls[i].pieces[n-1], nil
	}
	return calls.Outputs{}, nil
}

// Stream implements calls.Session. In virtual time all pieces come at the end of
// the task.
func (s *session) Stream(task calls.Handle) iter.Seq2[calls.Outputs, error] {
	return func(yield func(calls.Outputs, error) bool) {
		if err := s.Wait(task); err != nil {
			yield(nil, err)
			return
		}
		i, _ := s.find(task)
		for _, p := range s.calls[i].pieces {
			if !yield(p, nil) {
				return
			}
		}
	}
}
