package kernel

import (
	"math/bits"
	"slices"
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
	due    time.Duration
	rank   uint64 // order among the events of one time: kind in the high bits, then the sequence number
	handle Handle
}

// isBefore reports whether an entry's event comes before that of another one.
func (entry *heapEntry) isBefore(other *heapEntry) bool { return entry.lessBit(other) == 1 }

// lessBit returns 1 if an entry comes before another one, else 0. It has no branch, because the processor could not
// predict it: it subtracts the times and ranks as unsigned numbers of 128 bits, and returns the borrow. The sign bit of
// the times is inverted, which orders signed numbers as unsigned ones.
func (entry *heapEntry) lessBit(other *heapEntry) int {
	const sign = 1 << 63
	_, less := bits.Sub64(entry.rank, other.rank, 0)
	_, less = bits.Sub64(uint64(entry.due)^sign, uint64(other.due)^sign, less)
	return int(less)
}

const sequenceBits = 56 // sequenceBits is the number of bits of a sequence number.

// Len returns the number of events that are neither popped nor removed.
func (q *Queue[P]) Len() int { return len(q.heap) }

// Push adds an event that is due at a time, with its payload, and returns its handle. Events of one time are ordered
// by kind, then by sequence number, which has 56 bits.
func (q *Queue[P]) Push(due time.Duration, kind uint8, sequence int64, payload P) Handle {
	handle, stored := q.Add(due, kind, sequence)
	*stored = payload
	return handle
}

// Add adds an event like Push, without a copy of its payload: it returns a pointer to the payload, which the caller
// fills in before the next call. Events of one time are ordered by kind, then by sequence. The handle names the event
// until it is taken or removed; handles are used again.
func (q *Queue[P]) Add(due time.Duration, kind uint8, sequence int64) (Handle, *P) {
	var handle Handle
	if free := len(q.freeHandles); free > 0 {
		handle = q.freeHandles[free-1]
		q.freeHandles = q.freeHandles[:free-1]
	} else {
		if len(q.positions) == cap(q.positions) {
			q.grow()
		}
		var zero P
		handle = Handle(len(q.positions))
		q.positions = append(q.positions, 0)
		q.payload = append(q.payload, zero)
	}
	// rank has the kind in its high bits and the sequence in its low ones.
	entry := heapEntry{due: due, rank: uint64(kind)<<sequenceBits | uint64(sequence)&(1<<sequenceBits-1), handle: handle}
	q.heap = append(q.heap, entry)
	q.siftUp(len(q.heap)-1, entry)
	return handle, &q.payload[handle]
}

// grow makes room for twice as many events, at least for 64, in all lists at once.
func (q *Queue[P]) grow() {
	events := len(q.positions) + max(64, len(q.positions))
	q.positions, q.payload = slices.Grow(q.positions, events-len(q.positions)), slices.Grow(q.payload, events-len(q.payload))
	q.heap, q.freeHandles = slices.Grow(q.heap, events-len(q.heap)), slices.Grow(q.freeHandles, events-len(q.freeHandles))
}

// Peek returns the time and kind of the next event without taking it. The queue must not be
// empty.
func (q *Queue[P]) Peek() (time.Duration, uint8) {
	return q.heap[0].due, uint8(q.heap[0].rank >> sequenceBits)
}

// PeekSequence returns the sequence number of the next event, which stays in the queue. The queue must not be empty.
func (q *Queue[P]) PeekSequence() int64 { return int64(q.heap[0].rank & (1<<sequenceBits - 1)) }

// PeekPayload returns the payload of the next event, which stays in the queue. The queue must not be empty.
func (q *Queue[P]) PeekPayload() *P { return &q.payload[q.heap[0].handle] }

// Clear removes all events and keeps the memory of the queue.
func (q *Queue[P]) Clear() {
	q.heap, q.positions, q.payload, q.freeHandles = q.heap[:0], q.positions[:0], q.payload[:0], q.freeHandles[:0]
}

