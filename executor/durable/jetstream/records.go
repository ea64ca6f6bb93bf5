package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"inferplan/executor/durable"
)

// Headers of messages.
const (
	headerClass  = "Inferplan-Class"
	headerOffset = "Inferplan-At"     // bytes of the text before this piece
	headerSize   = "Inferplan-Size"   // bytes of this piece before it was sealed
	headerTokens = "Inferplan-Tokens" // tokens of this piece
	headerEnd    = "Inferplan-End"    // set if the message is the result
	headerEnded  = "Inferplan-Ended"  // when the record ended, in ns since 1970
)

// subject returns the subject of a kind of messages of a record: req, state or due.
func (s *clusterClient) subject(kind, id string) string { return s.opt.Name + "." + kind + "." + id }

// publish stores a message as the one that follows message expectedLast (a sequence number; 0 for none) under its
// subject, and returns its sequence number. If another message came first, the error is a conflict.
func (s *clusterClient) publish(ctx context.Context, msg *nats.Msg, expectedLast uint64) (seq uint64, err error) {
	id := nuid.Next() // the same in all attempts
	err = s.retry(ctx, func(ctx context.Context) error {
		ack, err := s.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectLastSequencePerSubject(expectedLast), jetstream.WithRetryAttempts(0))
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum) {
		err = fmt.Errorf("%d bytes: %w: the servers' max_payload is %d", len(msg.Data), durable.ErrTooLarge, s.conn.MaxPayload())
	}
	return seq, err
}

// newMessage returns a message of a kind for a record.
func (s *clusterClient) newMessage(kind, id string, data []byte) *nats.Msg {
	m := nats.NewMsg(s.subject(kind, id))
	m.Data = data
	return m
}

