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

var _ durable.Shared = (*Store)(nil)

// HandOver implements durable.Shared. The ticket is the subject of the record's acknowledgements.
func (s *Store) Hand(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil {
		return "", fmt.Errorf("%.80q is not held here: %w", id, durable.ErrNotFound)
	}
	h.handed = true
	return h.reply, nil
}

// Adopt implements durable.Shared.
func (s *Store) Adopt(ctx context.Context, id, ticket string) (*durable.State, error) {
	if !strings.HasPrefix(ticket, "$JS.ACK.") {
		return nil, fmt.Errorf("%.80q with ticket %.80q: %w", id, ticket, durable.ErrNotFound)
	}
	req, err := s.record(ctx, id)
	if err != nil {
		return nil, err
	}

	// Send a heartbeat at once, and read the state.
	h := &holding{reply: ticket, seq: req.Sequence}
	s.mu.Lock()
	s.held[id] = h
	s.mu.Unlock()
	err = s.signal(h, signalWorking)
	var st *durable.State
	if err == nil {
		var last uint64
		if st, last, err = s.state(ctx, id, req.Header, req.Data, req.Sequence); err == nil {
			s.saw(id, last)
		}
	}
	switch {
	case err == nil && st.End == nil:
		return st, nil
	case err == nil:
		err = errors.Join(fmt.Errorf("%s: %w", id, durable.ErrFinished), s.settle(ctx, id))
	}
	s.mu.Lock()
	delete(s.held, id)
	s.mu.Unlock()
	return nil, err
}

// newsSubject returns the subject under which the servers publish the messages of a record's state once they are
// stored.
func (s *link) news(id string) string { return s.opt.Name + ".news." + id }

// Follow implements durable.Shared. Only the processes that follow this record receive its messages.
func (s *link) Follow(id string, tell func(durable.Change)) (stop func(), err error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return nil, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	sub, err := s.conn.Subscribe(s.news(id), func(m *nats.Msg) {
		if c, err := s.change(id, m.Header, m.Data); err == nil {
			tell(c)
		} else {
			s.refuse("news of a request", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", id, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // an error means that the connection has ended
}

// FollowEnds implements durable.Shared. If the consumer's server is gone, it continues on another from where it was.
func (s *link) Ends(ctx context.Context, tell func(id string)) error {
	prefix := s.subject("due", "")
	c, err := s.js.OrderedConsumer(ctx, s.opt.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{prefix + "*"}, DeliverPolicy: jetstream.DeliverNewPolicy, HeadersOnly: true})
	if err != nil {
		return fmt.Errorf("follow the ends of requests: %w", err)
	}
	run, err := c.Consume(func(m jetstream.Msg) { tell(strings.TrimPrefix(m.Subject(), prefix)) })
	if err != nil {
		return fmt.Errorf("follow the ends of requests: %w", err)
	}
	context.AfterFunc(ctx, run.Stop)
	return nil
}

// decodeChange decodes a message of a record's state.
func (s *link) change(id string, h nats.Header, data []byte) (c durable.Change, err error) {
	c = durable.Change{ID: id, At: number(h, headerAt), Tokens: number(h, headerTokens), Ended: h.Get(headerEnd) != ""}
	if c.Ended {
		c.End, err = s.opt.Sealer.Open("end/"+id, data)
	} else {
		c.Text, err = s.opt.Sealer.Open(textPlace(id, c.At), data)
	}
	return c, err
}

// talkSubject returns the subject of messages to a name.
func (s *link) talk(name string) string { return s.opt.Name + ".talk." + name }

// Ask implements durable.Shared.
func (s *link) Ask(ctx context.Context, name string, message []byte) ([]byte, error) {
	sealed, err := s.opt.Sealer.Seal("ask/"+name, message)
	if err != nil {
		return nil, err
	}
	m, err := s.conn.RequestWithContext(ctx, s.talk(name), sealed)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%s: %w", name, durable.ErrNobody)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", name, err)
	}
	return s.opt.Sealer.Open("answer/"+name, m.Data)
}

// Answer implements durable.Shared. Once stop has returned, the server knows, and later messages fail with
// durable.ErrNoAnswerer.
func (s *link) Answer(name string, take func(message []byte, reply func([]byte))) (func(), error) {
	sub, err := s.conn.Subscribe(s.talk(name), func(m *nats.Msg) {
		message, err := s.opt.Sealer.Open("ask/"+name, m.Data)
		if err != nil {
			s.refuse("a message to "+name, err)
			return
		}
		take(message, func(answer []byte) {
			sealed, err := s.opt.Sealer.Seal("answer/"+name, answer)
			if err == nil {
				err = m.Respond(sealed)
			}
			if err != nil {
				s.opt.Log.Debug("an answer was not sent", "by", name, "error", err)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("answer as %s: %w", name, err)
	}
	end := func() {
		_ = sub.Unsubscribe()
		_ = s.conn.FlushTimeout(5 * time.Second)
	}
	return end, s.conn.FlushTimeout(5 * time.Second)
}