// Pop removes the next event and returns its time, its kind and its payload. The queue must not be empty.
func (q *Queue[P]) Pop() (at time.Duration, kind uint8, payload P) {
	entry := q.heap[0]
	q.removeAt(0)
	q.freeHandles = append(q.freeHandles, entry.handle)
	return entry.due, uint8(entry.rank >> sequenceBits), q.payload[entry.handle]
}

// PopInto takes the next event like Pop, and writes its payload into *payload, which saves a copy. The queue must
// not be empty.
func (q *Queue[P]) PopInto(payload *P) (at time.Duration) {
	entry := q.heap[0]
	q.removeAt(0)
	q.freeHandles = append(q.freeHandles, entry.handle)
	*payload = q.payload[entry.handle]
	return entry.due
}

// Move changes the time of a pending event, which keeps its handle, and puts it into its new place of the heap.
func (q *Queue[P]) Move(handle Handle, due time.Duration) {
	index := int(q.positions[handle])
	entry := q.heap[index]
	isEarlier := due < entry.due
	entry.due = due
	if isEarlier {
		q.siftUp(index, entry)
	} else {
		q.siftDown(index, entry)
	}
}

// Remove removes the pending event that has a handle. The handle may then stand for another event.
func (q *Queue[P]) Remove(handle Handle) {
	q.removeAt(int(q.positions[handle]))
	q.freeHandles = append(q.freeHandles, handle)
}

// removeAt removes the entry at an index of the heap: the last entry takes its place and is sifted.
func (q *Queue[P]) removeAt(index int) {
	lastIndex := len(q.heap) - 1
	entry := q.heap[lastIndex]
	q.heap = q.heap[:lastIndex]
	if index == lastIndex {
		return
	}
	if index > 0 && entry.isBefore(&q.heap[(index-1)/arity]) {
		q.siftUp(index, entry)
	} else {
		q.siftDown(index, entry)
	}
}

// arity is the number of children of an entry: four siblings share cache lines
// and halve the depth of a binary heap.
const arity = 4

// siftUp moves an entry from an index of the heap towards the root until its parent is not later.
func (q *Queue[P]) siftUp(index int, entry heapEntry) {
	for index > 0 {
		parent := (index - 1) / arity
		if !entry.isBefore(&q.heap[parent]) {
			break
		}
		q.heap[index] = q.heap[parent]
		q.positions[q.heap[index].handle] = int32(index)
		index = parent
	}
	q.heap[index] = entry
	q.positions[entry.handle] = int32(index)
}

// siftDown moves an entry from an index of the heap away from the root until no child is earlier. To find the earliest
// child it uses no branches, which the processor could not predict: lessBit returns 1 or 0, and i + (j-i)*bit is j if
// the bit is 1, else i.
func (q *Queue[P]) siftDown(index int, entry heapEntry) {
	heapLength := len(q.heap)
	for {
		child := arity*index + 1
		if child >= heapLength {
			break
		}

		// Find the earliest child. Of four, the winners of both pairs, numbered 0 to 3 among the siblings, are compared.
		earliest := child
		if child+arity <= heapLength {
			siblings := (*[arity]heapEntry)(q.heap[child:])
			lowWinner, highWinner := siblings[1].lessBit(&siblings[0]), 2+siblings[3].lessBit(&siblings[2])
			earliest += lowWinner + (highWinner-lowWinner)*siblings[highWinner].lessBit(&siblings[lowWinner])
		} else {
			for sibling := child + 1; sibling < heapLength; sibling++ {
				earliest += (sibling - earliest) * q.heap[sibling].lessBit(&q.heap[earliest])
			}
		}
		if !q.heap[earliest].isBefore(&entry) {
			break
		}
		q.heap[index] = q.heap[earliest]
		q.positions[q.heap[index].handle] = int32(index)
		index = earliest
	}
	q.heap[index] = entry
	q.positions[entry.handle] = int32(index)
}
