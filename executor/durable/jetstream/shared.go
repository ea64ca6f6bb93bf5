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

// HandOver implements durable.Shared: it returns a ticket with which another process can adopt a record that this
// process has claimed. The ticket is the NATS subject to which the holder of the record sends heartbeats and its end.
// The claim stays here, marked as handed over: the other process now stores the text.
func (s *Store) HandOver(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.claims[id]
	if held == nil {
		return "", fmt.Errorf("%.80q is not held here: %w", id, durable.ErrNotFound)
	}
	held.handedOver = true
	return held.ackSubject, nil
}

// Adopt implements durable.Shared: it takes over the claim on a record that another process has handed over, by the
// ticket of its HandOver, and returns the record's state. If the record has ended, it returns durable.ErrFinished.
func (s *Store) Adopt(ctx context.Context, id, ticket string) (*durable.State, error) {
	if !strings.HasPrefix(ticket, "$JS.ACK.") {
		return nil, fmt.Errorf("%.80q with ticket %.80q: %w", id, ticket, durable.ErrNotFound)
	}
	req, err := s.requestMessage(ctx, id)
	if err != nil {
		return nil, err
	}

	// Send a heartbeat at once, and read the state.
	held := &claim{ackSubject: ticket, seq: req.Sequence}
	s.mu.Lock()
	s.claims[id] = held
	s.mu.Unlock()
	err = s.signal(held, signalWorking)
	var st *durable.State
	if err == nil {
		var lastSeen uint64
		if st, lastSeen, err = s.readState(ctx, id, req.Header, req.Data, req.Sequence); err == nil {
			s.noteSeen(id, lastSeen)
		}
	}
	switch {
	case err == nil && st.Result == nil:
		return st, nil
	case err == nil:
		err = errors.Join(fmt.Errorf("%s: %w", id, durable.ErrFinished), s.noteEnd(ctx, id))
	}
	s.mu.Lock()
	delete(s.claims, id)
	s.mu.Unlock()
	return nil, err
}

// newsSubject returns the subject under which the servers publish the messages of a record's state once they are
// stored.
func (s *clusterClient) newsSubject(id string) string { return s.opt.Name + ".news." + id }

// Follow implements durable.Shared: it calls notify with every change of a record (new text, or its end), on a goroutine
// of the connection, until stop is called. Changes before the call are not among them. Messages that are not of this
// program are counted and dropped.
func (s *clusterClient) Follow(id string, notify func(durable.Change)) (stop func(), err error) {
	if (&durable.Record{ID: id}).Check() != nil {
		return nil, fmt.Errorf("%.80q: %w", id, durable.ErrNotFound)
	}
	sub, err := s.conn.Subscribe(s.newsSubject(id), func(m *nats.Msg) {
		if c, err := s.decodeChange(id, m.Header, m.Data); err == nil {
			notify(c)
		} else {
			s.countRefused("news of a request", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", id, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // an error means that the connection has ended
}

// FollowEnds implements durable.Shared: it calls notify with the id of every record that ends, until ctx ends. If
// the server that it asks is gone, it continues on another from where it was.
func (s *clusterClient) FollowEnds(ctx context.Context, notify func(id string)) error {
	prefix := s.subject("due", "")
	c, err := s.js.OrderedConsumer(ctx, s.opt.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{prefix + "*"}, DeliverPolicy: jetstream.DeliverNewPolicy, HeadersOnly: true})
	if err != nil {
		return fmt.Errorf("follow the ends of requests: %w", err)
	}
	run, err := c.Consume(func(m jetstream.Msg) { notify(strings.TrimPrefix(m.Subject(), prefix)) })
	if err != nil {
		return fmt.Errorf("follow the ends of requests: %w", err)
	}
	context.AfterFunc(ctx, run.Stop)
	return nil
}

// decodeChange decodes a message about a record: a piece of its text, or its result.
func (s *clusterClient) decodeChange(id string, h nats.Header, data []byte) (c durable.Change, err error) {
	c = durable.Change{ID: id, Offset: intHeader(h, headerOffset), Tokens: intHeader(h, headerTokens), Ended: h.Get(headerEnd) != ""}
	if c.Ended {
		c.Result, err = s.opt.Sealer.Open("end/"+id, data)
	} else {
		c.Text, err = s.opt.Sealer.Open(textLocation(id, c.Offset), data)
	}
	return c, err
}

// talkSubject returns the subject of messages to a name.
func (s *clusterClient) talkSubject(name string) string { return s.opt.Name + ".talk." + name }

// Ask implements durable.Shared: it sends a message to the process that answers under a name, and returns the
// answer. Without such a process it returns durable.ErrNoAnswerer.
func (s *clusterClient) Ask(ctx context.Context, name string, message []byte) ([]byte, error) {
	sealed, err := s.opt.Sealer.Seal("ask/"+name, message)
	if err != nil {
		return nil, err
	}
	m, err := s.conn.RequestWithContext(ctx, s.talkSubject(name), sealed)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%s: %w", name, durable.ErrNoAnswerer)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", name, err)
	}
	return s.opt.Sealer.Open("answer/"+name, m.Data)
}

// Answer implements durable.Shared: it calls take with each message that other processes send to a name; take
// calls reply with the answer. Once the returned function has ended that, later messages fail with
// durable.ErrNoAnswerer.
func (s *clusterClient) Answer(name string, take func(message []byte, reply func([]byte))) (func(), error) {
	sub, err := s.conn.Subscribe(s.talkSubject(name), func(m *nats.Msg) {
		message, err := s.opt.Sealer.Open("ask/"+name, m.Data)
		if err != nil {
			s.countRefused("a message to "+name, err)
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
	unsubscribe := func() {
		_ = sub.Unsubscribe()
		_ = s.conn.FlushTimeout(5 * time.Second)
	}
	return unsubscribe, s.conn.FlushTimeout(5 * time.Second)
}
