package drop

import (
	"math/bits"
	"time"

	"inferplan/policy/flow"
)

// doubleEndedQueue is a priority queue by key with access to both ends: a min-max heap (Atkinson et al., 1986). On even
// levels an entry is the minimum of its subtree, on odd levels the maximum.
type doubleEndedQueue struct{ list []flow.QueueEntry }

func (q *doubleEndedQueue) len() int              { return len(q.list) }
func (q *doubleEndedQueue) min() *flow.QueueEntry { return &q.list[0] }
func (q *doubleEndedQueue) isLess(a, b int) bool  { return q.list[a].Key < q.list[b].Key }
func (q *doubleEndedQueue) swap(a, b int)         { q.list[a], q.list[b] = q.list[b], q.list[a] }

// maxIndex returns the index of the entry with the greatest key.
func (q *doubleEndedQueue) maxIndex() int {
	switch {
	case len(q.list) < 2:
		return 0
	case len(q.list) > 2 && q.isLess(1, 2):
		return 2
	}
	return 1
}

func (q *doubleEndedQueue) max() *flow.QueueEntry { return &q.list[q.maxIndex()] }

// isMinLevel returns true if an index is on a level of minima.
func isMinLevel(i int) bool { return bits.Len(uint(i+1))&1 == 1 }

// belongsAbove returns true if entry a belongs above entry b on a level of minima, or of maxima.
func (q *doubleEndedQueue) belongsAbove(onMinLevel bool, a, b int) bool {
	if onMinLevel {
		return q.isLess(a, b)
	}
	return q.isLess(b, a)
}

// push adds an entry. The heap gives both the smallest and the largest key: its levels alternate between minima and
// maxima.
func (q *doubleEndedQueue) push(e flow.QueueEntry) {
	q.list = append(q.list, e)
	i := len(q.list) - 1
	if i == 0 {
		return
	}
	onMinLevel, parent := isMinLevel(i), (i-1)/2

	// Move it to the levels of minima or of maxima, then up along these.
	if q.belongsAbove(onMinLevel, parent, i) { // it belongs to the parent's kind of levels
		q.swap(i, parent)
		i, onMinLevel = parent, !onMinLevel
	}
	for i > 2 {
		grandparent := ((i-1)/2 - 1) / 2
		if !q.belongsAbove(onMinLevel, i, grandparent) {
			return
		}
		q.swap(i, grandparent)
		i = grandparent
	}
}

func (q *doubleEndedQueue) popMin() flow.QueueEntry { return q.remove(0) }
func (q *doubleEndedQueue) popMax() flow.QueueEntry { return q.remove(q.maxIndex()) }

// remove removes and returns the entry at an index, which is that of the minimum or the maximum.
func (q *doubleEndedQueue) remove(i int) flow.QueueEntry {
	e, lastIndex := q.list[i], len(q.list)-1
	q.list[i] = q.list[lastIndex]
	q.list = q.list[:lastIndex]
	if i < lastIndex {
		q.siftDown(i)
	}
	return e
}

// siftDown moves the entry at an index down to where it belongs. On levels of maxima the bits of all keys are inverted,
// so that both kinds of levels are handled alike.
func (q *doubleEndedQueue) siftDown(i int) {
	list, signMask := q.list, time.Duration(0)
	if !isMinLevel(i) {
		signMask = -1
	}
	for {
		firstChild := 2*i + 1
		if firstChild >= len(list) {
			return
		}

		// The least of the children and grandchildren.
		minChild, minKey := firstChild, list[firstChild].Key^signMask
		if firstChild+1 < len(list) && list[firstChild+1].Key^signMask < minKey {
			minChild, minKey = firstChild+1, list[firstChild+1].Key^signMask
		}
		for g := 2*firstChild + 1; g < min(2*firstChild+5, len(list)); g++ {
			if k := list[g].Key ^ signMask; k < minKey {
				minChild, minKey = g, k
			}
		}
		if minKey >= list[i].Key^signMask {
			return
		}
		list[i], list[minChild] = list[minChild], list[i]
		if minChild <= firstChild+1 {
			return // a child has no levels of this kind below
		}
		if parent := (minChild - 1) / 2; list[parent].Key^signMask < list[minChild].Key^signMask {
			list[parent], list[minChild] = list[minChild], list[parent]
		}
		i = minChild
	}
}
