package vqueue

import (
	"math"
	"math/bits"
	"slices"
)

// Assignment is an assignment of groups to queues, in order, with its cost. It is not safe for use by several
// goroutines; CopyFrom makes a copy for another one.
type Assignment struct {
	problem     *Problem
	queues      []queueOrder
	queueOf     []int32 // by group: its queue, or -1
	nonEmpty    bitSet  // queues that have groups
	total       float64 // objective, with the cost of unplaced groups
	maxVariance float64 // largest variance of one group's work
	searchWork  int64   // positions looked at so far
	lazyCosts   bool    // costs of long queues are computed only when they are read, see stale.go
}

// queueOrder is the order of one queue.
type queueOrder struct {
	slots []queueSlot
	cost  float64 // cost of the slots and of the queue's end
	// These fields are used by assignments with lazyCosts alone, see stale.go.
	duration float64     // seconds from the queue's start to its end
	stale    bool        // starts and costs of the slots are out of date
	backing  []queueSlot // memory behind slots
}

// queueSlot is a group at its place in a queue, with times in seconds.
type queueSlot struct {
	group, model            int32
	priority                int32
	start                   float64 // mean start
	variance                float64 // variance of the start
	end                     float64 // mean end of its work
	cost                    float64
	ownSlack, ownRate       float64 // linear slack of this slot and its growth per second, see Problem.linearSlack
	suffixSlack, suffixRate float64 // least slack and total growth of this and all later slots
}

// bitSet is a set of small numbers.
type bitSet []uint64

// set adds a number to the set, or removes it.
func (m bitSet) set(i int32, marked bool) {
	if bit := uint64(1) << (i % 64); marked {
		m[i/64] |= bit
	} else {
		m[i/64] &^= bit
	}
}

