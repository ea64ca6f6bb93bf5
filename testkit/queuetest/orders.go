package queuetest

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
)

// Orders calls f with a state at every order and assignment of the groups from next on.
func Orders(p *vqueue.Problem, s *vqueue.Assignment, next int32, f func()) {
	if int(next) == len(p.Groups) {
		f()
		return
	}
	for q := range p.Queues {
		if math.IsInf(p.Cost(next, p.Queues[q].Kind).Work, 1) {
			continue
		}
		for place := range s.Len(int32(q)) + 1 {
			s.Insert(next, int32(q), place)
			Orders(p, s, next+1, f)
			s.Remove(next)
		}
	}
}

// Searched returns the order that the search finds within so much work.
func Searched(p *vqueue.Problem, work int64) *vqueue.Assignment {
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	var x vqueue.Search
	x.Run(context.Background(), s, seeded.New(1, "exact"), work)
	return s
}

// AppendByDeadline puts every group into an assignment without groups, by deadline, at the end of the queue where it
// ends first: earliest deadline first as a plan.
func AppendByDeadline(p *vqueue.Problem, s *vqueue.Assignment) {
	groups := make([]int32, len(p.Groups))
	for g := range groups {
		groups[g] = int32(g)
	}
	slices.SortFunc(groups, func(a, b int32) int {
		x, y := &p.Groups[a], &p.Groups[b]
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.Deadline[vqueue.Quantiles-1], y.Deadline[vqueue.Quantiles-1]), cmp.Compare(a, b))
	})

	// Append each group to the queue in which its end is earliest.
	lastGroup := slices.Repeat([]int32{-1}, len(p.Queues))
	for _, g := range groups {
		earliestEnd, bestQueue := math.Inf(1), int32(-1)
		for q := range p.Queues {
			if end := endAppended(p, s, g, int32(q), lastGroup[q]); end < earliestEnd {
				earliestEnd, bestQueue = end, int32(q)
			}
		}
		if bestQueue >= 0 {
			s.Insert(g, bestQueue, s.Len(bestQueue))
			lastGroup[bestQueue] = g
		}
	}
}

// endAppended returns when a group is answered behind the last group of a queue, which is -1 if the queue is empty. If
// the queue does not take the group, it returns infinity.
func endAppended(p *vqueue.Problem, s *vqueue.Assignment, g, q, last int32) float64 {
	queue, group := &p.Queues[q], &p.Groups[g]
	if queue.ClosedClasses != nil && queue.ClosedClasses[group.Class] {
		return math.Inf(1)
	}
	end, model, setup := queue.Start, queue.Model, 0.0
	if last >= 0 {
		start, _ := s.Start(q, s.Len(q)-1)
		end, model = start+p.Cost(last, queue.Kind).Work, p.Groups[last].Model
	}
	if model != group.Model {
		setup = queue.Setup[group.Model]
	}
	c := p.Cost(g, queue.Kind)
	return end + (setup + c.Work + c.Residence)
}
