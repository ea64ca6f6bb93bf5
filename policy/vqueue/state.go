package vqueue

import (
	"math"
	"math/bits"
	"slices"
)

// Assignment is an assignment of groups to queues, in order, with its cost. It is not safe for use by several
// goroutines; CopyFrom makes a copy for another one.
type State struct {
	p      *Problem
	queues []line
	where  []int32 // by group: its queue, or -1
	filled marks   // queues that have groups
	total  float64 // objective, with the cost of unplaced groups
	spare  float64 // largest variance of one group's work
	work   int64   // positions looked at so far
	loose  bool    // costs of long queues are computed only when they are read, see loose.go
}

// queueOrder is the order of one queue.
type line struct {
	slots []slot
	cost  float64 // cost of the slots and of the queue's end
	// These fields are used by assignments with lazyCosts alone, see loose.go.
	tail   float64 // seconds from the queue's start to its end
	behind bool    // starts and costs of the slots are out of date
	buffer []slot  // memory behind slots
}

// queueSlot is a group at its place in a queue, with times in seconds.
type slot struct {
	group, model int32
	priority     int32
	start        float64 // mean start
	variance     float64 // variance of the start
	end          float64 // mean end of its work
	cost         float64
	own, grows   float64 // linear slack of this slot and its growth per second, see Problem.linearSlack
	slack, rate  float64 // least slack and total growth of this and all later slots
}

// bitSet is a set of small numbers.
type marks []uint64

// set adds a number to the set, or removes it.
func (m marks) set(i int32, on bool) {
	if bit := uint64(1) << (i % 64); on {
		m[i/64] |= bit
	} else {
		m[i/64] &^= bit
	}
}

// next returns the smallest number of the set that is at least i. If there is none, it returns -1.
func (m marks) after(i int32) int32 {
	for w := i / 64; int(w) < len(m); w++ {
		word := m[w]
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return 64*w + int32(bits.TrailingZeros64(word))
		}
	}
	return -1
}

// emptyAt returns the time at which a queue that starts at the given time is empty.
func (l *line) end(start float64) float64 {
	switch n := len(l.slots); {
	case n == 0:
		return start
	case l.behind:
		return start + l.tail
	default:
		return l.slots[n-1].end
	}
}

// keepsPriorities reports whether no group of a queue stands before one of a higher priority.
func (l *line) ranked() bool {
	for i := 1; i < len(l.slots); i++ {
		if l.slots[i].priority < l.slots[i-1].priority {
			return false
		}
	}
	return true
}

// NewAssignment returns the assignment in which no group is in a queue.
func NewState(p *Problem) *State {
	s := &State{}
	s.Reset(p)
	return s
}

// Reset sets the problem and empties all queues. It keeps memory.
func (s *State) Reset(p *Problem) {
	s.p = p
	s.queues = slices.Grow(s.queues[:0], len(p.Queues))[:len(p.Queues)]
	for q := range s.queues {
		s.queues[q].slots = s.queues[q].slots[:0]
	}
	s.filled = slices.Grow(s.filled[:0], len(p.Queues)/64+1)[:len(p.Queues)/64+1]
	clear(s.filled)
	s.where = slices.Grow(s.where[:0], len(p.Groups))[:len(p.Groups)]
	for i := range s.where {
		s.where[i] = -1
	}
	s.Refresh()
}

// CopyFrom makes s equal to another state. The two share the problem and nothing else.
func (s *State) CopyFrom(from *State) {
	s.p, s.total, s.spare, s.work = from.p, from.total, from.spare, from.work
	s.where, s.filled = append(s.where[:0], from.where...), append(s.filled[:0], from.filled...)
	s.queues = slices.Grow(s.queues[:0], len(from.queues))[:len(from.queues)]
	for q := range s.queues {
		s.queues[q].slots = append(s.queues[q].slots[:0], from.queues[q].slots...)
		s.queues[q].cost = from.queues[q].cost
	}
}

