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
	reply  string // where the server hears of it
	seq    uint64 // of the record
	last   uint64 // message of its state that this process has seen
	handed bool   // to another process, which stores its text
}

// What the server is told of a record.
var (
	signalEnded   = []byte("+ACK")
	signalBack    = []byte("-NAK")
	signalWorking = []byte("+WPI")
)

func (s *link) signal(h *holding, what []byte) error {
	if err := s.conn.Publish(h.reply, what); err != nil {
		return fmt.Errorf("tell the queue of a request: %w", err)
	}
	return nil
}

// foreignAgain is after how long a record that is none of ours is looked at again.
const foreignAgain = time.Minute

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
		if foreign(err) {
			s.refuse("a record", err)
			_ = msg.NakWithDelay(foreignAgain) // else it comes again sooner
			continue
		}
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

// take holds a record; nil: it has ended, or is held here already. A server that comes to
// lead anew may hand out again what the one before it had handed out.
func (s *Store) take(ctx context.Context, msg jetstream.Msg) (*durable.State, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("a record without its place: %w", err)
	}
	id := msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
	if err := (&durable.Record{ID: id}).Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	s.mu.Lock()
	h := s.held[id]
	if h != nil {
		h.reply = msg.Reply()
	} else {
		s.held[id] = &holding{reply: msg.Reply(), seq: meta.Sequence.Stream}
	}
	s.mu.Unlock()
	if h != nil {
		return nil, nil
	}
	st, err := s.read(ctx, id, msg, meta.Sequence.Stream)
	if st == nil {
		s.mu.Lock()
		delete(s.held, id)
		s.mu.Unlock()
	}
	return st, err
}

// read finds out where a record stands that was just taken over; nil: it has ended.
func (s *Store) read(ctx context.Context, id string, msg jetstream.Msg, seq uint64) (*durable.State, error) {
	st, last, err := s.state(ctx, id, msg.Headers(), msg.Data(), seq)
	if err != nil {
		return nil, err
	}
	if st.End != nil { // its holder was gone before it could say so
		return nil, s.settle(ctx, id)
	}
	s.saw(id, last)
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
		held := make([]holding, 0, len(s.held))
		for _, h := range s.held {
			held = append(held, *h)
		}
		s.mu.Unlock()
		for i := range held {
			if err := s.signal(&held[i], signalWorking); err != nil {
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
		return s.signal(h, signalBack)
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
		if err := s.signal(h, signalEnded); err != nil {
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

// seen is the last message of a record that this process has seen, which holds it and
// stores its text.
func (s *Store) seen(id string) (seq uint64, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil || h.handed {
		return 0, false
	}
	return h.last, true
}
