package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// pendingChange is a change that waits to be committed. apply checks before it writes: when it returns an error, it
// has written nothing, or the whole transaction is rolled back.
type change struct {
	apply func(*bbolt.Tx) error
	// onCommit is called once the change is durable, in the order of the commits.
	then func()
	// runAlone is called in place of apply, outside of any transaction.
	alone func() error
	done  chan error
}

// committer commits the changes, in the order in which they come.
type committer struct {
	*file
	changes chan *change
	ended   chan struct{} // closed when commitLoop has returned
	once    sync.Once
	broken  error // the error that ended the store; used by commitLoop only
}

// close ends commitLoop, after the commit that is under way.
func (s *committer) close() {
	s.once.Do(func() { close(s.closing) })
	<-s.ended
}

// maxCommitChanges is the most changes in a commit.
const mostChanges = 4096

// update commits a change and returns when it is durable or has failed.
func (s *committer) update(ctx context.Context, apply func(*bbolt.Tx) error, then func()) error {
	return s.send(ctx, &change{apply: apply, then: then, done: make(chan error, 1)})
}

// send hands a change to commitLoop and returns its result.
func (s *committer) send(ctx context.Context, c *change) error {
	select {
	case s.changes <- c:
		return <-c.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return durable.ErrClosed
	}
}

// commitLoop commits changes until the store is closed.
func (s *committer) run() {
	defer close(s.ended)
	var batch []*change
	most := s.opt.commits
	if most == 0 {
		most = mostChanges
	}
	for {
		select {
		case c := <-s.changes:
			batch = append(batch[:0], c)
		case <-s.closing:
			return
		}
		// Take all changes that wait. One that runs alone ends the batch.
	gather:
		for len(batch) < most && batch[len(batch)-1].alone == nil {
			select {
			case c := <-s.changes:
				batch = append(batch, c)
			default:
				break gather
			}
		}
		s.commit(batch)
	}
}

// commit commits a batch of changes. Only the last one may have runAlone.
func (s *committer) commit(batch []*change) {
	last := batch[len(batch)-1]
	if last.alone != nil {
		batch = batch[:len(batch)-1]
	}

	// Commit all but those that cannot be applied: each of them fails, and the rest is tried again.
	for len(batch) > 0 && s.broken == nil {
		failed, err := s.try(batch)
		if err == nil {
			for _, c := range batch {
				if c.then != nil {
					c.then()
				}
				c.done <- nil
			}
			batch = nil
			break
		}

		// The commit itself failed. Unless the disk is full, the store has ended.
		if failed < 0 {
			if !errors.Is(err, syscall.ENOSPC) {
				s.broken = fmt.Errorf("the store %s failed and has to be opened again: %w", s.path, err)
				s.opt.Log.Error("the store failed", "path", s.path, "error", err)
			}
			s.refuse(batch, err)
			batch = nil
			break
		}
		batch[failed].done <- err
		batch = append(batch[:failed], batch[failed+1:]...)
	}
	s.refuse(batch, s.broken)

	// Run the last change alone.
	if last.alone != nil {
		err := s.broken
		if err == nil {
			err = last.alone()
		}
		if errors.Is(err, errLeft) {
			s.broken = err
		}
		last.done <- err
	}
}

// failAll returns an error for all changes of a batch.
func (s *committer) refuse(batch []*change, err error) {
	for _, c := range batch {
		c.done <- err
	}
}

// commitAll commits all changes, or none. If a change could not be applied, failedIndex is its index. If the commit itself
// failed, it is -1.
func (s *committer) try(batch []*change) (failed int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return -1, err
	}
	for i, c := range batch {
		if err := c.apply(tx); err != nil {
			return i, errors.Join(err, tx.Rollback())
		}
	}
	return -1, tx.Commit()
}
