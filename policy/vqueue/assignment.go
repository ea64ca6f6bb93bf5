package vqueue

import (
	"math"
	"math/bits"
	"slices"
)

// Assignment is an assignment of groups to queues, in order, with its cost.
// Groups and queues are named by their indexes in the problem, and a position is an index in a queue.
// It is not safe for use by several goroutines; CopyFrom makes a copy for another one.
type Assignment struct {
	problem     *Problem
	queues      []queueOrder
	queueOf     []int32 // by group: its queue; -1 if it is in none
	nonEmpty    bitSet  // queues that have groups
	total       float64 // objective, with the cost of unplaced groups; with lazyCosts it may be out of date
	maxVariance float64 // largest variance of one group's work
	searchWork  int64   // number of positions looked at so far: the unit in which searches are limited
	lazyCosts   bool    // costs of long queues are computed only when they are read, see stale.go
}

// queueOrder is the order of groups in one queue.
type queueOrder struct {
	entries []queueEntry
	cost    float64 // cost of the entries and of the queue's end
	// These fields are used by assignments with lazyCosts alone, see stale.go.
	duration float64      // seconds from the queue's start to its end
	isStale  bool         // starts and costs of the entries have not been computed since the last change
	backing  []queueEntry // memory that entries is a part of
}

// queueEntry is a group in a queue, with times in seconds.
type queueEntry struct {
	group, model            int32 // group, by index in the problem, and the network that it needs
	priority                int32
	start                   float64 // mean start
	variance                float64 // variance of the start
	end                     float64 // mean end of its work
	cost                    float64
	slack, costRate         float64 // how many seconds later it may start while its cost grows linearly, and by how much per second, see Problem.linearSlack
	suffixSlack, suffixRate float64 // least slack and total cost rate of this and all later entries
}

// bitSet is a set of small numbers: number i is in it if bit i%64 of word i/64 is 1.
type bitSet []uint64

// set adds the number i to the set, or removes it if isMember is false.
func (s bitSet) set(i int32, isMember bool) {
	if bit := uint64(1) << (i % 64); isMember {
		s[i/64] |= bit
	} else {
		s[i/64] &^= bit
	}
}

// next returns the smallest number of the set that is at least i. If there is none, it returns -1.
func (s bitSet) next(i int32) int32 {
	for wordIndex := i / 64; int(wordIndex) < len(s); wordIndex++ {
		// In the first word, numbers below i do not count.
		word := s[wordIndex]
		if wordIndex == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return 64*wordIndex + int32(bits.TrailingZeros64(word))
		}
	}
	return -1
}

// endTime returns the time in seconds at which a queue that starts at the given time is empty.
// In a stale queue, where the times of the entries are out of date, the duration gives it.
func (order *queueOrder) endTime(start float64) float64 {
	switch count := len(order.entries); {
	case count == 0:
		return start
	case order.isStale:
		return start + order.duration
	default:
		return order.entries[count-1].end
	}
}

// keepsPriorities reports whether no group of the queue stands behind one that is less important (has a larger priority number).
func (order *queueOrder) keepsPriorities() bool {
	for i := 1; i < len(order.entries); i++ {
		if order.entries[i].priority < order.entries[i-1].priority {
			return false
		}
	}
	return true
}

// NewAssignment returns the assignment of a problem in which no group is in a queue.
func NewAssignment(problem *Problem) *Assignment {
	assignment := &Assignment{}
	assignment.Reset(problem)
	return assignment
}

// Reset sets the problem and empties all queues, so that every group is unplaced.
// It reuses the memory of the slices, because the same assignment serves many problems.
func (a *Assignment) Reset(problem *Problem) {
	a.problem = problem
	a.queues = slices.Grow(a.queues[:0], len(problem.Queues))[:len(problem.Queues)]
	for queueIndex := range a.queues {
		a.queues[queueIndex].entries = a.queues[queueIndex].entries[:0]
	}
	a.nonEmpty = slices.Grow(a.nonEmpty[:0], len(problem.Queues)/64+1)[:len(problem.Queues)/64+1]
	clear(a.nonEmpty)
	a.queueOf = slices.Grow(a.queueOf[:0], len(problem.Groups))[:len(problem.Groups)]
	for i := range a.queueOf {
		a.queueOf[i] = -1
	}
	a.Refresh()
}