// next returns the smallest number of the set that is at least i. If there is none, it returns -1.
func (m bitSet) next(i int32) int32 {
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
func (order *queueOrder) emptyAt(start float64) float64 {
	switch n := len(order.slots); {
	case n == 0:
		return start
	case order.stale:
		return start + order.duration
	default:
		return order.slots[n-1].end
	}
}

// keepsPriorities reports whether no group of a queue stands before one of a higher priority.
func (order *queueOrder) keepsPriorities() bool {
	for i := 1; i < len(order.slots); i++ {
		if order.slots[i].priority < order.slots[i-1].priority {
			return false
		}
	}
	return true
}

// NewAssignment returns the assignment in which no group is in a queue.
func NewAssignment(p *Problem) *Assignment {
	s := &Assignment{}
	s.Reset(p)
	return s
}

// Reset sets the problem and empties all queues, so that every group is unplaced (queueOf -1). It reuses the memory
// of the slices, because the same assignment serves many problems.
func (s *Assignment) Reset(p *Problem) {
	s.problem = p
	s.queues = slices.Grow(s.queues[:0], len(p.Queues))[:len(p.Queues)]
	for q := range s.queues {
		s.queues[q].slots = s.queues[q].slots[:0]
	}
	s.nonEmpty = slices.Grow(s.nonEmpty[:0], len(p.Queues)/64+1)[:len(p.Queues)/64+1]
	clear(s.nonEmpty)
	s.queueOf = slices.Grow(s.queueOf[:0], len(p.Groups))[:len(p.Groups)]
	for i := range s.queueOf {
		s.queueOf[i] = -1
	}
	s.Refresh()
}

// CopyFrom makes s equal to another state. The two share the problem and nothing else. Slots are copied, so that a
// search may change s while source stays as it is.
func (s *Assignment) CopyFrom(source *Assignment) {
	s.problem, s.total, s.maxVariance, s.searchWork = source.problem, source.total, source.maxVariance, source.searchWork
	s.queueOf, s.nonEmpty = append(s.queueOf[:0], source.queueOf...), append(s.nonEmpty[:0], source.nonEmpty...)
	s.queues = slices.Grow(s.queues[:0], len(source.queues))[:len(source.queues)]
	for q := range s.queues {
		s.queues[q].slots = append(s.queues[q].slots[:0], source.queues[q].slots...)
		s.queues[q].cost = source.queues[q].cost
	}
}

// Refresh recomputes all costs after a change of the problem: times, costs, sizes, or groups added at its end. New
// groups are in no queue. Long queues of rules without costs only get their durations.
func (s *Assignment) Refresh() {
	p := s.problem
	for len(s.queueOf) < len(p.Groups) {
		s.queueOf = append(s.queueOf, -1)
	}

	// The largest variance bounds the variance that an insertion adds before a slot.
	s.maxVariance = 0
	for i := range p.Costs {
		s.maxVariance = max(s.maxVariance, p.Costs[i].Variance)
	}

	// Recompute the queues, and add the cost of unplaced groups.
	s.total = 0
	for q := range s.queues {
		if order := &s.queues[q]; s.lazyCosts && len(order.slots) > maxExactGroups {
			order.updateDuration(p, int32(q))
		} else {
			p.recostSlots(int32(q), order, 0, s.maxVariance)
		}
		s.total += s.queues[q].cost
		s.nonEmpty.set(int32(q), len(s.queues[q].slots) > 0)
	}
	for i, q := range s.queueOf {
		if q < 0 {
			s.total += p.unplacedCost(&p.Groups[i])
		}
	}
}

// QueueChanged recomputes the costs of a queue after its times in the problem have changed.
func (s *Assignment) QueueChanged(queue int32) { s.updateCosts(queue, 0) }

// Total returns the objective, with the cost of groups that are in no queue.
func (s *Assignment) Total() float64 { return s.total }

// LowerBound returns a total that no order can be below: nobody is late, and every group runs on the kind of
// device that takes the least time. With ByCompletion, which rewards early ends, it is minus infinity.
func (s *Assignment) LowerBound() float64 {
	p := s.problem
	if p.Judge == ByCompletion {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range p.Groups {
		if quickest := p.minWork(int32(i)); !math.IsInf(quickest, 1) && p.Groups[i].Size > 0 {
			sum += p.EndWeight * quickest
		}
	}
	return sum
}

// SearchWork returns the number of positions looked at so far: the unit in which searches are limited.
func (s *Assignment) SearchWork() int64 { return s.searchWork }

// QueueOf returns the queue of a group, or -1.
func (s *Assignment) QueueOf(group int32) int32 { return s.queueOf[group] }

// Len returns the number of groups in a queue.
func (s *Assignment) Len(queue int32) int { return len(s.queues[queue].slots) }

// AppendOrder appends the groups of a queue to dst, in order.
func (s *Assignment) AppendOrder(queue int32, dst []int32) []int32 {
	for i := range s.queues[queue].slots {
		dst = append(dst, s.queues[queue].slots[i].group)
	}
	return dst
}

// Head returns the first group of a queue. If the queue is empty, it returns -1.
func (s *Assignment) Head(queue int32) int32 {
	if slots := s.queues[queue].slots; len(slots) > 0 {
		return slots[0].group
	}
	return -1
}

// Arrange replaces all queues by the given orders of groups, one per queue, and recomputes the costs. Groups that
// no order names are in no queue afterwards. No group may be named twice.
func (s *Assignment) Arrange(orders [][]int32) {
	for i := range s.queueOf {
		s.queueOf[i] = -1
	}
	for q := range s.queues {
		order := &s.queues[q]
		order.slots = order.slots[:0]
		for _, g := range orders[q] {
			order.slots = append(order.slots, queueSlot{group: g})
			s.queueOf[g] = int32(q)
		}
	}
	s.Refresh()
}

// GroupChanged recomputes costs after the size, cost or deadlines of a group have changed.
func (s *Assignment) GroupChanged(group int32) {
	if q := s.queueOf[group]; q >= 0 {
		s.updateCosts(q, s.placeOf(group))
	}
}

// Start returns the mean and variance of the start of the group at a place of a queue.
func (s *Assignment) Start(queue int32, place int) (mean, variance float64) {
	slot := &s.queues[queue].slots[place]
	return slot.start, slot.variance
}

// LateRequests returns the number of requests in groups that, by the means, end after their last deadline, and of
// those in no queue. The residence of a group (from a request's start to its milestone) is added to the slot's end,
// at which the group's last request starts.
func (s *Assignment) LateRequests() float64 {
	refreshStaleQueues(s)
	count, p := 0.0, s.problem
	for q := range s.queues {
		kind := p.Queues[q].Kind
		for i := range s.queues[q].slots {
			slot := &s.queues[q].slots[i]
			if g := &p.Groups[slot.group]; slot.end+p.Cost(slot.group, kind).Residence-g.Deadline[Quantiles-1] > lateTolerance {
				count += g.Size
			}
		}
	}
	for i, q := range s.queueOf {
		if q < 0 {
			count += p.Groups[i].Size
		}
	}
	return count
}

// updateCosts recomputes the slots of a queue from firstSlot on, after a change there, and adds the difference of
// the queue's cost to the total. A stale queue, whose earlier slots have old starts and costs, is recomputed from
// the front.
func (s *Assignment) updateCosts(q int32, firstSlot int) {
	oldCost := s.queues[q].cost
	if s.queues[q].stale {
		firstSlot = 0
	}
	s.problem.recostSlots(q, &s.queues[q], firstSlot, s.maxVariance)
	s.total += s.queues[q].cost - oldCost
	s.nonEmpty.set(q, len(s.queues[q].slots) > 0)
}

// Insert puts a group that is in no queue at a place of a queue. The total then has the group's cost in the queue
// instead of that of being unplaced. In long queues of rules without costs only the queue's duration is kept up to
// date.
func (s *Assignment) Insert(group, q int32, place int) {
	order := &s.queues[q]
	s.queueOf[group] = q
	if s.lazyCosts && len(order.slots) >= maxExactGroups {
		order.insertLazily(s.problem, q, group, place)
		return
	}
	order.slots = slices.Insert(order.slots, place, queueSlot{group: group})
	s.total -= s.problem.unplacedCost(&s.problem.Groups[group])
	s.updateCosts(q, place)
}

// Remove takes a group out of its queue. If it is in none, nothing changes. The group is then unplaced, and the
// total has the cost of that.
func (s *Assignment) Remove(group int32) {
	q := s.queueOf[group]
	if q < 0 {
		return
	}
	place := s.placeOf(group)
	order := &s.queues[q]
	s.queueOf[group] = -1
	if s.lazyCosts && len(order.slots) > maxExactGroups {
		order.removeLazily(s.problem, q, place)
		return
	}
	order.slots = slices.Delete(order.slots, place, place+1)
	s.total += s.problem.unplacedCost(&s.problem.Groups[group])
	s.updateCosts(q, place)
}

// placeOf returns the place of a group in its queue.
func (s *Assignment) placeOf(group int32) int {
	for i := range s.queues[s.queueOf[group]].slots {
		if s.queues[s.queueOf[group]].slots[i].group == group {
			return i
		}
	}
	return -1
}

// cheapestInsertion returns the place of a queue at which a group adds least to the objective, and the increase,
// without the saved cost of being unplaced. If no place adds less than bound, the place is -1.
func (s *Assignment) cheapestInsertion(group, q int32, bound float64) (place int, delta float64) {
	problem, order := s.problem, &s.queues[q]
	problemQueue, g := &problem.Queues[q], &problem.Groups[group]
	c := problem.Cost(group, problemQueue.Kind)
	place, delta = -1, bound
	if !problemQueue.accepts(g, c) {
		return place, delta
	}

	// Walk through the queue: startAt, variance and model are the state of the instance before slot i.
	startAt, variance, model := problemQueue.Start, 0.0, problemQueue.Model
	for i := 0; ; i++ {
		atEnd := i == len(order.slots)
		if i > 0 {
			slot := &order.slots[i-1]
			startAt, model = slot.end, slot.model
			variance = slot.variance + problem.Cost(slot.group, problemQueue.Kind).Variance
			if slot.priority > g.Priority {
				break
			}
		}

		// The place before slot i keeps the priorities. Its cost is the group's own, and the delay of all behind
		// it.
		if atEnd || order.slots[i].priority >= g.Priority {
			s.searchWork++
			setup := problemQueue.changeTime(model, g.Model)
			shift := setup + c.Work
			if !atEnd {
				nextModel := order.slots[i].model
				shift += problemQueue.changeTime(g.Model, nextModel) - problemQueue.changeTime(model, nextModel)
			}
			ownCost := problem.startCost(g, c, startAt+setup, variance) + problem.EndWeight*shift
			if ownCost < delta {
				if d := problem.delayCost(problemQueue.Kind, order, i, len(order.slots), shift, c.Variance, delta-ownCost); ownCost+d < delta {
					place, delta = i, ownCost+d
				}
			} else if setup == 0 {
				break // at later places the group starts later, and costs no less
			}
		}
		if atEnd {
			break
		}
	}
	return place, delta
}

// BestPlace returns the queue and place at which a group adds least to the objective, and the increase. If the
// group can run nowhere, the queue is -1.
func (s *Assignment) BestPlace(group int32) (queue int32, place int, delta float64) {
	return bestPlaceUntil(s, group, math.Inf(-1))
}

// bestPlaceUntil returns the queue and place at which a group adds least to the objective, and the increase. It
// stops at the first queue at which the increase is at most stopAt, since no better one is needed. If the group can
// run in no queue, it returns queue -1 and an infinite increase.
func bestPlaceUntil(s *Assignment, group int32, stopAt float64) (queue int32, place int, delta float64) {
	queue, delta = -1, math.Inf(1)
	for q := range s.queues {
		if candidatePlace, d := s.cheapestInsertion(group, int32(q), delta); candidatePlace >= 0 {
			if queue, place, delta = int32(q), candidatePlace, d; delta <= stopAt {
				break
			}
		}
	}
	return queue, place, delta
}

// minIncrease returns a lower bound on the increase of the objective by a group in any place: nobody is late, and
// it runs where it takes the least time. With ByCompletion it is minus infinity.
func (p *Problem) minIncrease(group int32) float64 {
	if p.Judge == ByCompletion {
		return math.Inf(-1)
	}
	return p.EndWeight * p.minWork(group)
}

// minWork returns the least work of a group over the kinds of devices. It is infinite if the group can run
// nowhere.
func (p *Problem) minWork(group int32) float64 {
	work := math.Inf(1)
	for k := range p.Kinds {
		work = min(work, p.Cost(group, int32(k)).Work)
	}
	return work
}
