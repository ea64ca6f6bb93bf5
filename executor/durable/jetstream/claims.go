package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inferplan/executor/durable"
)

// holding is a record that this process has taken over.
type holding struct {
	msg  jetstream.Msg
	seq  uint64 // of the record
	last uint64 // message of its state that this process has seen
}

// pullWait is how long a request for the next record waits at the server.
const pullWait = 2 * time.Second

// Claim takes over the next record.
func (s *Store) Claim(ctx context.Context) (*durable.State, error) {
	for {
		switch {
		case s.ctx.Err() != nil:
			return nil, durable.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		msg, err := s.next(ctx)
		if err != nil {
			if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoMessages) && !errors.Is(err, context.DeadlineExceeded) {
				select { // the cluster has no leader
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				case <-s.ctx.Done():
				}
			}
			continue
		}
		st, err := s.take(ctx, msg)
		if err != nil {
			return nil, errors.Join(err, msg.Nak())
		}
		if st != nil {
			return st, nil
		}
	}
}

// next asks the server for a record. What comes after the caller is gone is given back.
func (s *Store) next(ctx context.Context) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return s.serve.Next(jetstream.FetchContext(ctx))
}

// take holds a record; nil: it has ended.
func (s *Store) take(ctx context.Context, msg jetstream.Msg) (*durable.State, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("a record without its place: %w", err)
	}
	id := msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
	st, last, err := s.state(ctx, id, msg.Headers(), msg.Data(), meta.Sequence.Stream)
	if err != nil {
		return nil, err
	}
	if st.End != nil { // its holder was gone before it could say so
		if err := s.settle(ctx, id); err != nil {
			return nil, err
		}
		return nil, msg.Ack()
	}
	s.mu.Lock()
	s.held[id] = &holding{msg: msg, seq: meta.Sequence.Stream, last: last}
	s.mu.Unlock()
	return st, nil
}

// beat tells the server from time to time what is held.
func (s *Store) beat() {
	tick := time.NewTicker(s.opt.AckWait / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		held := make([]jetstream.Msg, 0, len(s.held))
		for _, h := range s.held {
			held = append(held, h.msg)
		}
		s.mu.Unlock()
		for _, m := range held {
			if err := m.InProgress(); err != nil {
				s.opt.Log.Warn("the queue was not told what is held", "error", err)
				break
			}
		}
	}
}

// Release gives a record back.
func (s *Store) Release(ctx context.Context, id string) error {
	s.mu.Lock()
	h := s.held[id]
	delete(s.held, id)
	s.mu.Unlock()
	if h != nil {
		return h.msg.Nak()
	}
	t, err := s.tip(ctx, id)
	if err == nil && t.ended {
		err = fmt.Errorf("%s: %w", id, durable.ErrFinished)
	}
	return err
}

// over lets go of a record that has ended. Where the server does not hear of it, the
// record comes once more and is found ended.
func (s *Store) over(id string) {
	s.mu.Lock()
	h := s.held[id]
	delete(s.held, id)
	s.mu.Unlock()
	if h != nil {
		if err := h.msg.Ack(); err != nil {
			s.opt.Log.Debug("the end of a request was not acknowledged", "id", id, "error", err)
		}
	}
}

// saw notes a message that this process has stored.
func (s *Store) saw(id string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil {
		h.last = seq
	}
}

// seen is the last message of a held record that this process has seen.
func (s *Store) seen(id string) (seq uint64, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil {
		return 0, false
	}
	return h.last, true
}
