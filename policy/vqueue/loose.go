package vqueue

import "slices"

// A state is loose where the order of its queues does not depend on costs: first come first served, and earliest
// deadline first. What comes to a long queue or goes from it changes the queue by itself and its end. Starts and
// costs are computed once somebody looks at them.

// mostExact is the number of groups up to which a loose queue is computed anew at every change.
const mostExact = 64

// turnover returns how much later a queue ends with a group at a place, in front of what stands at next.
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

// slipIn puts a group at a place of a long queue.
func (l *line) slipIn(p *Problem, q, group int32, place int) {
	l.tail, l.behind = l.tail+p.turnover(q, l, group, place, place), true
	if n := len(l.slots); n == cap(l.slots) { // what left the head made room in front
		if cap(l.buffer) < 2*n {
			l.buffer = make([]slot, 0, 4*n)
		}
		copy(l.buffer[:n], l.slots)
		l.slots = l.buffer[:n]
	}
	g := &p.Groups[group]
	l.slots = slices.Insert(l.slots, place, slot{group: group, model: g.Model, priority: g.Priority})
}

// slipOut takes the group at a place out of a long queue.
func (l *line) slipOut(p *Problem, q int32, place int) {
	l.tail, l.behind = l.tail-p.turnover(q, l, l.slots[place].group, place, place+1), true
	if place == 0 {
		l.slots = l.slots[1:]
		return
	}
	l.slots = slices.Delete(l.slots, place, place+1)
}

// retail brings the end of a long queue up to the problem.
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

// fresh computes the starts and costs of queues that are behind.
func fresh(s *State) {
	for q := range s.queues {
		if l := &s.queues[q]; l.behind {
			s.p.recost(int32(q), l, 0, s.spare)
		}
	}
}
