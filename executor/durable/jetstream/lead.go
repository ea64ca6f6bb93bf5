package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"inferplan/executor/durable"
)

// leadKey has the leader's name and term; empty: there is none. It stands apart from
// values.
const leadKey = "lead"

// lease is a try to lead. No clocks are compared: who leads writes the key from time to
// time, and it is free once it was seen to stay as it is for AckWait.
type lease struct {
	*link
	name  string
	term  uint64    // 0: not known yet
	seen  uint64    // last revision
	since time.Time // when it was seen first
}

// value is what the leader writes.
func (l *lease) value() []byte { return fmt.Appendf(nil, "%s %d", l.name, l.term) }

// Term is that of the process that leads.
func (s *link) Term(ctx context.Context) (uint64, error) {
	e, err := s.bucket.Get(ctx, leadKey)
	if missing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read who plans: %w", err)
	}
	_, term, _ := strings.Cut(string(e.Value()), " ")
	n, _ := strconv.ParseUint(term, 10, 64) // nobody leads, or the term is not written yet
	return n, nil
}

// Lead leads whenever no other process does.
func (s *link) Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error {
	l := &lease{link: s, name: nuid.Next()}
	for {
		term, err := l.take(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, durable.ErrClosed) {
			s.opt.Log.Warn("whether another process plans is not known", "error", err)
		}
		if term > 0 {
			l.keep(ctx, term, func(ctx context.Context) { lead(ctx, term) })
		}
		select {
		case <-time.After(s.opt.AckWait / 10):
		case <-ctx.Done():
			return nil
		case <-s.ctx.Done():
			return durable.ErrClosed
		}
	}
}

// take takes the key if it is free; the revision is the term, 0: it is not.
func (l *lease) take(ctx context.Context) (term uint64, err error) {
	l.term = 0
	e, err := l.bucket.Get(ctx, leadKey)
	switch {
	case missing(err):
		term, err = l.bucket.Create(ctx, leadKey, l.value())
		if errors.Is(err, jetstream.ErrKeyExists) {
			return 0, nil
		}
		return term, err
	case err != nil:
		return 0, fmt.Errorf("read who plans: %w", err)
	}
	if e.Revision() != l.seen {
		l.seen, l.since = e.Revision(), time.Now()
	}
	if len(e.Value()) > 0 && time.Since(l.since) < l.opt.AckWait {
		return 0, nil
	}
	term, err = l.bucket.Update(ctx, leadKey, l.value(), e.Revision())
	if moved(err) {
		return 0, nil
	}
	return term, err
}

// keep writes the key while lead runs. It ends lead's context before the key can count
// as free elsewhere.
func (l *lease) keep(ctx context.Context, revision uint64, lead func(context.Context)) {
	ctx, lost := context.WithCancel(ctx)
	defer lost()
	l.term = revision
	if next, err := l.renew(ctx, revision); next > 0 { // agents find the term there
		revision = next
	} else if err == nil {
		return
	}
	var done sync.WaitGroup
	done.Go(func() {
		defer lost()
		for written := time.Now(); time.Since(written) < l.opt.AckWait*2/3; {
			select {
			case <-time.After(l.opt.AckWait / 6):
			case <-ctx.Done():
				return
			}
			began := time.Now()
			next, err := l.renew(ctx, revision)
			if next > 0 {
				written, revision = began, next
			} else if err == nil {
				l.opt.Log.Warn("another process plans now")
				return
			}
		}
		l.opt.Log.Warn("this process plans no more: the queue does not answer")
	})
	lead(ctx)
	lost()
	done.Wait()
	free, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.bucket.Update(free, leadKey, nil, revision) // else it is free later
}

// renew writes the key once more and gives the new revision; 0: it failed, and without an
// error another process has written it.
func (l *lease) renew(ctx context.Context, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opt.AckWait/3)
	defer cancel()
	next, err := l.bucket.Update(ctx, leadKey, l.value(), revision)
	if err == nil || !moved(err) {
		return next, err
	}
	// A write whose answer was lost counts, too.
	e, err := l.bucket.Get(ctx, leadKey)
	if err != nil || string(e.Value()) != string(l.value()) {
		return 0, err
	}
	return e.Revision(), nil
}
