package vqueue

import (
	"cmp"
	"math"
)

// choose fills x.out with the groups that a step takes out: some at random, some of
// one model with near deadlines, a piece of a queue, or late ones with what stands
// before them.
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

func (x *Search) take(g int32) {
	if !x.chosen[g] {
		x.chosen[g] = true
		x.out = append(x.out, g)
	}
}

func (x *Search) any() int32 { return x.pool[x.rng.IntN(len(x.pool))] }

func (x *Search) chooseAny(n int) {
	for range n {
		x.take(x.any())
	}
}

// chooseAlike takes a group and the groups of its model whose deadlines are nearest
// among some that are drawn.
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

// choosePiece takes neighbours in a queue.
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

// chooseLate takes a group that costs much and some that stand before it in its
// queue, and fills up with others.
func (x *Search) chooseLate(n int) {
	p, s := x.state.p, &x.state
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

// byWork orders groups by the work on the first kind that they run on, largest
// first.
func (p *Problem) byWork(a, b int32) int {
	if c := cmp.Compare(p.someWork(b), p.someWork(a)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func (p *Problem) someWork(g int32) float64 {
	for k := range p.Kinds {
		if w := p.Cost(g, int32(k)).Work; !math.IsInf(w, 1) {
			return w
		}
	}
	return math.Inf(1)
}
