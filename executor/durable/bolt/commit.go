package bolt

import (
	"cmp"
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
type pendingChange struct {
	apply func(*bbolt.Tx) error
	// onCommit is called once the change is durable, in the order of the commits.
	onCommit func()
	// runAlone is called in place of apply, outside of any transaction.
	runAlone func() error
	result   chan error
}

// committer commits the changes, in the order in which they come.
type committer struct {
	file      *storeFile
	changes   chan *pendingChange
	stopped   chan struct{} // closed when commitLoop has returned
	closeOnce sync.Once
	broken    error // the error that ended the store; used by commitLoop only
}

// close ends commitLoop, after the commit that is under way.
func (s *committer) close() {
	s.closeOnce.Do(func() { close(s.file.closing) })
	<-s.stopped
}

// maxCommitChanges is the most changes in a commit.
const maxCommitChanges = 4096

// update commits a change and returns when it is durable or has failed.
func (s *committer) update(ctx context.Context, apply func(*bbolt.Tx) error, onCommit func()) error {
	return s.send(ctx, &pendingChange{apply: apply, onCommit: onCommit, result: make(chan error, 1)})
}

// send hands a change to commitLoop, waits until it is on disk, and returns its error. If ctx ends before commitLoop
// takes the change, it is not made; later, ctx no longer matters.
func (s *committer) send(ctx context.Context, c *pendingChange) error {
	select {
	case s.changes <- c:
		return <-c.result
	case <-ctx.Done():
		return ctx.Err()
	case <-s.file.closing:
		return durable.ErrClosed
	}
}

// commitLoop is the one goroutine that writes to the file, until the store closes. It commits all changes that wait in
// one transaction (up to maxChanges), because every commit has to wait for the disk.
func (s *committer) commitLoop() {
	defer close(s.stopped)
	var batch []*pendingChange
	maxChanges := cmp.Or(s.file.opt.maxChanges, maxCommitChanges)
	for {
		select {
		case c := <-s.changes:
			batch = append(batch[:0], c)
		case <-s.file.closing:
			return
		}
		// Take all changes that wait. One that runs alone ends the batch.
	gather:
		for len(batch) < maxChanges && batch[len(batch)-1].runAlone == nil {
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

// commit commits a batch of changes and sends each its result, nil or the error. The last one may be one that runs alone
// (runAlone), such as compacting the file; it runs after the others are committed. After a failed write the store is
// broken: all further changes fail.
func (s *committer) commit(batch []*pendingChange) {
	lastChange := batch[len(batch)-1]
	if lastChange.runAlone != nil {
		batch = batch[:len(batch)-1]
	}

	// Commit the batch. If one change cannot be applied, it alone fails, and the rest is tried again without it.
	for len(batch) > 0 && s.broken == nil {
		failedIndex, err := s.commitAll(batch)
		if err == nil {
			for _, c := range batch {
				if c.onCommit != nil {
					c.onCommit()
				}
				c.result <- nil
			}
			batch = nil
			break
		}

		// The commit itself failed. Unless the disk is full, the store has ended.
		if failedIndex < 0 {
			if !errors.Is(err, syscall.ENOSPC) {
				s.broken = fmt.Errorf("the store %s failed and has to be opened again: %w", s.file.path, err)
				s.file.opt.Log.Error("the store failed", "path", s.file.path, "error", err)
			}
			s.failAll(batch, err)
			batch = nil
			break
		}
		batch[failedIndex].result <- err
		batch = append(batch[:failedIndex], batch[failedIndex+1:]...)
	}
	s.failAll(batch, s.broken)

	// Run the last change alone.
	if lastChange.runAlone != nil {
		err := s.broken
		if err == nil {
			err = lastChange.runAlone()
		}
		if errors.Is(err, errStaleFile) {
			s.broken = err
		}
		lastChange.result <- err
	}
}

// failAll returns an error for all changes of a batch.
func (s *committer) failAll(batch []*pendingChange, err error) {
	for _, c := range batch {
		c.result <- err
	}
}

// commitAll commits all changes in one transaction, or none. failedIndex is the index of a change that could not be
// applied, or -1: then err is that of the transaction itself, or nil.
func (s *committer) commitAll(batch []*pendingChange) (failedIndex int, err error) {
	tx, err := s.file.db.Begin(true)
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
