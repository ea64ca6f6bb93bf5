package vqueue

import "slices"

// Assignments with lazyCosts are those of rules whose order does not depend on costs: first come first served, and
// earliest deadline first. An insertion into a long queue, or a removal from it, then updates only the queue and
// its end. Starts and costs are computed when they are next read (refreshStaleQueues).

// maxExactGroups is the number of groups up to which such a queue is recomputed at every change.
const maxExactGroups = 64

// addedDuration returns by how many seconds a queue ends later if a group stands at a place, before the slot
// nextSlot. It is negative if the group makes a change of networks unnecessary.
func (p *Problem) addedDuration(q int32, order *queueOrder, group int32, place, nextSlot int) float64 {
	problemQueue, model := &p.Queues[q], p.Groups[group].Model
	modelBefore := problemQueue.Model
	if place > 0 {
		modelBefore = order.slots[place-1].model
	}
	duration := p.Cost(group, problemQueue.Kind).Work + problemQueue.changeTime(modelBefore, model)
	if nextSlot < len(order.slots) {
		modelAfter := order.slots[nextSlot].model
		duration += problemQueue.changeTime(model, modelAfter) - problemQueue.changeTime(modelBefore, modelAfter)
	}
	return duration
}

// insertLazily puts a group at a place of a long queue without recomputing the starts and costs of the slots, which
// would take time in the length of the queue. It only keeps the queue's duration right, and marks the queue as
// stale.
func (order *queueOrder) insertLazily(p *Problem, q, group int32, place int) {
	order.duration, order.stale = order.duration+p.addedDuration(q, order, group, place, place), true

	// If the memory is used up, move to the start of the backing slice: removed heads have left space in front.
	if n := len(order.slots); n == cap(order.slots) {
		if cap(order.backing) < 2*n {
			order.backing = make([]queueSlot, 0, 4*n)
		}
		copy(order.backing[:n], order.slots)
		order.slots = order.backing[:n]
	}
	g := &p.Groups[group]
	order.slots = slices.Insert(order.slots, place, queueSlot{group: group, model: g.Model, priority: g.Priority})
}

// removeLazily takes the group at a place out of a long queue without recomputing the slots' starts and costs. The
// head is removed without moving the others.
func (order *queueOrder) removeLazily(p *Problem, q int32, place int) {
	order.duration, order.stale = order.duration-p.addedDuration(q, order, order.slots[place].group, place, place+1), true
	if place == 0 {
		order.slots = order.slots[1:]
		return
	}
	order.slots = slices.Delete(order.slots, place, place+1)
}

// updateDuration recomputes the duration of a long queue in seconds, work and changes of networks, after a change
// of the problem. It marks the queue as stale: the slots' starts and costs are computed later, when they are
// needed.
func (order *queueOrder) updateDuration(p *Problem, q int32) {
	problemQueue, t := &p.Queues[q], 0.0
	model := problemQueue.Model
	for i := range order.slots {
		slot := &order.slots[i]
		t += problemQueue.changeTime(model, slot.model) + p.Cost(slot.group, problemQueue.Kind).Work
		model = slot.model
	}
	order.duration, order.stale = t, true
}

// refreshStaleQueues computes the starts and costs of stale queues, in which they were not kept up to date, before
// something reads them.
func refreshStaleQueues(s *Assignment) {
	for q := range s.queues {
		if order := &s.queues[q]; order.stale {
			s.problem.recostSlots(int32(q), order, 0, s.maxVariance)
		}
	}
}
