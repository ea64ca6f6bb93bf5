package kernel

import (
	"math/bits"
	"time"
)

// Handle names a pending event. It is reused after the event was popped or removed.
type Handle int32

// NoEvent is the handle of no event.
const NoEvent Handle = -1

// Queue is the heap. P is the payload of an event. The zero value is ready for use.
type Queue[P any] struct {
	heap        []heapEntry
	positions   []int32  // index into heap, by handle
	payload     []P      // by handle
	freeHandles []Handle // handles without an event
}

// heapEntry is an event without its payload: sifting moves entries only.
type heapEntry struct {
	at     time.Duration
	order  uint64 // kind in the high bits, then the sequence number
	handle Handle
}

// isBefore reports whether a comes before b.
func (a *heapEntry) isBefore(b *heapEntry) bool { return a.lessBit(b) == 1 }

// lessBit returns 1 if a comes before b, else 0. It has no branch, because the processor could
// not predict it.
func (a *heapEntry) lessBit(b *heapEntry) int {
	const sign = 1 << 63
	_, less := bits.Sub64(a.order, b.order, 0)
	_, less = bits.Sub64(uint64(a.at)^sign, uint64(b.at)^sign, less)
	return int(less)
}

const sequenceBits = 56 // sequenceBits is the number of bits of a sequence number.

// Len returns the number of pending events.
func (q *Queue[P]) Len() int { return len(q.heap) }

// Push adds an event and returns its handle. Sequence numbers have 56 bits.
func (q *Queue[P]) Push(at time.Duration, kind uint8, sequence int64, payload P) Handle {
	h, stored := q.Add(at, kind, sequence)
	*stored = payload
	return h
}

// Add adds an event like Push, without a copy of its payload: it returns a pointer, and the caller fills it in
// before the next call. Events of one time are ordered by kind, then by sequence.
func (q *Queue[P]) Add(at time.Duration, kind uint8, sequence int64) (Handle, *P) {
	var h Handle
	if n := len(q.freeHandles); n > 0 {
		h = q.freeHandles[n-1]
		q.freeHandles = q.freeHandles[:n-1]
	} else {
		var zero P
		h = Handle(len(q.positions))
		q.positions = append(q.positions, 0)
		q.payload = append(q.payload, zero)
	}
	e := heapEntry{at: at, order: uint64(kind)<<sequenceBits | uint64(sequence)&(1<<sequenceBits-1), handle: h}
	q.heap = append(q.heap, e)
	q.siftUp(len(q.heap)-1, e)
	return h, &q.payload[h]
}

// Peek returns the time and kind of the next event without taking it. The queue must not be
// empty.
func (q *Queue[P]) Peek() (time.Duration, uint8) {
	return q.heap[0].at, uint8(q.heap[0].order >> sequenceBits)
}

// PeekSequence returns the sequence number of the next event. The queue must not be empty.
func (q *Queue[P]) PeekSequence() int64 { return int64(q.heap[0].order & (1<<sequenceBits - 1)) }

// Pop takes the next event. The queue must not be empty.
func (q *Queue[P]) Pop() (at time.Duration, kind uint8, payload P) {
	e := q.heap[0]
	q.removeAt(0)
	q.freeHandles = append(q.freeHandles, e.handle)
	return e.at, uint8(e.order >> sequenceBits), q.payload[e.handle]
}

// PopInto takes the next event like Pop, and writes its payload into *payload, which saves a copy. The queue must
// not be empty.
func (q *Queue[P]) PopInto(payload *P) (at time.Duration) {
	e := q.heap[0]
	q.removeAt(0)
	q.freeHandles = append(q.freeHandles, e.handle)
	*payload = q.payload[e.handle]
	return e.at
}

// Move changes the time of a pending event, which keeps its handle, and puts it into its new place of the heap.
func (q *Queue[P]) Move(h Handle, at time.Duration) {
	i := int(q.positions[h])
	e := q.heap[i]
	earlier := at < e.at
	e.at = at
	if earlier {
		q.siftUp(i, e)
	} else {
		q.siftDown(i, e)
	}
}

// Remove removes a pending event.
func (q *Queue[P]) Remove(h Handle) {
	q.removeAt(int(q.positions[h]))
	q.freeHandles = append(q.freeHandles, h)
}

// removeAt removes the entry at index i: the last entry takes its place and is sifted.
func (q *Queue[P]) removeAt(i int) {
	lastIndex := len(q.heap) - 1
	e := q.heap[lastIndex]
	q.heap = q.heap[:lastIndex]
	if i == lastIndex {
		return
	}
	if i > 0 && e.isBefore(&q.heap[(i-1)/arity]) {
		q.siftUp(i, e)
	} else {
		q.siftDown(i, e)
	}
}

// arity is the number of children of an entry: four siblings share cache lines
// and halve the depth of a binary heap.
const arity = 4

// siftUp moves e from index i towards the root until its parent is not later.
func (q *Queue[P]) siftUp(i int, e heapEntry) {
	for i > 0 {
		parent := (i - 1) / arity
		if !e.isBefore(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		q.positions[q.heap[i].handle] = int32(i)
		i = parent
	}
	q.heap[i] = e
	q.positions[e.handle] = int32(i)
}

// siftDown moves e from index i away from the root until no child is earlier.
func (q *Queue[P]) siftDown(i int, e heapEntry) {
	n := len(q.heap)
	for {
		child := arity*i + 1
		if child >= n {
			break
		}

		// Find the first child; four of them are compared without a branch.
		smallest := child
		if child+arity <= n {
			s := (*[arity]heapEntry)(q.heap[child:])
			i, j := s[1].lessBit(&s[0]), 2+s[3].lessBit(&s[2])
			smallest += i + (j-i)*s[j].lessBit(&s[i])
		} else {
			for c := child + 1; c < n; c++ {
				smallest += (c - smallest) * q.heap[c].lessBit(&q.heap[smallest])
			}
		}
		if !q.heap[smallest].isBefore(&e) {
			break
		}
		q.heap[i] = q.heap[smallest]
		q.positions[q.heap[i].handle] = int32(i)
		i = smallest
	}
	q.heap[i] = e
	q.positions[e.handle] = int32(i)
}