// CopyFrom makes the assignment equal to another one. The two share the problem and nothing else, so that a search may change the one
// while the other stays as it is.
func (a *Assignment) CopyFrom(source *Assignment) {
	a.problem, a.total, a.maxVariance, a.searchWork = source.problem, source.total, source.maxVariance, source.searchWork
	a.queueOf, a.nonEmpty = append(a.queueOf[:0], source.queueOf...), append(a.nonEmpty[:0], source.nonEmpty...)
	a.queues = slices.Grow(a.queues[:0], len(source.queues))[:len(source.queues)]
	for queueIndex := range a.queues {
		a.queues[queueIndex].entries = append(a.queues[queueIndex].entries[:0], source.queues[queueIndex].entries...)
		a.queues[queueIndex].cost = source.queues[queueIndex].cost
	}
}

// Refresh recomputes all costs after a change of the problem: times, costs, sizes, or groups added at its end. New groups are in no queue.
// With lazyCosts, only the durations of long queues (over maxExactGroups groups) are computed. Their costs, and so the total, may be out of
// date afterwards: the rules that set lazyCosts read neither, before refreshStaleQueues has computed them.
func (a *Assignment) Refresh() {
	problem := a.problem
	for len(a.queueOf) < len(problem.Groups) {
		a.queueOf = append(a.queueOf, -1)
	}

	// An insertion before an entry adds the variance of one group's work to its start, and so at most this. Linear slacks (how much later an
	// entry may start while its cost grows linearly) are computed so that they hold even then.
	a.maxVariance = 0
	for i := range problem.Costs {
		a.maxVariance = max(a.maxVariance, problem.Costs[i].Variance)
	}

	// Recompute the queues, and add the cost of unplaced groups.
	a.total = 0
	for queueIndex := range a.queues {
		if order := &a.queues[queueIndex]; a.lazyCosts && len(order.entries) > maxExactGroups {
			order.updateDuration(problem, int32(queueIndex))
		} else {
			problem.recomputeEntries(int32(queueIndex), order, 0, a.maxVariance)
		}
		a.total += a.queues[queueIndex].cost
		a.nonEmpty.set(int32(queueIndex), len(a.queues[queueIndex].entries) > 0)
	}
	for i, queueIndex := range a.queueOf {
		if queueIndex < 0 {
			a.total += problem.unplacedCost(&problem.Groups[i])
		}
	}
}

// QueueChanged recomputes the costs of a queue after its times in the problem have changed.
func (a *Assignment) QueueChanged(queueIndex int32) { a.updateCosts(queueIndex, 0) }

// Total returns the objective, with the cost of groups that are in no queue.
func (a *Assignment) Total() float64 { return a.total }

