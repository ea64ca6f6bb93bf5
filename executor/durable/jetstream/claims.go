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
type claim struct {
	ackSubject string // subject of acknowledgements and heartbeats
	seq        uint64 // of the record in the stream
	lastSeen   uint64 // sequence number of the last message of its state that this process has seen
	handedOver bool   // handed over to another process, which stores its text
}

// Signals to the server about a record.
var (
	signalEnded    = []byte("+ACK")
	signalReleased = []byte("-NAK")
	signalWorking  = []byte("+WPI")
)

// signal sends the NATS server a signal about a claimed record: that this process still works on it (signalWorking),
// that it has ended (signalEnded), or that it is given back (signalReleased).
func (s *clusterClient) signal(held *claim, signal []byte) error {
	if err := s.conn.Publish(held.ackSubject, signal); err != nil {
		return fmt.Errorf("tell the queue of a request: %w", err)
	}
	return nil
}

// foreignRetryDelay is the time until a foreign record is delivered again.
const foreignRetryDelay = time.Minute

// pullTimeout bounds the time that a request for the next record waits at the server.
const pullTimeout = 2 * time.Second

// Claim implements durable.Store: it waits for an open record that no process has claimed, and returns its state, so
// that this process alone serves it. Each record is a message that the NATS server delivers to one process and, if that
// falls silent, to another. Messages that this program did not write are put back.
func (s *Store) Claim(ctx context.Context) (*durable.State, error) {
	for {
		switch {
		case s.ctx.Err() != nil:
			return nil, durable.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}

		// Wait for a message. Errors of the cluster pass: it may have no leader at the moment.
		msg, err := s.fetchNext(ctx)
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
		st, err := s.claimMessage(ctx, msg)
		if isForeign(err) {
			s.countRefused("a record", err)
			_ = msg.NakWithDelay(foreignRetryDelay) // without a delay it would come again at once
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

// fetchNext asks the server for the next record. If the caller is gone before one comes, the server keeps it.
func (s *Store) fetchNext(ctx context.Context) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return s.consumer.Next(jetstream.FetchContext(ctx))
}

// claimMessage claims the record of a message. If the record has ended or is claimed here already, it returns nil: a
// new leader of the stream may deliver again what the one before had delivered.
func (s *Store) claimMessage(ctx context.Context, msg jetstream.Msg) (*durable.State, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("a record without its place: %w", err)
	}
	id := msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
	if err := (&durable.Record{ID: id}).Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errWrongForm, err)
	}

	// Enter the claim before the state is read, so that heartbeats are sent meanwhile.
	s.mu.Lock()
	held := s.claims[id]
	if held != nil {
		held.ackSubject = msg.Reply()
	} else {
		s.claims[id] = &claim{ackSubject: msg.Reply(), seq: meta.Sequence.Stream}
	}
	s.mu.Unlock()
	if held != nil {
		return nil, nil
	}
	st, err := s.readClaimed(ctx, id, msg, meta.Sequence.Stream)
	if st == nil {
		s.mu.Lock()
		delete(s.claims, id)
		s.mu.Unlock()
	}
	return st, err
}

// readClaimed returns the state of a record that was just claimed. If the record has ended, it acknowledges that
// in place of the process that could not, and returns nil.
func (s *Store) readClaimed(ctx context.Context, id string, msg jetstream.Msg, seq uint64) (*durable.State, error) {
	st, lastSeen, err := s.readState(ctx, id, msg.Headers(), msg.Data(), seq)
	if err != nil {
		return nil, err
	}
	if st.Result != nil { // the process that ended it was gone before it could acknowledge
		return nil, s.noteEnd(ctx, id)
	}
	s.noteSeen(id, lastSeen)
	return st, nil
}

// sendHeartbeats tells the server, four times within AckWait, which records this process holds, until the store is
// closed. Without that the server would give them to others.
func (s *Store) sendHeartbeats() {
	tick := time.NewTicker(s.opt.AckWait / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		claims := make([]claim, 0, len(s.claims))
		for _, held := range s.claims {
			claims = append(claims, *held)
		}
		s.mu.Unlock()
		for i := range claims {
			if err := s.signal(&claims[i], signalWorking); err != nil {
				s.opt.Log.Warn("the queue was not told what is held", "error", err)
				break
			}
		}
	}
}

// Release implements durable.Store: it gives a claimed record back to the server, for others to claim. For a
// record that is not claimed here it returns an error only if the record is not open.
func (s *Store) Release(ctx context.Context, id string) error {
	s.mu.Lock()
	held := s.claims[id]
	delete(s.claims, id)
	s.mu.Unlock()
	if held != nil {
		return s.signal(held, signalReleased)
	}
	t, err := s.readTip(ctx, id)
	if err == nil && t.hasEnded {
		err = fmt.Errorf("%s: %w", id, durable.ErrFinished)
	}
	return err
}

// dropEnded gives up this process's claim on a record that has ended, and acknowledges its message, so that the NATS
// server does not deliver it again. If the acknowledgement is lost, the message comes once more, and its record is found
// to have ended.
func (s *Store) dropEnded(id string) {
	s.mu.Lock()
	held := s.claims[id]
	delete(s.claims, id)
	s.mu.Unlock()
	if held != nil {
		if err := s.signal(held, signalEnded); err != nil {
			s.opt.Log.Debug("the end of a request was not acknowledged", "id", id, "error", err)
		}
	}
}

// noteSeen records the sequence number of the last message of a claimed record that this process has seen. Finish
// needs it to notice changes by others.
func (s *Store) noteSeen(id string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.claims[id]; held != nil {
		held.lastSeen = seq
	}
}

// lastSeenMessage returns the sequence number of the last message of a record that this process has seen. isHeld
// is false if this process does not hold the record or has handed it over.
func (s *Store) lastSeenMessage(id string) (seq uint64, isHeld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.claims[id]
	if held == nil || held.handedOver {
		return 0, false
	}
	return held.lastSeen, true
}
