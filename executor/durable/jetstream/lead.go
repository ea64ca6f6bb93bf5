package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
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
	term  uint64    // behind the revision that its first write replaced
	seen  uint64    // last revision
	since time.Time // when it was seen first
}

// value is what the leader writes.
func (l *lease) value() []byte { return fmt.Appendf(nil, "%s %d", l.name, l.term) }

// who reads the key as the leader of its stream has it: another node may lag.
func (s *link) who(ctx context.Context) (revision uint64, name string, term uint64, err error) {
	m, err := s.leader.GetLastMsg("KV_"+s.opt.Name, "$KV."+s.opt.Name+"."+leadKey, nats.Context(ctx))
	if missing(err) {
		return 0, "", 0, nil
	}
	if err != nil {
		return 0, "", 0, fmt.Errorf("read who plans: %w", err)
	}
	name, t, _ := strings.Cut(string(m.Data), " ")
	term, _ = strconv.ParseUint(t, 10, 64) // none: nobody leads
	return m.Sequence, name, term, nil
}

// Term is that of the process that leads. It is there before that process leads.
func (s *link) Term(ctx context.Context) (uint64, error) {
	_, _, term, err := s.who(ctx)
	return term, err
}

// Lead leads whenever no other process does.
func (s *link) Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error {
	l := &lease{link: s, name: nuid.Next()}
	for {
		began := time.Now()
		revision, err := l.take(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, durable.ErrClosed) {
			s.opt.Log.Warn("whether another process plans is not known", "error", err)
		}
		if revision > 0 {
			l.keep(ctx, began, revision, func(ctx context.Context) { lead(ctx, l.term) })
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

// take takes the key if it is free; revision 0: it is not. One write wins the revision
// that it replaces, and later ones are greater: so are terms.
func (l *lease) take(ctx context.Context) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.opt.AckWait/3)
	defer cancel()
	last, name, _, err := l.who(ctx)
	if err != nil {
		return 0, err
	}
	if last != l.seen {
		l.seen, l.since = last, time.Now()
	}
	if name != "" && name != l.name && time.Since(l.since) < l.opt.AckWait {
		return 0, nil
	}
	l.term = last + 1
	revision, err = l.bucket.Update(ctx, leadKey, l.value(), last)
	if moved(err) {
		return 0, nil
	}
	return revision, err
}

// keep writes the key while lead runs. The last write was not before written. It
// ends lead's context before the key can count as free elsewhere.
func (l *lease) keep(ctx context.Context, written time.Time, revision uint64, lead func(context.Context)) {
	ctx, lost := context.WithCancel(ctx)
	defer lost()
	var done sync.WaitGroup
	done.Go(func() {
		defer lost()
		for time.Since(written) < l.opt.AckWait*2/3 {
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
	last, name, term, err := l.who(ctx)
	if err != nil || name != l.name || term != l.term {
		return 0, err
	}
	return last, nil
}
