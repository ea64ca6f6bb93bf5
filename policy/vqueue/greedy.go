package vqueue

import (
	"cmp"
	"slices"
)

// compareDeadlines compares two groups, by index, for sorting: by priority (smaller first), then by the deadline of their last member, then by index.
func (p *Problem) compareDeadlines(indexA, indexB int32) int {
	groupA, groupB := &p.Groups[indexA], &p.Groups[indexB]
	if c := cmp.Compare(groupA.Priority, groupB.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(groupA.Deadline[Quantiles-1], groupB.Deadline[Quantiles-1]); c != 0 {
		return c
	}
	return cmp.Compare(indexA, indexB)
}

// InsertGreedily inserts every group that is in no queue, the earliest deadline first, each where the objective grows least.
// Groups that can run nowhere stay unplaced. It gives a first order, which a search improves.
func (a *Assignment) InsertGreedily() {
	var unplaced []int32
	for i, queueIndex := range a.queueOf {
		if queueIndex < 0 && a.problem.Groups[i].Size > 0 {
			unplaced = append(unplaced, int32(i))
		}
	}
	slices.SortFunc(unplaced, a.problem.compareDeadlines)
	for _, groupIndex := range unplaced {
		a.InsertBest(groupIndex)
	}
}

// InsertBest puts a group into the queue and at the position where the objective grows least. It returns false if the group can run nowhere.
func (a *Assignment) InsertBest(groupIndex int32) bool {
	queueIndex, position, _ := a.BestPlace(groupIndex)
	if queueIndex < 0 {
		return false
	}
	a.Insert(groupIndex, queueIndex, position)
	return true
}

// sortByDeadline sorts every queue of an assignment by priority, then by deadline.
// It is the fallback when a search failed, or too many requests would be late.
func sortByDeadline(assignment *Assignment) {
	orders := make([][]int32, len(assignment.queues))
	for queueIndex := range orders {
		orders[queueIndex] = assignment.AppendOrder(int32(queueIndex), nil)
		slices.SortFunc(orders[queueIndex], assignment.problem.compareDeadlines)
	}
	assignment.Arrange(orders)
}
