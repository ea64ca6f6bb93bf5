package vqueue

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// Check holds the policy's books: every open request waits in one group, runs, or is
// unplaced; groups have the members that they count and stand in one queue.
func (p *Policy) Check() error {
	open := 0
	for i := range p.requests {
		r := &p.requests[i]
		if !r.open {
			if r.group >= 0 {
				return fmt.Errorf("request %d has ended and is in group %d", i, r.group)
			}
			continue
		}
		open++
		places := 0
		pool, pools := p.dispatcher.(interface{ Has(req int32) bool })
		for _, in := range []bool{r.group >= 0, r.batch >= 0, r.unplaced, pools && pool.Has(int32(i))} {
			if in {
				places++
			}
		}
		if places != 1 {
			return fmt.Errorf("request %d is in %d places: %+v", i, places, *r)
		}
	}
	if open != p.openRequests {
		return fmt.Errorf("%d requests are open, counted %d", open, p.openRequests)
	}
	for g := range p.groups {
		members := &p.groups[g]
		if int32(g) == p.placer.probeGroup || !members.inUse {
			if p.assignment.QueueOf(int32(g)) >= 0 {
				return fmt.Errorf("group %d is free and in a queue", g)
			}
			continue
		}
		n, last := int32(0), int32(-1)
		for req := members.firstRequest; req >= 0; req = p.requests[req].nextInGroup {
			if r := &p.requests[req]; r.group != int32(g) || r.prevInGroup != last || !r.open || r.model != members.model {
				return fmt.Errorf("group %d has request %d, which is %+v", g, req, *r)
			}
			n, last = n+1, req
		}
		if n != members.size || last != members.lastRequest || n == 0 || p.assignment.QueueOf(int32(g)) < 0 || p.problem.Groups[g].Size != float64(n) {
			return fmt.Errorf("group %d counts %d members, has %d; queue %d, size %g", g, members.size, n, p.assignment.QueueOf(int32(g)), p.problem.Groups[g].Size)
		}
	}
	for i := range p.instances {
		in, tokens, evicting := &p.instances[i], int64(0), 0
		for _, slot := range in.runningBatches {
			r := &p.requests[p.batchRequests[slot]]
			tokens += r.countedKV
			if r.evictionOrdered {
				evicting++
			}
		}
		if tokens != in.countedKV || evicting != in.pendingEvictions {
			return fmt.Errorf("instance %d counts %d tokens and %d evictions, has %d and %d", i, in.countedKV, in.pendingEvictions, tokens, evicting)
		}
	}
	return nil
}

// DueAndLead is when a request of an event is due, and how long before it has to start on
// the first instance.
func (p *Policy) DueAndLead(ev *policy.Event) (due, lead time.Duration) {
	return p.classes[ev.Model].dueAt(ev), p.leadTime(&p.instances[0], ev.Model)
}

// PlannedWork is what a mean request of a model is planned to take on the first instance, and
// its answer's length.
func (p *Policy) PlannedWork(model int32) (seconds, output float64) {
	e := p.estimatorOn(&p.instances[0], model, false)
	seconds, _ = e.Work(1)
	return seconds, e.OutputMean
}

// WaitingPerQueue is how many requests wait or run by instance.
func (p *Policy) WaitingPerQueue() []int {
	out := make([]int, len(p.instances))
	for q := range out {
		out[q] = len(p.instances[q].runningBatches)
		for _, slot := range p.assignment.queues[q].slots {
			out[q] += int(p.groups[slot.group].size)
		}
	}
	return out
}

// BestSoon is Assignment.BestPlace, with queues passed over where none can be better.
func BestSoon(s *Assignment, group int32) (queue int32, place int, delta float64) {
	return bestPlaceUntil(s, group, s.problem.minIncrease(group))
}

// NonEmptyIsExact returns whether just the queues that have groups are marked.
func NonEmptyIsExact(s *Assignment) bool {
	for q := range s.queues {
		if (s.nonEmpty.next(int32(q)) == int32(q)) != (len(s.queues[q].slots) > 0) {
			return false
		}
	}
	return s.nonEmpty.next(int32(len(s.queues))) < 0
}

// GrantedWork is what a re-plan was allowed last, in positions.
func (p *Policy) GrantedWork() int64 { return p.replanner.budget.granted }

// StartSDScale is by how much standard deviations of starts are multiplied.
func (p *Policy) StartSDScale() float64 { return p.startSDScale }

// IsPausing tells whether an instance has requests that it holds back now.
func (p *Policy) IsPausing(now time.Duration, q int32) bool {
	return p.assignment.Head(q) >= 0 && pausePricer{p.groupTable}.shouldPause(now, q)
}

// PauseCost is what a second of a pause costs the queue of an instance.
func (p *Policy) PauseCost(q int32, idle float64) float64 {
	return pausePricer{p.groupTable}.pauseCost(q, idle)
}

// PauseCostWithNaN is the same where the groups from a place on have costs that are no number.
func (p *Policy) PauseCostWithNaN(q int32, from int) float64 {
	order := &p.assignment.queues[q]
	kept := slices.Clone(order.slots)
	for i := from; i < len(order.slots); i++ {
		order.slots[i].cost = math.NaN()
	}
	cost := p.PauseCost(q, 0.5)
	order.slots = kept
	return cost
}

// DisableLazyCosts has all queues computed anew at each change.
func (p *Policy) DisableLazyCosts() { p.assignment.lazyCosts = false }

// Len is the number of clusters.
func (c *Clusters) Len() int { return len(c.centres) }

// Model is the model of a cluster.
func (c *Clusters) Model(cluster int32) int32 { return c.centres[cluster].model }
