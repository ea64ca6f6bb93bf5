package vqueue

import "slices"

// Assignments with lazyCosts are those of rules whose order does not depend on costs: first come first served, and
// earliest deadline first. An insertion into a long queue, or a removal from it, then updates only the queue and
// its end. Starts and costs are computed when they are next read (refreshStaleQueues).

// maxExactGroups is the number of groups up to which such a queue is recomputed at every change.
const maxExactGroups = 64

// addedDuration returns by how many seconds a queue ends later with a group at a position before the entry at nextPosition than without it.
// It is negative if the group makes a change of networks unnecessary.
func (p *Problem) addedDuration(queueIndex int32, order *queueOrder, groupIndex int32, position, nextPosition int) float64 {
	// The group adds its work and the changes of network before and behind it, and removes the change between its neighbours.
	queue, model := &p.Queues[queueIndex], p.Groups[groupIndex].Model
	modelBefore := queue.Model
	if position > 0 {
		modelBefore = order.entries[position-1].model
	}
	duration := p.Cost(groupIndex, queue.Kind).Work + queue.changeTime(modelBefore, model)
	if nextPosition < len(order.entries) {
		modelAfter := order.entries[nextPosition].model
		duration += queue.changeTime(model, modelAfter) - queue.changeTime(modelBefore, modelAfter)
	}
	return duration
}

// insertLazily puts a group at a position of a long queue without recomputing the starts and costs of the entries, which would take time in
// the length of the queue. It only keeps the queue's duration right, and marks the queue as stale. queueIndex is the queue's index in the
// problem.
func (order *queueOrder) insertLazily(problem *Problem, queueIndex, groupIndex int32, position int) {
	nextPosition := position // of the entry behind the group, before the insertion moves it
	order.duration += problem.addedDuration(queueIndex, order, groupIndex, position, nextPosition)
	order.isStale = true

	// If the memory behind the entries is used up, move them to the start of the backing slice: removed heads have left space there. If the
	// entries would fill more than half of it, take a slice four times as long as they are. So after each copy of all entries at least as many
	// insertions follow without one.
	if length := len(order.entries); length == cap(order.entries) {
		if cap(order.backing) < 2*length {
			order.backing = make([]queueEntry, 0, 4*length)
		}
		copy(order.backing[:length], order.entries)
		order.entries = order.backing[:length]
	}
	group := &problem.Groups[groupIndex]
	order.entries = slices.Insert(order.entries, position, queueEntry{group: groupIndex, model: group.Model, priority: group.Priority})
}

// removeLazily takes the group at a position out of a long queue without recomputing the starts and costs of the entries, and marks the
// queue as stale. The head is removed without moving the others. queueIndex is the queue's index in the problem.
func (order *queueOrder) removeLazily(problem *Problem, queueIndex int32, position int) {
	order.duration -= problem.addedDuration(queueIndex, order, order.entries[position].group, position, position+1)
	order.isStale = true
	if position == 0 {
		order.entries = order.entries[1:]
		return
	}
	order.entries = slices.Delete(order.entries, position, position+1)
}

// updateDuration recomputes the duration of a long queue in seconds, work and changes of networks, after a change of the problem.
// It marks the queue as stale: the starts and costs of its entries are computed when they are next read. queueIndex is the queue's index in
// the problem.
func (order *queueOrder) updateDuration(problem *Problem, queueIndex int32) {
	queue, duration := &problem.Queues[queueIndex], 0.0
	model := queue.Model
	for i := range order.entries {
		entry := &order.entries[i]
		duration += queue.changeTime(model, entry.model) + problem.Cost(entry.group, queue.Kind).Work
		model = entry.model
	}
	order.duration, order.isStale = duration, true
}

// refreshStaleQueues computes starts and costs in the stale queues of an assignment, whose entries were changed without computing them,
// before something reads them.
func refreshStaleQueues(assignment *Assignment) {
	for queueIndex := range assignment.queues {
		if order := &assignment.queues[queueIndex]; order.isStale {
			assignment.problem.recomputeEntries(int32(queueIndex), order, 0, assignment.maxVariance)
		}
	}
}