// Accept implements durable.Store: it stores a new record, which the server then offers to be claimed. isNew is
// false if there is one with this id already; it stays as it is.
func (s *Store) Accept(ctx context.Context, r *durable.Record) (isNew bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	data, err := s.opt.Sealer.Seal("record/"+r.ID, r.Data)
	if err != nil {
		return false, err
	}
	m := s.newMessage("req", r.ID, data)
	m.Header.Set(headerClass, strconv.QuoteToASCII(r.Class))
	if _, err = s.publish(ctx, m, 0); isConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// lastMessage returns the newest message under a subject (the name under which NATS stores messages), as the leader of
// the stream has it. If there is none, it returns nil.
func (s *clusterClient) lastMessage(ctx context.Context, subject string) (m *nats.RawStreamMsg, err error) {
	err = s.retry(ctx, func(ctx context.Context) (err error) {
		m, err = s.leader.GetLastMsg(s.opt.Name, subject, nats.Context(ctx))
		return err
	})
	if isMissing(err) {
		return nil, nil
	}
	return m, err
}

// recordTip is the last message of a record's state: how much text is stored, and whether the record has ended.
type recordTip struct {
	seq      uint64 // sequence number of the message; 0 if there is none
	bytes    int    // bytes of text
	hasEnded bool
}

// readTip returns how far a record is: the sequence number of its last message, the bytes of its text, and whether
// it has ended. It returns durable.ErrNotFound if there is no such record.
func (s *Store) readTip(ctx context.Context, id string) (t recordTip, err error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return t, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	m, err := s.lastMessage(ctx, s.subject("state", id))
	if err != nil {
		return t, err
	}
	if m == nil {
		if m, err = s.lastMessage(ctx, s.subject("req", id)); err == nil && m == nil {
			err = fmt.Errorf("%s: %w", id, durable.ErrNotFound)
		}
		return t, err
	}
	t = recordTip{seq: m.Sequence, bytes: intHeader(m.Header, headerOffset) + intHeader(m.Header, headerSize), hasEnded: m.Header.Get(headerEnd) != ""}
	return t, nil
}

// intHeader returns the number in a header, or 0 if it is missing.
func intHeader(h nats.Header, name string) int {
	n, _ := strconv.Atoi(h.Get(name)) // 0 if it is missing
	return n
}

// Append implements durable.Store: it stores a piece of an open record's text. If offset is not the length of the
// text stored so far, it returns durable.ErrConflict.
func (s *Store) Append(ctx context.Context, id string, offset int, text []byte, tokens int) error {
	sealed, err := s.opt.Sealer.Seal(textLocation(id, offset), text)
	if err != nil {
		return err
	}
	t, err := s.readTip(ctx, id)
	switch {
	case err != nil:
		return err
	case t.hasEnded:
		s.dropEnded(id)
		return fmt.Errorf("%s: %w", id, durable.ErrFinished)
	case t.bytes != offset:
		return fmt.Errorf("%s: text of %d bytes is stored, not %d: %w", id, t.bytes, offset, durable.ErrConflict)
	}

	// Store it behind the last message of the record.
	m := s.newMessage("state", id, sealed)
	m.Header.Set(headerOffset, strconv.Itoa(offset))
	m.Header.Set(headerSize, strconv.Itoa(len(text)))
	m.Header.Set(headerTokens, strconv.Itoa(tokens))
	seq, err := s.publish(ctx, m, t.seq)
	if isConflict(err) {
		return fmt.Errorf("%s: %w", id, durable.ErrConflict)
	}
	if err == nil {
		s.noteSeen(id, seq)
	}
	return err
}

// textLocation returns the location of a piece of text, for the sealer.
func textLocation(id string, offset int) string { return "text/" + id + "/" + strconv.Itoa(offset) }

// Finish implements durable.Store: it stores the result of an open record. If this process holds the record but
// another one has added text meanwhile, it returns durable.ErrConflict.
func (s *Store) Finish(ctx context.Context, id string, end []byte) error {
	sealed, err := s.opt.Sealer.Seal("end/"+id, end)
	if err != nil {
		return err
	}
	for {
		t, err := s.readTip(ctx, id)
		if err != nil {
			return err
		}
		if t.hasEnded {
			s.dropEnded(id)
			return fmt.Errorf("%s: %w", id, durable.ErrFinished)
		}
		// A holder's result belongs to the text that it has seen.
		if lastSeen, isHeld := s.lastSeenMessage(id); isHeld && lastSeen != t.seq {
			return fmt.Errorf("%s: %w", id, durable.ErrConflict)
		}

		// Store the result. If text or another result came first, look again.
		m := s.newMessage("state", id, sealed)
		m.Header.Set(headerEnd, "1")
		if _, err = s.publish(ctx, m, t.seq); isConflict(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.noteEnd(ctx, id); err != nil {
			s.opt.Log.Warn("a request that ended was not noted for deletion", "id", id, "error", err)
		}
		return nil
	}
}

// noteEnd adds a record that has ended to the list of ended ones, a message with its class and time, so that Expire
// finds it later, and gives up the claim on it. If the record does not exist or has not ended, it does nothing; if it is
// listed already, the list stays.
func (s *Store) noteEnd(ctx context.Context, id string) error {
	end, err := s.lastMessage(ctx, s.subject("state", id))
	if err != nil || end == nil {
		return err
	}
	req, err := s.lastMessage(ctx, s.subject("req", id))
	if err != nil || req == nil {
		return err
	}
	m := s.newMessage("due", id, nil)
	m.Header.Set(headerClass, req.Header.Get(headerClass))
	m.Header.Set(headerEnded, strconv.FormatInt(end.Time.UnixNano(), 10))
	if _, err := s.publish(ctx, m, 0); err != nil && !isConflict(err) {
		return err
	}
	s.dropEnded(id)
	return nil
}

// requestMessage returns the message with which a record was accepted.
func (s *clusterClient) requestMessage(ctx context.Context, id string) (*nats.RawStreamMsg, error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return nil, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	req, err := s.lastMessage(ctx, s.subject("req", id))
	if err == nil && req == nil {
		err = fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return req, err
}

// Get implements durable.Store: it returns the state of a record.
func (s *Store) Get(ctx context.Context, id string) (*durable.State, error) {
	req, err := s.requestMessage(ctx, id)
	if err != nil {
		return nil, err
	}
	st, _, err := s.readState(ctx, id, req.Header, req.Data, req.Sequence)
	return st, err
}

// readState returns the state of a record: its data, its text, joined from the pieces, and its result if it has
// ended. lastSeen is the sequence number of the last message about it, 0 if there is none. h, data and seq are
// those of the message with which it was accepted.
func (s *Store) readState(ctx context.Context, id string, h nats.Header, data []byte, seq uint64) (st *durable.State, lastSeen uint64, err error) {
	class, err := strconv.Unquote(h.Get(headerClass))
	if err != nil {
		return nil, 0, fmt.Errorf("class of %s: %w: %w", id, errWrongForm, err)
	}
	st = &durable.State{Record: durable.Record{ID: id, Class: class}}
	if st.Data, err = s.opt.Sealer.Open("record/"+id, data); err != nil {
		return nil, 0, err
	}

	// The messages of its state: pieces of text, and perhaps the result.
	list, err := s.messagesAfter(ctx, s.subject("state", id), seq)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range list {
		lastSeen = m.Sequence
		if m.Header.Get(headerEnd) != "" {
			st.EndedAt = m.Time
			st.Result, err = s.opt.Sealer.Open("end/"+id, m.Data)
			if st.Result == nil {
				st.Result = []byte{}
			}
			return st, lastSeen, err
		}
		offset := intHeader(m.Header, headerOffset)
		text, err := s.opt.Sealer.Open(textLocation(id, offset), m.Data)
		if err != nil {
			return nil, 0, err
		}
		if offset != len(st.Text) {
			return nil, 0, fmt.Errorf("text of %s: %w: a piece at %d follows %d bytes", id, errWrongForm, offset, len(st.Text))
		}
		st.Text = append(st.Text, text...)
		st.Tokens += intHeader(m.Header, headerTokens)
	}
	return st, lastSeen, nil
}

// errNodeBehind is returned when a node does not have all messages that the leader has. Another one may.
var errNodeBehind = errors.New("a node of the cluster is behind")

// messagesAfter returns the messages of a subject after sequence number seq. It asks the leader for the last one,
// then any node for all, page by page. If a node lags, the last ones are missing, and it tries again.
func (s *clusterClient) messagesAfter(ctx context.Context, subject string, seq uint64) (list []*jetstream.RawStreamMsg, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		list = list[:0]
		lastMsg, err := s.leader.GetLastMsg(s.opt.Name, subject, nats.Context(ctx))
		if isMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for nextSeq := seq + 1; nextSeq <= lastMsg.Sequence; nextSeq = list[len(list)-1].Sequence + 1 {
			previousCount := len(list)
			if list, err = s.readPage(ctx, list, subject, nextSeq); err != nil {
				return err
			}
			if len(list) == previousCount { // the node lags, or the messages were deleted meanwhile
				return errNodeBehind
			}
		}
		return nil
	})
	return list, err
}

// readPage appends to list the messages of a subject (which may have wildcards), from sequence number firstSeq on and at
// most pageSize of them, as the node that answers has them: it need not be the leader, and may lag behind it.
func (s *clusterClient) readPage(ctx context.Context, list []*jetstream.RawStreamMsg, subject string, firstSeq uint64) ([]*jetstream.RawStreamMsg, error) {
	messages, err := jetstreamext.GetBatch(ctx, s.js, s.opt.Name, s.pageSize, jetstreamext.GetBatchSeq(firstSeq), jetstreamext.GetBatchSubject(subject))
	if err != nil {
		return list, err
	}
	for m, err := range messages {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return list, err
		}
		list = append(list, m)
	}
	return list, nil
}
