package vqueue

import (
	"cmp"
	"math"
	"slices"
)

// compareDeadlines orders groups by priority, last deadline, then index.
func (p *Problem) byDeadline(a, b int32) int {
	x, y := &p.Groups[a], &p.Groups[b]
	if c := cmp.Compare(x.Priority, y.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(x.Deadline[Quantiles-1], y.Deadline[Quantiles-1]); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

// InsertGreedily inserts every group that is in no queue, by deadline, each at the place where the objective grows
// least. Groups that can run nowhere stay unplaced.
func (s *State) Greedy() {
	var out []int32
	for i, q := range s.where {
		if q < 0 && s.p.Groups[i].Size > 0 {
			out = append(out, int32(i))
		}
	}
	slices.SortFunc(out, s.p.byDeadline)
	for _, g := range out {
		s.InsertBest(g)
	}
}

// InsertBest puts a group at the place where the objective grows least. It returns false if the group can run
// nowhere.
func (s *State) InsertBest(group int32) bool {
	q, place, _ := s.Best(group)
	if q < 0 {
		return false
	}
	s.Insert(group, q, place)
	return true
}

// sortByDeadline orders every queue by deadline.
func edf(s *State) {
	orders := make([][]int32, len(s.queues))
	for q := range orders {
		orders[q] = s.Order(int32(q), nil)
		slices.SortFunc(orders[q], s.p.byDeadline)
	}
	s.Arrange(orders)
}

// AppendByDeadline inserts every group that is in no queue, by deadline, at the end of the queue where it ends
// first: earliest deadline first as a plan.
func (s *State) ListEDF() {
	p := s.p
	order := make([]int32, 0, len(p.Groups))
	for i, q := range s.where {
		if q < 0 {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, p.byDeadline)

	// Append each group to the queue in which its end is earliest.
	for _, g := range order {
		best, queue := math.Inf(1), int32(-1)
		for q := range s.queues {
			def, l := &p.Queues[q], &s.queues[q]
			end, model := def.Start, def.Model
			if n := len(l.slots); n > 0 {
				end, model = l.slots[n-1].end, l.slots[n-1].model
			}
			c := p.Cost(g, def.Kind)
			if !def.takes(&p.Groups[g], c) {
				continue
			}
			if end += def.change(model, p.Groups[g].Model) + c.Work + c.Residence; end < best {
				best, queue = end, int32(q)
			}
		}
		if queue >= 0 {
			s.Insert(g, queue, s.Len(queue))
		}
	}
}
