package workers

import "slices"

// arena hands out ranges of a worker's segment, so that slots are cut anew as networks come and go.
type arena struct {
	Free []extent // in order; no two of them touch
}

// extent is a range; To is not in it.
type extent struct{ From, To int64 }

func newArena(size int64) *arena { return &arena{Free: []extent{{0, size}}} }

// takeExtent returns the start of the first free range of n bytes, and takes it. If there is none, it returns false.
func (a *arena) take(n int64) (from int64, ok bool) {
	for i := range a.Free {
		e := &a.Free[i]
		if e.To-e.From < n {
			continue
		}
		from = e.From
		if e.From += n; e.From == e.To {
			a.Free = slices.Delete(a.Free, i, i+1)
		}
		return from, true
	}
	return 0, false
}

// returnExtent returns a range, and merges it with the free ranges that it touches.
func (a *arena) give(from, n int64) {
	i, _ := slices.BinarySearchFunc(a.Free, from, func(e extent, at int64) int { return int(min(max(e.From-at, -1), 1)) })
	a.Free = slices.Insert(a.Free, i, extent{from, from + n})
	if i+1 < len(a.Free) && a.Free[i].To == a.Free[i+1].From {
		a.Free[i].To = a.Free[i+1].To
		a.Free = slices.Delete(a.Free, i+1, i+2)
	}
	if i > 0 && a.Free[i-1].To == a.Free[i].From {
		a.Free[i-1].To = a.Free[i].To
		a.Free = slices.Delete(a.Free, i, i+1)
	}
}