// LowerBound returns a total that no order can be below: nobody is late, and every group runs on the kind of device where it takes the
// least time. With ByCompletion, which rewards early ends, it is minus infinity.
func (a *Assignment) LowerBound() float64 {
	problem := a.problem
	if problem.LatenessRule == ByCompletion {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range problem.Groups {
		if quickest := problem.minWork(int32(i)); !math.IsInf(quickest, 1) && problem.Groups[i].Size > 0 {
			sum += problem.EndWeight * quickest
		}
	}
	return sum
}

// SearchWork returns the number of positions of queues looked at so far: the unit in which searches are limited.
func (a *Assignment) SearchWork() int64 { return a.searchWork }

// QueueOf returns the index of the queue that has a group, or -1 if none has.
func (a *Assignment) QueueOf(groupIndex int32) int32 { return a.queueOf[groupIndex] }

// Len returns the number of groups in a queue.
func (a *Assignment) Len(queueIndex int32) int { return len(a.queues[queueIndex].entries) }

// AppendOrder appends the groups of a queue, by index in the problem, to dst in order and returns it.
func (a *Assignment) AppendOrder(queueIndex int32, dst []int32) []int32 {
	for i := range a.queues[queueIndex].entries {
		dst = append(dst, a.queues[queueIndex].entries[i].group)
	}
	return dst
}

// Head returns the first group of a queue, which its instance serves next. If the queue is empty, it returns -1.
func (a *Assignment) Head(queueIndex int32) int32 {
	if entries := a.queues[queueIndex].entries; len(entries) > 0 {
		return entries[0].group
	}
	return -1
}

// Arrange replaces all queues by the given orders of groups, one per queue, and recomputes the costs.
// Groups that no order names are in no queue afterwards. No group may be named twice.
func (a *Assignment) Arrange(orders [][]int32) {
	for i := range a.queueOf {
		a.queueOf[i] = -1
	}
	for queueIndex := range a.queues {
		order := &a.queues[queueIndex]
		order.entries = order.entries[:0]
		for _, groupIndex := range orders[queueIndex] {
			order.entries = append(order.entries, queueEntry{group: groupIndex})
			a.queueOf[groupIndex] = int32(queueIndex)
		}
	}
	a.Refresh()
}

// GroupChanged recomputes the costs of the queue that has a group, after the size, cost or deadlines of the group have changed.
func (a *Assignment) GroupChanged(groupIndex int32) {
	if queueIndex := a.queueOf[groupIndex]; queueIndex >= 0 {
		a.updateCosts(queueIndex, a.positionOf(groupIndex))
	}
}

// Start returns the mean and variance, in seconds, of the start of the group at a position of a queue.
func (a *Assignment) Start(queueIndex int32, position int) (mean, variance float64) {
	entry := &a.queues[queueIndex].entries[position]
	return entry.start, entry.variance
}

// LateRequests returns the number of requests that are expected to be late: all those of a group whose last member is late
// (lastMemberLateness), and those in no queue.
func (a *Assignment) LateRequests() float64 {
	refreshStaleQueues(a)
	count, problem := 0.0, a.problem
	for queueIndex := range a.queues {
		kind := problem.Queues[queueIndex].Kind
		for i := range a.queues[queueIndex].entries {
			if entry := &a.queues[queueIndex].entries[i]; problem.lastMemberLateness(entry, kind) > lateTolerance {
				count += problem.Groups[entry.group].Size
			}
		}
	}

	// Requests in no queue are late.
	for i, queueIndex := range a.queueOf {
		if queueIndex < 0 {
			count += problem.Groups[i].Size
		}
	}
	return count
}

// updateCosts recomputes the entries of a queue from firstPosition on, after a change there, and adds the difference of the queue's cost to
// the total. In a stale queue, whose earlier entries have old starts and costs, all entries are recomputed.
func (a *Assignment) updateCosts(queueIndex int32, firstPosition int) {
	oldCost := a.queues[queueIndex].cost
	if a.queues[queueIndex].isStale {
		firstPosition = 0
	}
	a.problem.recomputeEntries(queueIndex, &a.queues[queueIndex], firstPosition, a.maxVariance)
	a.total += a.queues[queueIndex].cost - oldCost
	a.nonEmpty.set(queueIndex, len(a.queues[queueIndex].entries) > 0)
}

// Insert puts a group that is in no queue at a position of a queue.
// The total then has the group's cost in the queue instead of that of being unplaced.
// With lazyCosts, only the duration of a long queue (maxExactGroups groups or more) is kept up to date, and the total is not.
func (a *Assignment) Insert(groupIndex, queueIndex int32, position int) {
	order := &a.queues[queueIndex]
	a.queueOf[groupIndex] = queueIndex

	// Queue rules that do not use costs (lazyCosts: FCFS and EDF) have the costs of long queues computed only when something reads them.
	if a.lazyCosts && len(order.entries) >= maxExactGroups {
		order.insertLazily(a.problem, queueIndex, groupIndex, position)
		return
	}
	order.entries = slices.Insert(order.entries, position, queueEntry{group: groupIndex})
	a.total -= a.problem.unplacedCost(&a.problem.Groups[groupIndex])
	a.updateCosts(queueIndex, position)
}

// Remove takes a group out of its queue. If it is in none, nothing changes. The group is then unplaced, and the total has the cost of being
// unplaced instead of its cost in the queue. With lazyCosts, only the duration of a long queue (over maxExactGroups groups) is kept up to
// date, and the total is not.
func (a *Assignment) Remove(groupIndex int32) {
	queueIndex := a.queueOf[groupIndex]
	if queueIndex < 0 {
		return
	}
	position := a.positionOf(groupIndex)
	order := &a.queues[queueIndex]
	a.queueOf[groupIndex] = -1

	// Queue rules that do not use costs (lazyCosts: FCFS and EDF) have the costs of long queues computed only when something reads them.
	if a.lazyCosts && len(order.entries) > maxExactGroups {
		order.removeLazily(a.problem, queueIndex, position)
		return
	}
	order.entries = slices.Delete(order.entries, position, position+1)
	a.total += a.problem.unplacedCost(&a.problem.Groups[groupIndex])
	a.updateCosts(queueIndex, position)
}

// positionOf returns the position of a group in its queue.
func (a *Assignment) positionOf(groupIndex int32) int {
	for i := range a.queues[a.queueOf[groupIndex]].entries {
		if a.queues[a.queueOf[groupIndex]].entries[i].group == groupIndex {
			return i
		}
	}
	return -1
}

// cheapestInsertion returns the position in a queue at which inserting a group raises the objective least, and the increase, without the
// saved cost of being unplaced. If no position adds less than bound, the position is -1.
// Positions that would break the order of priorities are not considered.
func (a *Assignment) cheapestInsertion(groupIndex, queueIndex int32, bound float64) (position int, delta float64) {
	problem, order := a.problem, &a.queues[queueIndex]
	queue, group := &problem.Queues[queueIndex], &problem.Groups[groupIndex]
	cost := problem.Cost(groupIndex, queue.Kind)
	position, delta = -1, bound
	if !queue.accepts(group, cost) {
		return position, delta
	}

	// Walk through the queue: startAt, variance and model are the state of the instance before entry i.
	startAt, variance, model := queue.Start, 0.0, queue.Model
	for i := 0; ; i++ {
		atEnd := i == len(order.entries)
		if i > 0 {
			entry := &order.entries[i-1]
			startAt, model = entry.end, entry.model
			variance = entry.variance + problem.Cost(entry.group, queue.Kind).Variance
			if entry.priority > group.Priority {
				break
			}
		}

		// The position before entry i keeps the priorities. Its cost is that of the group itself, and of the delay of all behind it.
		if atEnd || order.entries[i].priority >= group.Priority {
			a.searchWork++
			// shift is by how much those behind it start later: its work, and the changes of network to it and from it.
			setup := queue.changeTime(model, group.Model)
			shift := setup + cost.Work
			if !atEnd {
				nextModel := order.entries[i].model
				shift += queue.changeTime(group.Model, nextModel) - queue.changeTime(model, nextModel)
			}
			groupCost := problem.startCost(group, cost, startAt+setup, variance) + problem.EndWeight*shift // the queue also ends later by shift
			if groupCost < delta {
				if delayIncrease := problem.delayCost(queue.Kind, order, i, len(order.entries), shift, cost.Variance, delta-groupCost); groupCost+delayIncrease < delta {
					position, delta = i, groupCost+delayIncrease
				}
			} else if setup == 0 {
				break // at later positions the group starts later, and costs no less
			}
		}
		if atEnd {
			break
		}
	}
	return position, delta
}

// BestPlace returns the queue and the position in it at which inserting a group raises the objective least, and the increase.
// If the group can run nowhere, the queue is -1.
func (a *Assignment) BestPlace(groupIndex int32) (queueIndex int32, position int, delta float64) {
	return bestPositionUntil(a, groupIndex, math.Inf(-1))
}

// bestPositionUntil returns the queue and the position in it at which inserting a group raises the objective least, and the increase.
// It stops at the first queue at which the increase is at most stopAt, since no better one is needed.
// If the group can run in no queue, it returns queue -1 and an infinite increase.
func bestPositionUntil(assignment *Assignment, groupIndex int32, stopAt float64) (bestQueue int32, bestPosition int, bestIncrease float64) {
	bestQueue, bestIncrease = -1, math.Inf(1)
	for queueIndex := range assignment.queues {
		// A position is returned only if it adds less than the best one so far.
		if candidatePosition, increase := assignment.cheapestInsertion(groupIndex, int32(queueIndex), bestIncrease); candidatePosition >= 0 {
			bestQueue, bestPosition, bestIncrease = int32(queueIndex), candidatePosition, increase
			if bestIncrease <= stopAt {
				break
			}
		}
	}
	return bestQueue, bestPosition, bestIncrease
}

// minIncrease returns a lower bound on the increase of the objective by inserting a group at any position: nobody is late, and the group
// runs where it takes the least time. With ByCompletion it is minus infinity.
func (p *Problem) minIncrease(groupIndex int32) float64 {
	if p.LatenessRule == ByCompletion {
		return math.Inf(-1)
	}
	return p.EndWeight * p.minWork(groupIndex)
}

// minWork returns the least time in seconds that the work of a group takes, over the kinds of devices. It is infinite if the group can run nowhere.
func (p *Problem) minWork(groupIndex int32) float64 {
	work := math.Inf(1)
	for kind := range p.Kinds {
		work = min(work, p.Cost(groupIndex, int32(kind)).Work)
	}
	return work
}
