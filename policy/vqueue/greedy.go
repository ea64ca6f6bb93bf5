package vqueue

import (
	"cmp"
	"slices"
)

// compareDeadlines orders groups by priority (smaller first), then by the deadline of their last member, then by
// index. It is used to sort groups for insertion and for queues by deadline.
func (p *Problem) compareDeadlines(a, b int32) int {
	x, y := &p.Groups[a], &p.Groups[b]
	if c := cmp.Compare(x.Priority, y.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(x.Deadline[Quantiles-1], y.Deadline[Quantiles-1]); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

// InsertGreedily inserts every group that is in no queue, the earliest deadline first, each at the place where the
// objective grows least. Groups that can run nowhere stay unplaced. It gives a first order, which the search
// improves.
func (s *Assignment) InsertGreedily() {
	var unplaced []int32
	for i, q := range s.queueOf {
		if q < 0 && s.problem.Groups[i].Size > 0 {
			unplaced = append(unplaced, int32(i))
		}
	}
	slices.SortFunc(unplaced, s.problem.compareDeadlines)
	for _, g := range unplaced {
		s.InsertBest(g)
	}
}

// InsertBest puts a group at the place where the objective grows least. It returns false if the group can run
// nowhere.
func (s *Assignment) InsertBest(group int32) bool {
	q, place, _ := s.BestPlace(group)
	if q < 0 {
		return false
	}
	s.Insert(group, q, place)
	return true
}

// sortByDeadline orders every queue by priority, then deadline. It is the fallback when a search failed, or too
// many requests would be late.
func sortByDeadline(s *Assignment) {
	orders := make([][]int32, len(s.queues))
	for q := range orders {
		orders[q] = s.AppendOrder(int32(q), nil)
		slices.SortFunc(orders[q], s.problem.compareDeadlines)
	}
	s.Arrange(orders)
}