// Refresh recomputes all costs after a change of the problem: times, costs, sizes, or groups added at its end.
func (s *State) Refresh() {
	p := s.p
	for len(s.where) < len(p.Groups) {
		s.where = append(s.where, -1)
	}

	// The largest variance bounds the variance that an insertion adds before a slot.
	s.spare = 0
	for i := range p.Costs {
		s.spare = max(s.spare, p.Costs[i].Variance)
	}

	// Recompute the queues, and add the cost of unplaced groups.
	s.total = 0
	for q := range s.queues {
		if l := &s.queues[q]; s.loose && len(l.slots) > mostExact {
			l.retail(p, int32(q))
		} else {
			p.recost(int32(q), l, 0, s.spare)
		}
		s.total += s.queues[q].cost
		s.filled.set(int32(q), len(s.queues[q].slots) > 0)
	}
	for i, q := range s.where {
		if q < 0 {
			s.total += p.unplaced(&p.Groups[i])
		}
	}
}

// QueueChanged recomputes the costs of a queue after its times in the problem have changed.
func (s *State) Moved(queue int32) { s.update(queue, 0) }

// Total returns the objective, with the cost of groups that are in no queue.
func (s *State) Total() float64 { return s.total }

// LowerBound returns a total that no order can be below: nobody is late, and every group runs on the kind of
// device that takes the least time. With ByCompletion, which rewards early ends, it is minus infinity.
func (s *State) Floor() float64 {
	p := s.p
	if p.Judge == ByCompletion {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range p.Groups {
		if quickest := p.quickest(int32(i)); !math.IsInf(quickest, 1) && p.Groups[i].Size > 0 {
			sum += p.End * quickest
		}
	}
	return sum
}

// SearchWork returns the number of positions looked at so far: the unit in which searches are limited.
func (s *State) Work() int64 { return s.work }

// QueueOf returns the queue of a group, or -1.
func (s *State) Where(group int32) int32 { return s.where[group] }

// Len returns the number of groups in a queue.
func (s *State) Len(queue int32) int { return len(s.queues[queue].slots) }

// Order appends the groups of a queue to dst, in order.
func (s *State) Order(queue int32, dst []int32) []int32 {
	for i := range s.queues[queue].slots {
		dst = append(dst, s.queues[queue].slots[i].group)
	}
	return dst
}

// Head returns the first group of a queue. If the queue is empty, it returns -1.
func (s *State) First(queue int32) int32 {
	if slots := s.queues[queue].slots; len(slots) > 0 {
		return slots[0].group
	}
	return -1
}

// Arrange replaces all queues by the given orders, one per queue. Groups that no order names are in no queue
// afterwards.
func (s *State) Arrange(orders [][]int32) {
	for i := range s.where {
		s.where[i] = -1
	}
	for q := range s.queues {
		l := &s.queues[q]
		l.slots = l.slots[:0]
		for _, g := range orders[q] {
			l.slots = append(l.slots, slot{group: g})
			s.where[g] = int32(q)
		}
	}
	s.Refresh()
}

// GroupChanged recomputes costs after the size, cost or deadlines of a group have changed.
func (s *State) Grown(group int32) {
	if q := s.where[group]; q >= 0 {
		s.update(q, s.place(group))
	}
}

// Start returns the mean and variance of the start of the group at a place of a queue.
func (s *State) Start(queue int32, place int) (mean, variance float64) {
	x := &s.queues[queue].slots[place]
	return x.start, x.variance
}

// LateRequests returns the number of requests in groups that, by the means, end after their last deadline, and of
// those in no queue.
func (s *State) Late() float64 {
	fresh(s)
	late, p := 0.0, s.p
	for q := range s.queues {
		kind := p.Queues[q].Kind
		for i := range s.queues[q].slots {
			x := &s.queues[q].slots[i]
			if g := &p.Groups[x.group]; x.end+p.Cost(x.group, kind).Residence-g.Deadline[Quantiles-1] > lateAfter {
				late += g.Size
			}
		}
	}
	for i, q := range s.where {
		if q < 0 {
			late += p.Groups[i].Size
		}
	}
	return late
}

// updateCosts recomputes a queue from a slot on and adds the difference to the total.
func (s *State) update(q int32, from int) {
	before := s.queues[q].cost
	if s.queues[q].behind {
		from = 0
	}
	s.p.recost(q, &s.queues[q], from, s.spare)
	s.total += s.queues[q].cost - before
	s.filled.set(q, len(s.queues[q].slots) > 0)
}

// Insert puts a group that is in no queue at a place of a queue.
func (s *State) Insert(group, q int32, place int) {
	l := &s.queues[q]
	s.where[group] = q
	if s.loose && len(l.slots) >= mostExact {
		l.slipIn(s.p, q, group, place)
		return
	}
	l.slots = slices.Insert(l.slots, place, slot{group: group})
	s.total -= s.p.unplaced(&s.p.Groups[group])
	s.update(q, place)
}

// Remove takes a group out of its queue. If it is in none, nothing changes.
func (s *State) Remove(group int32) {
	q := s.where[group]
	if q < 0 {
		return
	}
	place := s.place(group)
	l := &s.queues[q]
	s.where[group] = -1
	if s.loose && len(l.slots) > mostExact {
		l.slipOut(s.p, q, place)
		return
	}
	l.slots = slices.Delete(l.slots, place, place+1)
	s.total += s.p.unplaced(&s.p.Groups[group])
	s.update(q, place)
}

// placeOf returns the place of a group in its queue.
func (s *State) place(group int32) int {
	for i := range s.queues[s.where[group]].slots {
		if s.queues[s.where[group]].slots[i].group == group {
			return i
		}
	}
	return -1
}

// cheapestInsertion returns the place of a queue at which a group adds least to the objective, and the increase,
// without the saved cost of being unplaced. If no place adds less than bound, the place is -1.
func (s *State) insertion(group, q int32, bound float64) (place int, delta float64) {
	p, l := s.p, &s.queues[q]
	def, g := &p.Queues[q], &p.Groups[group]
	c := p.Cost(group, def.Kind)
	place, delta = -1, bound
	if !def.takes(g, c) {
		return place, delta
	}

	// Walk through the queue: startAt, variance and model are the state of the instance before slot i.
	t, v, model := def.Start, 0.0, def.Model
	for i := 0; ; i++ {
		last := i == len(l.slots)
		if i > 0 {
			x := &l.slots[i-1]
			t, model = x.end, x.model
			v = x.variance + p.Cost(x.group, def.Kind).Variance
			if x.priority > g.Priority {
				break
			}
		}

		// The place before slot i keeps the priorities. Its cost is the group's own, and the delay of all behind
		// it.
		if last || l.slots[i].priority >= g.Priority {
			s.work++
			setup := def.change(model, g.Model)
			shift := setup + c.Work
			if !last {
				next := l.slots[i].model
				shift += def.change(g.Model, next) - def.change(model, next)
			}
			own := p.cost(g, c, t+setup, v) + p.End*shift
			if own < delta {
				if d := p.pushed(def.Kind, l, i, len(l.slots), shift, c.Variance, delta-own); own+d < delta {
					place, delta = i, own+d
				}
			} else if setup == 0 {
				break // at later places the group starts later, and costs no less
			}
		}
		if last {
			break
		}
	}
	return place, delta
}

// BestPlace returns the queue and place at which a group adds least to the objective, and the increase. If the
// group can run nowhere, the queue is -1.
func (s *State) Best(group int32) (queue int32, place int, delta float64) {
	return bestPlace(s, group, math.Inf(-1))
}

// bestPlaceUntil returns the same as BestPlace, but stops at the first queue at which the increase is at most
// stopAt.
func bestPlace(s *State, group int32, enough float64) (queue int32, place int, delta float64) {
	queue, delta = -1, math.Inf(1)
	for q := range s.queues {
		if at, d := s.insertion(group, int32(q), delta); at >= 0 {
			if queue, place, delta = int32(q), at, d; delta <= enough {
				break
			}
		}
	}
	return queue, place, delta
}

// minIncrease returns a lower bound on the increase of the objective by a group in any place: nobody is late, and
// it runs where it takes the least time. With ByCompletion it is minus infinity.
func (p *Problem) atLeast(group int32) float64 {
	if p.Judge == ByCompletion {
		return math.Inf(-1)
	}
	return p.End * p.quickest(group)
}

// minWork returns the least work of a group over the kinds of devices. It is infinite if the group can run
// nowhere.
func (p *Problem) quickest(group int32) float64 {
	out := math.Inf(1)
	for k := range p.Kinds {
		out = min(out, p.Cost(group, int32(k)).Work)
	}
	return out
}
