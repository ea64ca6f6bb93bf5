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
	for i := range p.requests.byNumber {
		request := &p.requests.byNumber[i]
		if !request.isOpen {
			if request.groupIndex >= 0 {
				return fmt.Errorf("request %d has ended and is in group %d", i, request.groupIndex)
			}
			continue
		}
		open++
		places := 0
		pool, pools := p.dispatcher.(interface {
			Has(requestNumber int32) bool
		})
		for _, in := range []bool{request.groupIndex >= 0, request.batchNumber >= 0, request.isUnplaced, pools && pool.Has(int32(i))} {
			if in {
				places++
			}
		}
		if places != 1 {
			return fmt.Errorf("request %d is in %d places: %+v", i, places, *request)
		}
	}
	if open != p.requests.openRequests {
		return fmt.Errorf("%d requests are open, counted %d", open, p.requests.openRequests)
	}
	for g := range p.groups.members {
		members := &p.groups.members[g]
		if int32(g) == p.placer.probeGroup || !members.inUse {
			if p.groups.assignment.QueueOf(int32(g)) >= 0 {
				return fmt.Errorf("group %d is free and in a queue", g)
			}
			continue
		}
		n, last := int32(0), int32(-1)
		for requestNumber := members.requests.First; requestNumber >= 0; requestNumber = p.requests.groupLinks[requestNumber].Next {
			if request := &p.requests.byNumber[requestNumber]; request.groupIndex != int32(g) || p.requests.groupLinks[requestNumber].Previous != last || !request.isOpen || request.Model != members.model {
				return fmt.Errorf("group %d has request %d, which is %+v", g, requestNumber, *request)
			}
			n, last = n+1, requestNumber
		}
		if n != members.requests.Len || last != members.requests.Last || n == 0 || p.groups.assignment.QueueOf(int32(g)) < 0 || p.groups.problem.Groups[g].Size != float64(n) {
			return fmt.Errorf("group %d counts %d members, has %d; queue %d, size %g", g, members.requests.Len, n, p.groups.assignment.QueueOf(int32(g)), p.groups.problem.Groups[g].Size)
		}
	}
	for i := range p.fleet.instances {
		instance, tokens, taken, evicting := &p.fleet.instances[i], int64(0), int64(0), 0
		for _, batchNumber := range instance.RunningBatches {
			request := &p.requests.byNumber[p.requests.requestOfBatch[batchNumber]]
			tokens += request.reservedKVTokens
			taken += request.takenTokens
			if request.isEvictionOrdered {
				evicting++
			}
		}
		if tokens != instance.reservedKVTokens || taken != instance.takenTokens || evicting != instance.pendingEvictions {
			return fmt.Errorf("instance %d counts %d and %d tokens and %d evictions, has %d, %d and %d", i, instance.reservedKVTokens, instance.takenTokens, instance.pendingEvictions, tokens, taken, evicting)
		}
		if instance.lostThrough > instance.freedTokens {
			return fmt.Errorf("instance %d has lost %d tokens of %d that became free", i, instance.lostThrough, instance.freedTokens)
		}
	}
	return nil
}

// OpenRequests is the number of open requests.
func (p *Policy) OpenRequests() int { return p.requests.openRequests }

// DueAndLead is when a request of an event is due, and how long before it has to start on
// the first instance.
func (p *Policy) DueAndLead(event *policy.Event) (due, lead time.Duration) {
	return p.fleet.classes[event.Model].dueAt(event), p.fleet.LeadTime(&p.fleet.instances[0], event.Model)
}

// PlannedWork is what a mean request of a model is planned to take on the first instance, and
// its answer's length.
func (p *Policy) PlannedWork(model int32) (seconds, output float64) {
	estimator := p.fleet.EstimatorOn(&p.fleet.instances[0], model, false)
	seconds, _ = estimator.Work(1)
	return seconds, estimator.OutputMean
}

// WaitingPerQueue is how many requests wait or run by instance.
func (p *Policy) WaitingPerQueue() []int {
	out := make([]int, len(p.fleet.instances))
	for queueIndex := range out {
		out[queueIndex] = len(p.fleet.instances[queueIndex].RunningBatches)
		for _, entry := range p.groups.assignment.queues[queueIndex].entries {
			out[queueIndex] += int(p.groups.members[entry.group].requests.Len)
		}
	}
	return out
}

// BestSoon is Assignment.BestPlace, with queues passed over where none can be better.
func BestSoon(assignment *Assignment, groupIndex int32) (queueIndex int32, position int, delta float64) {
	return bestPositionUntil(assignment, groupIndex, assignment.problem.minIncrease(groupIndex))
}

// NonEmptyIsExact returns whether just the queues that have groups are marked.
func NonEmptyIsExact(assignment *Assignment) bool {
	for queueIndex := range assignment.queues {
		if (assignment.nonEmpty.next(int32(queueIndex)) == int32(queueIndex)) != (len(assignment.queues[queueIndex].entries) > 0) {
			return false
		}
	}
	return assignment.nonEmpty.next(int32(len(assignment.queues))) < 0
}

// GrantedWork is what a re-plan was allowed last, in positions.
func (p *Policy) GrantedWork() int64 { return p.replanner.budget.granted }

// StartSDScale is by how much standard deviations of starts are multiplied.
func (p *Policy) StartSDScale() float64 { return p.groups.startSDScale }

// IsPausing tells whether an instance has requests that it holds back now.
func (p *Policy) IsPausing(now time.Duration, queueIndex int32) bool {
	return p.groups.assignment.Head(queueIndex) >= 0 && p.server.pauses.shouldPause(now, queueIndex)
}

// PauseCost is what a second of a pause costs the queue of an instance.
func (p *Policy) PauseCost(queueIndex int32, idle float64) float64 {
	return p.server.pauses.pauseCost(queueIndex, idle)
}

// PauseCostWithNaN is the same where the groups from a place on have costs that are no number.
func (p *Policy) PauseCostWithNaN(queueIndex int32, from int) float64 {
	order := &p.groups.assignment.queues[queueIndex]
	kept := slices.Clone(order.entries)
	for i := from; i < len(order.entries); i++ {
		order.entries[i].cost = math.NaN()
	}
	cost := p.PauseCost(queueIndex, 0.5)
	order.entries = kept
	return cost
}

// DisableLazyCosts has all queues computed anew at each change.
func (p *Policy) DisableLazyCosts() { p.groups.assignment.lazyCosts = false }

// Len is the number of clusters.
func (c *Clusters) Len() int { return len(c.centres) }

// Model is the model of a cluster.
func (c *Clusters) Model(cluster int32) int32 { return c.centres[cluster].model }
