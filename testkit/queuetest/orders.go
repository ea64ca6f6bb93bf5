package queuetest

import (
	"context"
	"math"

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
