package drop

import (
	"math/bits"
	"time"

	"inferplan/policy/flow"
)

// doubleEndedQueue is a priority queue of tasks by key (usually the deadline) with access to both ends: a min-max
// heap (Atkinson et al., 1986). On even levels an entry is the minimum of its subtree, on odd levels the maximum.
type doubleEndedQueue struct{ list []flow.QueueEntry }

// len returns the number of entries.
func (q *doubleEndedQueue) len() int { return len(q.list) }

// min returns the entry with the lowest key. The queue must not be empty.
func (q *doubleEndedQueue) min() *flow.QueueEntry { return &q.list[0] }

// isLess reports whether the entry at one index has a lower key than the one at another.
func (q *doubleEndedQueue) isLess(first, second int) bool {
	return q.list[first].Key < q.list[second].Key
}

// swap exchanges the entries at two indexes of the list.
func (q *doubleEndedQueue) swap(first, second int) {
	q.list[first], q.list[second] = q.list[second], q.list[first]
}

// maxIndex returns the index of the entry with the highest key: one of the root's children, if it has any.
func (q *doubleEndedQueue) maxIndex() int {
	switch {
	case len(q.list) < 2:
		return 0
	case len(q.list) > 2 && q.isLess(1, 2):
		return 2
	}
	return 1
}

// max returns the entry with the highest key. The queue must not be empty.
func (q *doubleEndedQueue) max() *flow.QueueEntry { return &q.list[q.maxIndex()] }

// isMinLevel reports whether an index of a min-max heap is on a level of minima.
func isMinLevel(index int) bool { return bits.Len(uint(index+1))&1 == 1 }

// belongsAbove reports whether the entry at index first has to stand above the one at index second: on levels of minima
// (onMinLevel) if its key is lower, on levels of maxima if its key is higher.
func (q *doubleEndedQueue) belongsAbove(onMinLevel bool, first, second int) bool {
	if onMinLevel {
		return q.isLess(first, second)
	}
	return q.isLess(second, first)
}

// push adds an entry to the queue, a min-max heap: a binary heap from which both the smallest and the largest key can be
// taken. Its levels alternate: an entry on a level of minima has the smallest key of all below it, one on a level of
// maxima the largest.
func (q *doubleEndedQueue) push(entry flow.QueueEntry) {
	q.list = append(q.list, entry)
	index := len(q.list) - 1
	if index == 0 {
		return
	}
	onMinLevel, parent := isMinLevel(index), (index-1)/2

	// On a level of minima the parent is a maximum, so the entry may not have a higher key than the parent; on a level of
	// maxima it may not have a lower one. Otherwise it has to change places with the parent, and is then on levels of the
	// other kind. Then it goes up along the levels of its kind, from grandparent to grandparent. Indexes 0 to 2 have none.
	if isOnWrongKind := q.belongsAbove(onMinLevel, parent, index); isOnWrongKind {
		q.swap(index, parent)
		index, onMinLevel = parent, !onMinLevel
	}
	for index > 2 {
		grandparent := ((index-1)/2 - 1) / 2
		if !q.belongsAbove(onMinLevel, index, grandparent) {
			return
		}
		q.swap(index, grandparent)
		index = grandparent
	}
}

// popMin removes and returns the entry with the lowest key. The queue must not be empty.
func (q *doubleEndedQueue) popMin() flow.QueueEntry { return q.remove(0) }

// popMax removes and returns the entry with the highest key. The queue must not be empty.
func (q *doubleEndedQueue) popMax() flow.QueueEntry { return q.remove(q.maxIndex()) }

// remove removes and returns the entry at an index, which is that of the minimum or the maximum.
func (q *doubleEndedQueue) remove(index int) flow.QueueEntry {
	entry, lastIndex := q.list[index], len(q.list)-1
	q.list[index] = q.list[lastIndex]
	q.list = q.list[:lastIndex]
	if index < lastIndex {
		q.siftDown(index)
	}
	return entry
}

// siftDown moves the entry at an index down to where it belongs among the levels of its kind (minima or maxima). It
// searches the minimum on both kinds of levels: signMask is 0 on levels of minima and -1 on levels of maxima, and a key
// xor -1 has all bits inverted, which reverses the order of the keys.
func (q *doubleEndedQueue) siftDown(index int) {
	list, signMask := q.list, time.Duration(0)
	if !isMinLevel(index) {
		signMask = -1
	}
	for {
		firstChild := 2*index + 1
		if firstChild >= len(list) {
			return
		}

		// Find the least of the two children and the four grandchildren.
		minChild, minKey := firstChild, list[firstChild].Key^signMask
		if firstChild+1 < len(list) && list[firstChild+1].Key^signMask < minKey {
			minChild, minKey = firstChild+1, list[firstChild+1].Key^signMask
		}
		for grandchild := 2*firstChild + 1; grandchild < min(2*firstChild+5, len(list)); grandchild++ {
			if key := list[grandchild].Key ^ signMask; key < minKey {
				minChild, minKey = grandchild, key
			}
		}
		if minKey >= list[index].Key^signMask {
			return
		}
		list[index], list[minChild] = list[minChild], list[index]
		if minChild <= firstChild+1 {
			return // a child has no levels of this kind below
		}
		// It went to a grandchild: its new parent is of the other kind, and must not be on the wrong side of it.
		if parent := (minChild - 1) / 2; list[parent].Key^signMask < list[minChild].Key^signMask {
			list[parent], list[minChild] = list[minChild], list[parent]
		}
		index = minChild
	}
}
