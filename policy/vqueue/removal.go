package vqueue

import (
	"cmp"
	"math"
)

// chooseRemoved chooses the groups that a step of the search removes and inserts again, in one of four ways at
// random: random ones, some of one network with near deadlines, a piece of a queue, or costly ones with their
// predecessors.
func (x *Search) chooseRemoved() {
	maxCount := min(x.MaxRemoved, len(x.candidates))
	n := 1 + x.rng.IntN(maxCount)
	switch x.rng.IntN(4) {
	case 0:
		x.chooseRandom(n)
	case 1:
		x.chooseSameModel(n)
	case 2:
		x.choosePiece(n)
	default:
		x.chooseCostly(n)
	}
}

// addRemoved adds a group to those that this step of the search removes, unless it is among them.
func (x *Search) addRemoved(g int32) {
	if !x.chosen[g] {
		x.chosen[g] = true
		x.removed = append(x.removed, g)
	}
}

// randomGroup returns a random candidate.
func (x *Search) randomGroup() int32 { return x.candidates[x.rng.IntN(len(x.candidates))] }

// chooseRandom chooses up to n random groups.
func (x *Search) chooseRandom(n int) {
	for range n {
		x.addRemoved(x.randomGroup())
	}
}

// chooseSameModel chooses a random group, and up to n groups of its network whose deadlines are near: each is the
// nearest of eight random ones. Such groups can often change places.
func (x *Search) chooseSameModel(n int) {
	p := x.current.problem
	seed := x.randomGroup()
	x.addRemoved(seed)
	for len(x.removed) < n {
		nearestGroup, nearestDistance := int32(-1), math.Inf(1)
		for range 8 {
			g := x.randomGroup()
			distance := math.Abs(p.Groups[g].Deadline[Quantiles-1] - p.Groups[seed].Deadline[Quantiles-1])
			if !x.chosen[g] && p.Groups[g].Model == p.Groups[seed].Model && distance < nearestDistance {
				nearestGroup, nearestDistance = g, distance
			}
		}
		if nearestGroup < 0 {
			return
		}
		x.addRemoved(nearestGroup)
	}
}

// choosePiece chooses up to n groups that stand one behind the other in a random queue, from a random slot on. If
// the random group that names the queue is in none, it chooses that group alone.
func (x *Search) choosePiece(n int) {
	g := x.randomGroup()
	q := x.current.queueOf[g]
	if q < 0 {
		x.addRemoved(g)
		return
	}
	slots := x.current.queues[q].slots
	firstSlot := x.rng.IntN(len(slots))
	for i := firstSlot; i < min(firstSlot+n, len(slots)); i++ {
		x.addRemoved(slots[i].group)
	}
}

// chooseCostly chooses the costliest of 16 random groups and about half of the groups just before it in its queue,
// which delay it, up to half of n; the rest are random. If none costs anything, all are random.
func (x *Search) chooseCostly(n int) {
	p, s := x.current.problem, &x.current

	// Find the costliest of some random groups.
	costliest, highestCost := int32(-1), 0.0
	for range 16 {
		g := x.randomGroup()
		cost := p.unplacedCost(&p.Groups[g])
		if q := s.queueOf[g]; q >= 0 {
			cost = s.queues[q].slots[s.placeOf(g)].cost
		}
		if cost > highestCost {
			costliest, highestCost = g, cost
		}
	}
	if costliest < 0 {
		x.chooseRandom(n)
		return
	}
	x.addRemoved(costliest)

	// Choose about half of its predecessors, from the nearest on.
	if q := s.queueOf[costliest]; q >= 0 {
		slots, place := s.queues[q].slots, s.placeOf(costliest)
		for len(x.removed) < (n+1)/2 && place > 0 {
			place--
			if x.rng.IntN(2) == 0 {
				x.addRemoved(slots[place].group)
			}
		}
	}
	x.chooseRandom(n - len(x.removed))
}

// compareWork orders groups by their work on the first kind of device that they can run on, largest first.
func (p *Problem) compareWork(a, b int32) int {
	if c := cmp.Compare(p.firstFiniteWork(b), p.firstFiniteWork(a)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

// firstFiniteWork returns the work of a group on the first kind of device that it can run on.
func (p *Problem) firstFiniteWork(g int32) float64 {
	for k := range p.Kinds {
		if w := p.Cost(g, int32(k)).Work; !math.IsInf(w, 1) {
			return w
		}
	}
	return math.Inf(1)
}
