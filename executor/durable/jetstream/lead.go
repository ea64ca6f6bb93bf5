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

// leadKey is the key with the leader's name and term. Its value is empty if there is no leader. It is outside of the
// range of values.
const leadKey = "lead"

// lease is a process's attempt to lead. Clocks of machines are not compared: the leader writes the key from time to
// time, and the key is free once another process has seen it unchanged for AckWait.
type lease struct {
	client       *clusterClient
	name         string
	term         uint64    // greater than the revision that its first write replaced
	seenRevision uint64    // revision of the key that was seen last
	seenSince    time.Time // when seenRevision was seen first
}

// value returns what the leader writes.
func (l *lease) value() []byte { return fmt.Appendf(nil, "%s %d", l.name, l.term) }

// readLeader returns which process leads (plans for all) by the key in the cluster: the key's revision, the
// process's name and its term of office. It asks the leader of the key's stream, because other nodes may lag. If
// no process leads, the term is 0.
func (s *clusterClient) readLeader(ctx context.Context) (revision uint64, name string, term uint64, err error) {
	m, err := s.leader.GetLastMsg("KV_"+s.opt.Name, "$KV."+s.opt.Name+"."+leadKey, nats.Context(ctx))
	if isMissing(err) {
		return 0, "", 0, nil
	}
	if err != nil {
		return 0, "", 0, fmt.Errorf("read who plans: %w", err)
	}
	name, t, _ := strings.Cut(string(m.Data), " ")
	term, _ = strconv.ParseUint(t, 10, 64) // an empty value gives 0
	return m.Sequence, name, term, nil
}

// Term implements durable.Shared. The term of a leader is there before it starts to lead.
func (s *clusterClient) Term(ctx context.Context) (uint64, error) {
	_, _, term, err := s.readLeader(ctx)
	return term, err
}

// Lead implements durable.Shared: it calls lead whenever no other process leads, until ctx ends. The context of
// lead ends when another process may take over. Terms grow from leader to leader.
func (s *clusterClient) Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error {
	l := &lease{client: s, name: nuid.Next()}
	for {
		startedAt := time.Now()
		revision, err := l.acquire(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, durable.ErrClosed) {
			s.opt.Log.Warn("whether another process plans is not known", "error", err)
		}
		if revision > 0 {
			l.hold(ctx, startedAt, revision, func(ctx context.Context) { lead(ctx, l.term) })
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

// acquire makes this process the leader if there is none, and returns the key's revision. Otherwise it returns 0.
// Only one write can replace a revision, and later revisions are greater, so terms grow.
func (l *lease) acquire(ctx context.Context) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.client.opt.AckWait/3)
	defer cancel()
	lastRevision, name, _, err := l.client.readLeader(ctx)
	if err != nil {
		return 0, err
	}

	// The key is free if it names nobody, or has not changed for AckWait.
	if lastRevision != l.seenRevision {
		l.seenRevision, l.seenSince = lastRevision, time.Now()
	}
	if name != "" && name != l.name && time.Since(l.seenSince) < l.client.opt.AckWait {
		return 0, nil
	}
	l.term = lastRevision + 1 // a lower bound of the revision that the write gets, so it grows from leader to leader
	revision, err = l.client.bucket.Update(ctx, leadKey, l.value(), lastRevision)
	if isConflict(err) {
		return 0, nil
	}
	return revision, err
}

// hold runs lead and renews the key meanwhile, so that this process stays the leader. lastWrite is a time just before
// the last write of the key, whose revision is given. Other processes find the key free after AckWait without a write.
// The context of lead ends after two thirds of that, so two processes never lead at once.
func (l *lease) hold(ctx context.Context, lastWrite time.Time, revision uint64, lead func(context.Context)) {
	ctx, stopLeading := context.WithCancel(ctx)
	defer stopLeading()
	var renewing sync.WaitGroup

	// Renew the key. Without a write for two thirds of AckWait, give up.
	renewing.Go(func() {
		defer stopLeading()
		for time.Since(lastWrite) < l.client.opt.AckWait*2/3 {
			select {
			case <-time.After(l.client.opt.AckWait / 6):
			case <-ctx.Done():
				return
			}
			startedAt := time.Now()
			renewed, err := l.renew(ctx, revision)
			if renewed > 0 {
				lastWrite, revision = startedAt, renewed
			} else if err == nil {
				l.client.opt.Log.Warn("another process plans now")
				return
			}
		}
		l.client.opt.Log.Warn("this process plans no more: the queue does not answer")
	})
	lead(ctx)
	stopLeading()
	renewing.Wait()

	// Free the key, so that the next process need not wait.
	releaseCtx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.client.bucket.Update(releaseCtx, leadKey, nil, revision) // if this fails, the key is free later
}

// renew writes the key of the leader (the process that plans) again, so that the key does not expire, and returns its
// new revision. revision is that of the last write. If another process has written the key since, which ends the lead,
// renew returns 0 without an error.
func (l *lease) renew(ctx context.Context, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.client.opt.AckWait/3)
	defer cancel()
	renewed, err := l.client.bucket.Update(ctx, leadKey, l.value(), revision)
	if err == nil || !isConflict(err) {
		return renewed, err
	}
	// The write may have succeeded although its answer was lost.
	lastRevision, name, term, err := l.client.readLeader(ctx)
	if err != nil || name != l.name || term != l.term {
		return 0, err
	}
	return lastRevision, nil
}
