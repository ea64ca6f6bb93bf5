package kernel

import (
	"math/bits"
	"time"
)

// Handle names a pending event. It is reused after the event was popped or removed.
type Handle int32

// None is the handle of no event.
const None Handle = -1

// Queue is the heap. P is the payload of an event. The zero value is ready for use.
type Queue[P any] struct {
	heap    []entry
	pos     []int32  // index into heap, by handle
	payload []P      // by handle
	free    []Handle // handles without an event
}

// entry is an event without its payload: sifting moves entries only.
type entry struct {
	at     time.Duration
	order  uint64 // kind in the high bits, then the sequence number
	handle Handle
}

// isBefore reports whether a comes before b.
func (a *entry) before(b *entry) bool { return a.less(b) == 1 }

// lessBit returns 1 if a comes before b, else 0. It has no branch, because the processor could
// not predict it.
func (a *entry) less(b *entry) int {
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
	h, own := q.Add(at, kind, sequence)
	*own = payload
	return h
}

// Add is Push without a copy of the payload: the caller fills it in before the next call.
func (q *Queue[P]) Add(at time.Duration, kind uint8, sequence int64) (Handle, *P) {
	var h Handle
	if n := len(q.free); n > 0 {
		h = q.free[n-1]
		q.free = q.free[:n-1]
	} else {
		var none P
		h = Handle(len(q.pos))
		q.pos = append(q.pos, 0)
		q.payload = append(q.payload, none)
	}
	e := entry{at: at, order: uint64(kind)<<sequenceBits | uint64(sequence)&(1<<sequenceBits-1), handle: h}
	q.heap = append(q.heap, e)
	q.up(len(q.heap)-1, e)
	return h, &q.payload[h]
}

// Next returns the time and kind of the next event without taking it. The queue must not be
// empty.
func (q *Queue[P]) Next() (time.Duration, uint8) {
	return q.heap[0].at, uint8(q.heap[0].order >> sequenceBits)
}

// NextSequence returns the sequence number of the next event. The queue must not be empty.
func (q *Queue[P]) NextSequence() int64 { return int64(q.heap[0].order & (1<<sequenceBits - 1)) }

// Pop takes the next event. The queue must not be empty.
func (q *Queue[P]) Pop() (at time.Duration, kind uint8, payload P) {
	e := q.heap[0]
	q.drop(0)
	q.free = append(q.free, e.handle)
	return e.at, uint8(e.order >> sequenceBits), q.payload[e.handle]
}

// PopInto is Pop without a second copy of the payload.
func (q *Queue[P]) PopInto(payload *P) (at time.Duration) {
	e := q.heap[0]
	q.drop(0)
	q.free = append(q.free, e.handle)
	*payload = q.payload[e.handle]
	return e.at
}

// Move changes the time of a pending event.
func (q *Queue[P]) Move(h Handle, at time.Duration) {
	i := int(q.pos[h])
	e := q.heap[i]
	earlier := at < e.at
	e.at = at
	if earlier {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

// Remove removes a pending event.
func (q *Queue[P]) Remove(h Handle) {
	q.drop(int(q.pos[h]))
	q.free = append(q.free, h)
}

// removeAt removes the entry at index i: the last entry takes its place and is sifted.
func (q *Queue[P]) drop(i int) {
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if i == last {
		return
	}
	if i > 0 && e.before(&q.heap[(i-1)/arity]) {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

// arity is the number of children of an entry: four siblings share cache lines
// and halve the depth of a binary heap.
const arity = 4

// up moves e from index i towards the root until its parent is not later.
func (q *Queue[P]) up(i int, e entry) {
	for i > 0 {
		parent := (i - 1) / arity
		if !e.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		q.pos[q.heap[i].handle] = int32(i)
		i = parent
	}
	q.heap[i] = e
	q.pos[e.handle] = int32(i)
}

// down moves e from index i away from the root until no child is earlier.
func (q *Queue[P]) down(i int, e entry) {
	n := len(q.heap)
	for {
		child := arity*i + 1
		if child >= n {
			break
		}

		// Find the first child; four of them are compared without a branch.
		least := child
		if child+arity <= n {
			s := (*[arity]entry)(q.heap[child:])
			i, j := s[1].less(&s[0]), 2+s[3].less(&s[2])
			least += i + (j-i)*s[j].less(&s[i])
		} else {
			for c := child + 1; c < n; c++ {
				least += (c - least) * q.heap[c].less(&q.heap[least])
			}
		}
		if !q.heap[least].before(&e) {
			break
		}
		q.heap[i] = q.heap[least]
		q.pos[q.heap[i].handle] = int32(i)
		i = least
	}
	q.heap[i] = e
	q.pos[e.handle] = int32(i)
}
