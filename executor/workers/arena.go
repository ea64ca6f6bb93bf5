package workers

import "slices"

// arena hands out ranges of a worker's segment, so that slots are cut anew as networks come and go.
type arena struct {
	FreeExtents []extent // in order; no two of them touch
}

// extent is a range; To is not in it.
type extent struct{ From, To int64 }

func newArena(size int64) *arena { return &arena{FreeExtents: []extent{{0, size}}} }

// takeExtent takes the first free range of at least n bytes from the arena (memory that is divided as networks come
// and go) and returns its start. If there is none, it returns false.
func (a *arena) takeExtent(n int64) (start int64, ok bool) {
	for i := range a.FreeExtents {
		e := &a.FreeExtents[i]
		if e.To-e.From < n {
			continue
		}
		start = e.From
		if e.From += n; e.From == e.To {
			a.FreeExtents = slices.Delete(a.FreeExtents, i, i+1)
		}
		return start, true
	}
	return 0, false
}

// returnExtent makes the n bytes from position start of an arena (memory that models are loaded into, divided by
// position) free again, and merges them with the free ranges that they touch. Free ranges are sorted by position.
func (a *arena) returnExtent(start, n int64) {
	// Find the place by position. The comparison clamps the difference to -1, 0 or 1, as an int may have 32 bits.
	i, _ := slices.BinarySearchFunc(a.FreeExtents, start, func(e extent, position int64) int { return int(min(max(e.From-position, -1), 1)) })
	a.FreeExtents = slices.Insert(a.FreeExtents, i, extent{start, start + n})
	// Merge with the range behind, then with the one before.
	if i+1 < len(a.FreeExtents) && a.FreeExtents[i].To == a.FreeExtents[i+1].From {
		a.FreeExtents[i].To = a.FreeExtents[i+1].To
		a.FreeExtents = slices.Delete(a.FreeExtents, i+1, i+2)
	}
	if i > 0 && a.FreeExtents[i-1].To == a.FreeExtents[i].From {
		a.FreeExtents[i-1].To = a.FreeExtents[i].To
		a.FreeExtents = slices.Delete(a.FreeExtents, i, i+1)
	}
}
