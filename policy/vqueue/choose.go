package vqueue

import (
	"cmp"
	"math"
)

// chooseRemoved chooses the groups that a step removes: random ones, some of one network with near deadlines, a
// piece of a queue, or costly ones with their predecessors.
func (x *Search) choose() {
	most := min(x.Most, len(x.pool))
	n := 1 + x.rng.IntN(most)
	switch x.rng.IntN(4) {
	case 0:
		x.chooseAny(n)
	case 1:
		x.chooseAlike(n)
	case 2:
		x.choosePiece(n)
	default:
		x.chooseLate(n)
	}
}

// addRemoved marks a group as removed, once.
func (x *Search) take(g int32) {
	if !x.chosen[g] {
		x.chosen[g] = true
		x.out = append(x.out, g)
	}
}

// randomGroup returns a random candidate.
func (x *Search) any() int32 { return x.pool[x.rng.IntN(len(x.pool))] }

// chooseRandom chooses up to n random groups.
func (x *Search) chooseAny(n int) {
	for range n {
		x.take(x.any())
	}
}

// chooseSameModel chooses a random group, and repeatedly the group of its network that has the nearest deadline
// among eight random ones.
func (x *Search) chooseAlike(n int) {
	p := x.state.p
	first := x.any()
	x.take(first)
	for len(x.out) < n {
		best, near := int32(-1), math.Inf(1)
		for range 8 {
			g := x.any()
			apart := math.Abs(p.Groups[g].Deadline[Quantiles-1] - p.Groups[first].Deadline[Quantiles-1])
			if !x.chosen[g] && p.Groups[g].Model == p.Groups[first].Model && apart < near {
				best, near = g, apart
			}
		}
		if best < 0 {
			return
		}
		x.take(best)
	}
}

// choosePiece chooses n neighbours in a queue.
func (x *Search) choosePiece(n int) {
	g := x.any()
	q := x.state.where[g]
	if q < 0 {
		x.take(g)
		return
	}
	slots := x.state.queues[q].slots
	first := x.rng.IntN(len(slots))
	for i := first; i < min(first+n, len(slots)); i++ {
		x.take(slots[i].group)
	}
}

// chooseCostly chooses the costliest of 16 random groups and some of its predecessors in its queue, then random
// ones.
func (x *Search) chooseLate(n int) {
	p, s := x.state.p, &x.state

	// Find the costliest of some random groups.
	worst, most := int32(-1), 0.0
	for range 16 {
		g := x.any()
		cost := p.unplaced(&p.Groups[g])
		if q := s.where[g]; q >= 0 {
			cost = s.queues[q].slots[s.place(g)].cost
		}
		if cost > most {
			worst, most = g, cost
		}
	}
	if worst < 0 {
		x.chooseAny(n)
		return
	}
	x.take(worst)

	// Choose about half of its predecessors, from the nearest on.
	if q := s.where[worst]; q >= 0 {
		slots, at := s.queues[q].slots, s.place(worst)
		for len(x.out) < (n+1)/2 && at > 0 {
			at--
			if x.rng.IntN(2) == 0 {
				x.take(slots[at].group)
			}
		}
	}
	x.chooseAny(n - len(x.out))
}

// compareWork orders groups by their work on the first kind of device that they can run on, largest first.
func (p *Problem) byWork(a, b int32) int {
	if c := cmp.Compare(p.someWork(b), p.someWork(a)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

// firstFiniteWork returns the work of a group on the first kind of device that it can run on.
func (p *Problem) someWork(g int32) float64 {
	for k := range p.Kinds {
		if w := p.Cost(g, int32(k)).Work; !math.IsInf(w, 1) {
			return w
		}
	}
	return math.Inf(1)
}
