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
	headerAt     = "Inferplan-At"     // bytes of the text before this piece
	headerSize   = "Inferplan-Size"   // bytes of this piece before it was sealed
	headerTokens = "Inferplan-Tokens" // tokens of this piece
	headerEnd    = "Inferplan-End"    // set if the message is the result
	headerEnded  = "Inferplan-Ended"  // when the record ended, in ns since 1970
)

// subject returns the subject of a kind of messages of a record: req, state or due.
func (s *link) subject(kind, id string) string { return s.opt.Name + "." + kind + "." + id }

// publish stores a message as the next one after sequence number last under its subject; 0 stands for the first one.
// If another message came first, the error is a conflict.
func (s *link) publish(ctx context.Context, msg *nats.Msg, last uint64) (seq uint64, err error) {
	id := nuid.Next() // the same in all attempts
	err = s.again(ctx, func(ctx context.Context) error {
		ack, err := s.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectLastSequencePerSubject(last), jetstream.WithRetryAttempts(0))
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
func (s *link) message(kind, id string, data []byte) *nats.Msg {
	m := nats.NewMsg(s.subject(kind, id))
	m.Data = data
	return m
}

// Accept implements durable.Store.
func (s *Store) Accept(ctx context.Context, r *durable.Record) (fresh bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	data, err := s.opt.Sealer.Seal("record/"+r.ID, r.Data)
	if err != nil {
		return false, err
	}
	m := s.message("req", r.ID, data)
	m.Header.Set(headerClass, strconv.QuoteToASCII(r.Class))
	if _, err = s.publish(ctx, m, 0); moved(err) {
		return false, nil
	}
	return err == nil, err
}

// lastMessage returns the last message under a subject. If there is none, it returns nil.
func (s *link) last(ctx context.Context, subject string) (m *nats.RawStreamMsg, err error) {
	err = s.again(ctx, func(ctx context.Context) (err error) {
		m, err = s.leader.GetLastMsg(s.opt.Name, subject, nats.Context(ctx))
		return err
	})
	if missing(err) {
		return nil, nil
	}
	return m, err
}

// recordTip is the last message of a record's state: how much text is stored, and whether the record has ended.
type tip struct {
	seq   uint64 // sequence number of the message; 0 if there is none
	bytes int    // bytes of text
	ended bool
}

// readTip reads the tip of a record. It returns durable.ErrNotFound if there is no such record.
func (s *Store) tip(ctx context.Context, id string) (t tip, err error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return t, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	m, err := s.last(ctx, s.subject("state", id))
	if err != nil {
		return t, err
	}
	if m == nil {
		if m, err = s.last(ctx, s.subject("req", id)); err == nil && m == nil {
			err = fmt.Errorf("%s: %w", id, durable.ErrNotFound)
		}
		return t, err
	}
	t = tip{seq: m.Sequence, bytes: number(m.Header, headerAt) + number(m.Header, headerSize), ended: m.Header.Get(headerEnd) != ""}
	return t, nil
}

// intHeader returns the number in a header, or 0 if it is missing.
func number(h nats.Header, name string) int {
	n, _ := strconv.Atoi(h.Get(name)) // 0 if it is missing
	return n
}

// Append implements durable.Store.
func (s *Store) Append(ctx context.Context, id string, at int, text []byte, tokens int) error {
	sealed, err := s.opt.Sealer.Seal(textPlace(id, at), text)
	if err != nil {
		return err
	}
	t, err := s.tip(ctx, id)
	switch {
	case err != nil:
		return err
	case t.ended:
		s.over(id)
		return fmt.Errorf("%s: %w", id, durable.ErrFinished)
	case t.bytes != at:
		return fmt.Errorf("%s: text of %d bytes is stored, not %d: %w", id, t.bytes, at, durable.ErrMoved)
	}
	m := s.message("state", id, sealed)
	m.Header.Set(headerAt, strconv.Itoa(at))
	m.Header.Set(headerSize, strconv.Itoa(len(text)))
	m.Header.Set(headerTokens, strconv.Itoa(tokens))
	seq, err := s.publish(ctx, m, t.seq)
	if moved(err) {
		return fmt.Errorf("%s: %w", id, durable.ErrMoved)
	}
	if err == nil {
		s.saw(id, seq)
	}
	return err
}

// textLocation returns the location of a piece of text, for the sealer.
func textPlace(id string, at int) string { return "text/" + id + "/" + strconv.Itoa(at) }

// Finish implements durable.Store.
func (s *Store) Finish(ctx context.Context, id string, end []byte) error {
	sealed, err := s.opt.Sealer.Seal("end/"+id, end)
	if err != nil {
		return err
	}
	for {
		t, err := s.tip(ctx, id)
		if err != nil {
			return err
		}
		if t.ended {
			s.over(id)
			return fmt.Errorf("%s: %w", id, durable.ErrFinished)
		}
		// A holder's result belongs to the text that it has seen.
		if seen, held := s.seen(id); held && seen != t.seq {
			return fmt.Errorf("%s: %w", id, durable.ErrMoved)
		}

		// Store the result. If text or another result came first, look again.
		m := s.message("state", id, sealed)
		m.Header.Set(headerEnd, "1")
		if _, err = s.publish(ctx, m, t.seq); moved(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.settle(ctx, id); err != nil {
			s.opt.Log.Warn("a request that ended was not noted for deletion", "id", id, "error", err)
		}
		return nil
	}
}

// noteEnd stores when a record ended, and acknowledges the record.
func (s *Store) settle(ctx context.Context, id string) error {
	end, err := s.last(ctx, s.subject("state", id))
	if err != nil || end == nil {
		return err
	}
	req, err := s.last(ctx, s.subject("req", id))
	if err != nil || req == nil {
		return err
	}
	m := s.message("due", id, nil)
	m.Header.Set(headerClass, req.Header.Get(headerClass))
	m.Header.Set(headerEnded, strconv.FormatInt(end.Time.UnixNano(), 10))
	if _, err := s.publish(ctx, m, 0); err != nil && !moved(err) {
		return err
	}
	s.over(id)
	return nil
}

// requestMessage returns the message with which a record was accepted.
func (s *link) record(ctx context.Context, id string) (*nats.RawStreamMsg, error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return nil, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	req, err := s.last(ctx, s.subject("req", id))
	if err == nil && req == nil {
		err = fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return req, err
}

// Get implements durable.Store.
func (s *Store) Get(ctx context.Context, id string) (*durable.State, error) {
	req, err := s.record(ctx, id)
	if err != nil {
		return nil, err
	}
	st, _, err := s.state(ctx, id, req.Header, req.Data, req.Sequence)
	return st, err
}

// readState reads the state of a record, and the sequence number of the last message of it.
func (s *Store) state(ctx context.Context, id string, h nats.Header, data []byte, seq uint64) (st *durable.State, last uint64, err error) {
	class, err := strconv.Unquote(h.Get(headerClass))
	if err != nil {
		return nil, 0, fmt.Errorf("class of %s: %w: %w", id, errForm, err)
	}
	st = &durable.State{Record: durable.Record{ID: id, Class: class}}
	if st.Data, err = s.opt.Sealer.Open("record/"+id, data); err != nil {
		return nil, 0, err
	}

	// The messages of its state: pieces of text, and perhaps the result.
	list, err := s.since(ctx, s.subject("state", id), seq)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range list {
		last = m.Sequence
		if m.Header.Get(headerEnd) != "" {
			st.Ended = m.Time
			st.End, err = s.opt.Sealer.Open("end/"+id, m.Data)
			if st.End == nil {
				st.End = []byte{}
			}
			return st, last, err
		}
		at := number(m.Header, headerAt)
		text, err := s.opt.Sealer.Open(textPlace(id, at), m.Data)
		if err != nil {
			return nil, 0, err
		}
		if at != len(st.Text) {
			return nil, 0, fmt.Errorf("text of %s: %w: a piece at %d follows %d bytes", id, errForm, at, len(st.Text))
		}
		st.Text = append(st.Text, text...)
		st.Tokens += number(m.Header, headerTokens)
	}
	return st, last, nil
}

// errNodeBehind is returned when a node does not have all messages that the leader has. Another one may.
var errBehind = errors.New("a node of the cluster is behind")

// messagesAfter returns the messages of a subject after a sequence number, with two round trips for each page of
// them. The leader is asked for the last one; any node is then asked for all. If a node lags, the last ones are
// missing, which is noticed.
func (s *link) since(ctx context.Context, subject string, seq uint64) (list []*jetstream.RawStreamMsg, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		list = list[:0]
		last, err := s.leader.GetLastMsg(s.opt.Name, subject, nats.Context(ctx))
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for next := seq + 1; next <= last.Sequence; next = list[len(list)-1].Sequence + 1 {
			before := len(list)
			if list, err = s.batch(ctx, list, subject, next); err != nil {
				return err
			}
			if len(list) == before { // the node lags, or the messages were deleted meanwhile
				return errBehind
			}
		}
		return nil
	})
	return list, err
}

// readPage appends a page of messages of a subject, from a sequence number on, as one node has them.
func (s *link) batch(ctx context.Context, list []*jetstream.RawStreamMsg, subject string, from uint64) ([]*jetstream.RawStreamMsg, error) {
	more, err := jetstreamext.GetBatch(ctx, s.js, s.opt.Name, s.page, jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchSubject(subject))
	if err != nil {
		return list, err
	}
	for m, err := range more {
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
