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

// claim is a record that this process has claimed.
type holding struct {
	reply  string // subject of acknowledgements and heartbeats
	seq    uint64 // of the record in the stream
	last   uint64 // sequence number of the last message of its state that this process has seen
	handed bool   // handed over to another process, which stores its text
}

// Signals to the server about a record.
var (
	signalEnded   = []byte("+ACK")
	signalBack    = []byte("-NAK")
	signalWorking = []byte("+WPI")
)

// signal sends a signal about a claim to the server.
func (s *link) signal(h *holding, what []byte) error {
	if err := s.conn.Publish(h.reply, what); err != nil {
		return fmt.Errorf("tell the queue of a request: %w", err)
	}
	return nil
}

// foreignRetryDelay is the time until a foreign record is delivered again.
const foreignAgain = time.Minute

// pullTimeout bounds the time that a request for the next record waits at the server.
const pullWait = 2 * time.Second

// Claim implements durable.Store.
func (s *Store) Claim(ctx context.Context) (*durable.State, error) {
	for {
		switch {
		case s.ctx.Err() != nil:
			return nil, durable.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}

		// Wait for a message. Errors of the cluster pass: it may have no leader at the moment.
		msg, err := s.next(ctx)
		if err != nil {
			if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoMessages) && !errors.Is(err, context.DeadlineExceeded) {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				case <-s.ctx.Done():
				}
			}
			continue
		}

		// Claim its record.
		st, err := s.take(ctx, msg)
		if foreign(err) {
			s.refuse("a record", err)
			_ = msg.NakWithDelay(foreignAgain) // without a delay it would come again at once
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

// fetchNext asks the server for a record. If the caller is gone before one comes, the record is given back.
func (s *Store) next(ctx context.Context) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return s.serve.Next(jetstream.FetchContext(ctx))
}

// claimMessage claims the record of a message. If the record has ended or is claimed here already, it returns nil: a
// new leader of the stream may deliver again what the one before had delivered.
func (s *Store) take(ctx context.Context, msg jetstream.Msg) (*durable.State, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("a record without its place: %w", err)
	}
	id := msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
	if err := (&durable.Record{ID: id}).Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}

	// Enter the claim before the state is read, so that heartbeats are sent meanwhile.
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

// readClaimed returns the state of a record that was just claimed. If the record has ended, it returns nil.
func (s *Store) read(ctx context.Context, id string, msg jetstream.Msg, seq uint64) (*durable.State, error) {
	st, last, err := s.state(ctx, id, msg.Headers(), msg.Data(), seq)
	if err != nil {
		return nil, err
	}
	if st.End != nil { // the process that ended it was gone before it could acknowledge
		return nil, s.settle(ctx, id)
	}
	s.saw(id, last)
	return st, nil
}

// sendHeartbeats tells the server from time to time which records this process holds, until the store is closed.
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

// Release implements durable.Store.
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

// dropEnded acknowledges a record that has ended. If that gets lost, the record is delivered once more and found to
// have ended.
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

// noteSeen records the last message of a record that this process has seen.
func (s *Store) saw(id string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil {
		h.last = seq
	}
}

// lastSeenMessage returns the last message of a record that this process has seen. isHeld is false if this process does
// not hold the record or has handed it over.
func (s *Store) seen(id string) (seq uint64, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil || h.handed {
		return 0, false
	}
	return h.last, true
}
