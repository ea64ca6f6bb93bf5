package drop

import (
	"math/bits"
	"time"

	"inferplan/policy/flow"
)

// doubleEndedQueue is a priority queue by key with access to both ends: a min-max heap (Atkinson et al., 1986). On even
// levels an entry is the minimum of its subtree, on odd levels the maximum.
type depq struct{ list []flow.Entry }

func (q *depq) len() int           { return len(q.list) }
func (q *depq) min() *flow.Entry   { return &q.list[0] }
func (q *depq) less(a, b int) bool { return q.list[a].Key < q.list[b].Key }
func (q *depq) swap(a, b int)      { q.list[a], q.list[b] = q.list[b], q.list[a] }

// maxIndex returns the index of the entry with the greatest key.
func (q *depq) greatest() int {
	switch {
	case len(q.list) < 2:
		return 0
	case len(q.list) > 2 && q.less(1, 2):
		return 2
	}
	return 1
}

func (q *depq) max() *flow.Entry { return &q.list[q.greatest()] }

// isMinLevel returns true if an index is on a level of minima.
func low(i int) bool { return bits.Len(uint(i+1))&1 == 1 }

// belongsAbove returns true if entry a belongs above entry b on a level of minima, or of maxima.
func (q *depq) before(isLow bool, a, b int) bool {
	if isLow {
		return q.less(a, b)
	}
	return q.less(b, a)
}

// push adds an entry.
func (q *depq) push(e flow.Entry) {
	q.list = append(q.list, e)
	i := len(q.list) - 1
	if i == 0 {
		return
	}
	isLow, parent := low(i), (i-1)/2

	// Move it to the levels of minima or of maxima, then up along these.
	if q.before(isLow, parent, i) { // it belongs to the parent's kind of levels
		q.swap(i, parent)
		i, isLow = parent, !isLow
	}
	for i > 2 {
		above := ((i-1)/2 - 1) / 2
		if !q.before(isLow, i, above) {
			return
		}
		q.swap(i, above)
		i = above
	}
}

func (q *depq) popMin() flow.Entry { return q.take(0) }
func (q *depq) popMax() flow.Entry { return q.take(q.greatest()) }

// remove removes and returns the entry at an index, which is that of the minimum or the maximum.
func (q *depq) take(i int) flow.Entry {
	e, last := q.list[i], len(q.list)-1
	q.list[i] = q.list[last]
	q.list = q.list[:last]
	if i < last {
		q.sink(i)
	}
	return e
}

// siftDown moves the entry at an index down to where it belongs. On levels of maxima the bits of all keys are inverted,
// so that both kinds of levels are handled alike.
func (q *depq) sink(i int) {
	list, turn := q.list, time.Duration(0)
	if !low(i) {
		turn = -1
	}
	for {
		first := 2*i + 1
		if first >= len(list) {
			return
		}

		// The least of the children and grandchildren.
		next, least := first, list[first].Key^turn
		if first+1 < len(list) && list[first+1].Key^turn < least {
			next, least = first+1, list[first+1].Key^turn
		}
		for g := 2*first + 1; g < min(2*first+5, len(list)); g++ {
			if k := list[g].Key ^ turn; k < least {
				next, least = g, k
			}
		}
		if least >= list[i].Key^turn {
			return
		}
		list[i], list[next] = list[next], list[i]
		if next <= first+1 {
			return // a child has no levels of this kind below
		}
		if parent := (next - 1) / 2; list[parent].Key^turn < list[next].Key^turn {
			list[parent], list[next] = list[next], list[parent]
		}
		i = next
	}
}
