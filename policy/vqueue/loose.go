package vqueue

import "slices"

// Assignments with lazyCosts are those of rules whose order does not depend on costs: first come first served, and
// earliest deadline first. An insertion into a long queue, or a removal from it, then updates only the queue and
// its end. Starts and costs are computed when they are next read (refreshStaleQueues).

// maxExactGroups is the number of groups up to which such a queue is recomputed at every change.
const mostExact = 64

// addedDuration returns by how many seconds a queue ends later if a group stands at a place, before the slot
// nextSlot.
func (p *Problem) turnover(q int32, l *line, group int32, place, next int) float64 {
	def, model := &p.Queues[q], p.Groups[group].Model
	before := def.Model
	if place > 0 {
		before = l.slots[place-1].model
	}
	out := p.Cost(group, def.Kind).Work + def.change(before, model)
	if next < len(l.slots) {
		after := l.slots[next].model
		out += def.change(model, after) - def.change(before, after)
	}
	return out
}

// insertLazily puts a group at a place of a long queue without recomputing costs.
func (l *line) slipIn(p *Problem, q, group int32, place int) {
	l.tail, l.behind = l.tail+p.turnover(q, l, group, place, place), true

	// If the memory is used up, move to the start of the backing slice: removed heads have left space in front.
	if n := len(l.slots); n == cap(l.slots) {
		if cap(l.buffer) < 2*n {
			l.buffer = make([]slot, 0, 4*n)
		}
		copy(l.buffer[:n], l.slots)
		l.slots = l.buffer[:n]
	}
	g := &p.Groups[group]
	l.slots = slices.Insert(l.slots, place, slot{group: group, model: g.Model, priority: g.Priority})
}

// removeLazily takes the group at a place out of a long queue without recomputing costs.
func (l *line) slipOut(p *Problem, q int32, place int) {
	l.tail, l.behind = l.tail-p.turnover(q, l, l.slots[place].group, place, place+1), true
	if place == 0 {
		l.slots = l.slots[1:]
		return
	}
	l.slots = slices.Delete(l.slots, place, place+1)
}

// updateDuration recomputes the duration of a long queue after a change of the problem, and marks the queue as
// stale.
func (l *line) retail(p *Problem, q int32) {
	def, t := &p.Queues[q], 0.0
	model := def.Model
	for i := range l.slots {
		x := &l.slots[i]
		t += def.change(model, x.model) + p.Cost(x.group, def.Kind).Work
		model = x.model
	}
	l.tail, l.behind = t, true
}

// refreshStaleQueues computes the starts and costs of stale queues.
func fresh(s *State) {
	for q := range s.queues {
		if l := &s.queues[q]; l.behind {
			s.p.recost(int32(q), l, 0, s.spare)
		}
	}
}
