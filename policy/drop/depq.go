package drop

import (
	"math/bits"
	"time"

	"inferplan/policy/flow"
)

// depq is a double-ended priority queue by key: a min-max heap (Atkinson et al.,
// 1986). Even levels hold the least, odd ones the greatest of what is below.
type depq struct{ list []flow.Entry }

func (q *depq) len() int           { return len(q.list) }
func (q *depq) min() *flow.Entry   { return &q.list[0] }
func (q *depq) less(a, b int) bool { return q.list[a].Key < q.list[b].Key }
func (q *depq) swap(a, b int)      { q.list[a], q.list[b] = q.list[b], q.list[a] }

// greatest is the place of the greatest entry.
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

// low tells whether a place is on a level of least entries.
func low(i int) bool { return bits.Len(uint(i+1))&1 == 1 }

// before tells whether the entry at a belongs above that at b, on low levels or
// on the others.
func (q *depq) before(isLow bool, a, b int) bool {
	if isLow {
		return q.less(a, b)
	}
	return q.less(b, a)
}

func (q *depq) push(e flow.Entry) {
	q.list = append(q.list, e)
	i := len(q.list) - 1
	if i == 0 {
		return
	}
	isLow, parent := low(i), (i-1)/2
	if q.before(isLow, parent, i) { // it belongs to the levels of its parent
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

// take takes out the least or the greatest entry.
func (q *depq) take(i int) flow.Entry {
	e, last := q.list[i], len(q.list)-1
	q.list[i] = q.list[last]
	q.list = q.list[:last]
	if i < last {
		q.sink(i)
	}
	return e
}

// sink moves the entry at a place down to where it belongs. Keys are turned
// around on levels of greatest entries, so that both are alike.
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
			return // a child, which has no levels of its kind below
		}
		if parent := (next - 1) / 2; list[parent].Key^turn < list[next].Key^turn {
			list[parent], list[next] = list[next], list[parent]
		}
		i = next
	}
}
