package executor

import "slices"

// arena gives out ranges of a worker's segment, so that slots are cut anew as
// services come and go.
type arena struct {
	free []extent // in order, none next to another
}

type extent struct{ from, to int64 }

func newArena(size int64) *arena { return &arena{free: []extent{{0, size}}} }

// take gives the first range of n bytes; false: there is none.
func (a *arena) take(n int64) (from int64, ok bool) {
	for i := range a.free {
		e := &a.free[i]
		if e.to-e.from < n {
			continue
		}
		from = e.from
		if e.from += n; e.from == e.to {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return from, true
	}
	return 0, false
}

// give takes a range back.
func (a *arena) give(from, n int64) {
	i, _ := slices.BinarySearchFunc(a.free, from, func(e extent, at int64) int { return int(min(max(e.from-at, -1), 1)) })
	a.free = slices.Insert(a.free, i, extent{from, from + n})
	if i+1 < len(a.free) && a.free[i].to == a.free[i+1].from {
		a.free[i].to = a.free[i+1].to
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].to == a.free[i].from {
		a.free[i-1].to = a.free[i].to
		a.free = slices.Delete(a.free, i, i+1)
	}
}
