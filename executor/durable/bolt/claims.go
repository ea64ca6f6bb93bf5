package bolt

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// claims holds the records that have not ended: those that wait to be claimed, and those that are claimed.
type claims struct {
	mu      sync.Mutex
	waiting queue             // may contain records that have ended since
	open    map[string]uint64 // id -> sequence number of a record that has not ended
	held    map[string]bool
	more    chan struct{} // closed when a record is added to pending; nil if nobody waits
}

// pendingRecord is a record that waits to be claimed.
type waiting struct {
	seq uint64
	id  string
}

// pendingHeap is a heap of records by sequence number. It implements heap.Interface.
type queue []waiting

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].seq < q[j].seq }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(waiting)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// add makes a record available to be claimed.
func (c *claims) add(seq uint64, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.held = map[string]uint64{}, map[string]bool{}
	}
	c.open[id] = seq
	heap.Push(&c.waiting, waiting{seq, id})
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// removeEnded removes a record that has ended.
func (c *claims) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, id)
	delete(c.held, id)
}

// claimNext claims the next record and returns its id. If there is none, it returns a channel that is closed when one
// is added.
func (c *claims) take() (id string, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Skip records that have ended, or were added again, since they came into the heap.
	for len(c.waiting) > 0 {
		next := heap.Pop(&c.waiting).(waiting)
		if seq, ok := c.open[next.id]; ok && seq == next.seq {
			c.held[next.id] = true
			return next.id, nil
		}
	}
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return "", c.more
}

// release makes a claimed record available again. It returns false if the record is not claimed.
func (c *claims) release(id string) bool {
	c.mu.Lock()
	held, seq := c.held[id], c.open[id]
	delete(c.held, id)
	c.mu.Unlock()
	if held {
		c.add(seq, id)
	}
	return held
}

// Claim implements durable.Store.
func (s *Store) Claim(ctx context.Context) (*durable.State, error) {
	for {
		id, more := s.claims.take()
		if id == "" {
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-s.closing:
				return nil, durable.ErrClosed
			}
		}
		state, err := s.Get(ctx, id)
		if errors.Is(err, errCorrupt) { // it stays claimed: if it were released, it would be the first again, for ever
			return &durable.State{Record: durable.Record{ID: id}}, fmt.Errorf("%w: %w", durable.ErrRecord, err)
		}
		if err != nil {
			s.claims.release(id)
			return nil, err
		}
		if state.End == nil {
			return state, nil
		}
		// It has ended just now: claim the next one.
	}
}

// Release implements durable.Store.
func (s *Store) Release(_ context.Context, id string) error {
	if s.claims.release(id) {
		return nil
	}
	return s.view(func(tx *bbolt.Tx) error { return unfinished(tx, id) })
}
