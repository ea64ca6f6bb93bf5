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
	mu          sync.Mutex
	pending     pendingHeap       // may contain records that have ended since
	openRecords map[string]uint64 // id -> sequence number of a record that has not ended
	claimed     map[string]bool
	added       chan struct{} // closed when a record is added to pending; nil if nobody waits
}

// pendingRecord is a record that waits to be claimed.
type pendingRecord struct {
	seq uint64
	id  string
}

// pendingHeap is a heap of records by sequence number. It implements heap.Interface.
type pendingHeap []pendingRecord

func (q pendingHeap) Len() int           { return len(q) }
func (q pendingHeap) Less(i, j int) bool { return q[i].seq < q[j].seq }
func (q pendingHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *pendingHeap) Push(x any)        { *q = append(*q, x.(pendingRecord)) }

// Pop implements heap.Interface: it removes the last item, where the heap has put the first record.
func (q *pendingHeap) Pop() any {
	items := *q
	popped := items[len(items)-1]
	*q = items[:len(items)-1]
	return popped
}

// add makes the record id claimable, when it has been accepted or released. seq is its number by acceptance; records are
// claimed in that order. It wakes those who wait for a record.
func (c *claims) add(seq uint64, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.openRecords == nil {
		c.openRecords, c.claimed = map[string]uint64{}, map[string]bool{}
	}
	c.openRecords[id] = seq
	heap.Push(&c.pending, pendingRecord{seq, id})
	if c.added != nil {
		close(c.added)
		c.added = nil
	}
}

// removeEnded forgets a record that has ended. Its entry in the heap stays until claimNext skips it.
func (c *claims) removeEnded(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.openRecords, id)
	delete(c.claimed, id)
}

// claimNext claims the claimable record that was accepted first and returns its id. If there is none, it returns "" and
// a channel that is closed when one is added.
func (c *claims) claimNext() (id string, added <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Skip entries of records that have ended since they came into the heap, or have another number by now.
	for len(c.pending) > 0 {
		first := heap.Pop(&c.pending).(pendingRecord)
		if seq, ok := c.openRecords[first.id]; ok && seq == first.seq {
			c.claimed[first.id] = true
			return first.id, nil
		}
	}
	if c.added == nil {
		c.added = make(chan struct{})
	}
	return "", c.added
}

// release makes a claimed record claimable again, at its old place in the order. If the record is not claimed, it
// returns false.
func (c *claims) release(id string) bool {
	c.mu.Lock()
	wasClaimed, seq := c.claimed[id], c.openRecords[id]
	delete(c.claimed, id)
	c.mu.Unlock()
	if wasClaimed {
		c.add(seq, id)
	}
	return wasClaimed
}

// Claim implements durable.Store: it waits for an open record (accepted and without a result) that nobody has claimed,
// claims it for the caller, and returns its state. A damaged record is returned with its id alone and
// durable.ErrDamagedRecord; it stays claimed, or it would come first again for ever.
func (s *Store) Claim(ctx context.Context) (*durable.State, error) {
	for {
		id, added := s.claims.claimNext()
		if id == "" {
			select {
			case <-added:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-s.file.closing:
				return nil, durable.ErrClosed
			}
		}
		state, err := s.Get(ctx, id)
		if errors.Is(err, errCorrupt) { // it stays claimed: if it were released, it would be the first again, for ever
			return &durable.State{Record: durable.Record{ID: id}}, fmt.Errorf("%w: %w", durable.ErrDamagedRecord, err)
		}
		if err != nil {
			s.claims.release(id)
			return nil, err
		}
		if state.Result == nil {
			return state, nil
		}
		// It has ended just now: claim the next one.
	}
}

// Release implements durable.Store: it lets others claim a record that the caller gives up. For a record that is
// not claimed it returns an error only if the record is not open.
func (s *Store) Release(_ context.Context, id string) error {
	if s.claims.release(id) {
		return nil
	}
	return s.file.view(func(tx *bbolt.Tx) error { return checkOpen(tx, id) })
}
