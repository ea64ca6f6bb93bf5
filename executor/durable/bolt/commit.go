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

// change is something to be committed. It looks before it writes: an error of apply
// means that it has written nothing, or that the whole transaction is given up.
type change struct {
	apply func(*bbolt.Tx) error
	// then is called once the change is durable, in the order of the commits.
	then func()
	// alone is called instead, outside of any transaction.
	alone func() error
	done  chan error
}

// committer commits what waits, in the order in which it comes.
type committer struct {
	*file
	changes chan *change
	ended   chan struct{} // the goroutine that commits has ended
	once    sync.Once
	broken  error // the commit that failed; the goroutine's
}

// close ends the goroutine that commits, after the commit that it is at.
func (s *committer) close() {
	s.once.Do(func() { close(s.closing) })
	<-s.ended
}

// mostChanges is how many changes a commit takes.
const mostChanges = 4096

// update commits a change and returns when it is durable, or has failed.
func (s *committer) update(ctx context.Context, apply func(*bbolt.Tx) error, then func()) error {
	return s.send(ctx, &change{apply: apply, then: then, done: make(chan error, 1)})
}

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

// run is the goroutine that commits.
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

// commit commits a batch. Only its last change may want to be alone.
func (s *committer) commit(batch []*change) {
	last := batch[len(batch)-1]
	if last.alone != nil {
		batch = batch[:len(batch)-1]
	}
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

func (s *committer) refuse(batch []*change, err error) {
	for _, c := range batch {
		c.done <- err
	}
}

// try commits all changes, or none. failed is the change that could not be applied; -1:
// the commit failed.
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
