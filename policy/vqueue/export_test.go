package vqueue

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// Check holds the policy's books: every open request waits in one group, runs, or is
// homeless; groups have the members that they count and stand in one queue.
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
		pool, pools := p.pool.(interface{ Has(req int32) bool })
		for _, in := range []bool{r.group >= 0, r.batch >= 0, r.homeless, pools && pool.Has(int32(i))} {
			if in {
				places++
			}
		}
		if places != 1 {
			return fmt.Errorf("request %d is in %d places: %+v", i, places, *r)
		}
	}
	if open != p.open {
		return fmt.Errorf("%d requests are open, counted %d", open, p.open)
	}
	for g := range p.groups {
		x := &p.groups[g]
		if int32(g) == p.place.probe || !x.live {
			if p.state.Where(int32(g)) >= 0 {
				return fmt.Errorf("group %d is free and in a queue", g)
			}
			continue
		}
		n, last := int32(0), int32(-1)
		for req := x.first; req >= 0; req = p.requests[req].next {
			if r := &p.requests[req]; r.group != int32(g) || r.prev != last || !r.open || r.model != x.model {
				return fmt.Errorf("group %d has request %d, which is %+v", g, req, *r)
			}
			n, last = n+1, req
		}
		if n != x.size || last != x.last || n == 0 || p.state.Where(int32(g)) < 0 || p.problem.Groups[g].Size != float64(n) {
			return fmt.Errorf("group %d counts %d members, has %d; queue %d, size %g", g, x.size, n, p.state.Where(int32(g)), p.problem.Groups[g].Size)
		}
	}
	for i := range p.instances {
		in, tokens, evicting := &p.instances[i], int64(0), 0
		for _, slot := range in.running {
			r := &p.requests[p.batches[slot]]
			tokens += r.taken
			if r.evicting {
				evicting++
			}
		}
		if tokens != in.tokens || evicting != in.evicting {
			return fmt.Errorf("instance %d counts %d tokens and %d evictions, has %d and %d", i, in.tokens, in.evicting, tokens, evicting)
		}
	}
	return nil
}

// Due is when a request of an event is due, and how long before it has to start on
// the first instance.
func (p *Policy) Due(ev *policy.Event) (due, lead time.Duration) {
	return p.classes[ev.Model].due(ev), p.lead(&p.instances[0], ev.Model)
}

// Each is what a mean request of a model is planned to take on the first instance, and
// its answer's length.
func (p *Policy) Each(model int32) (seconds, output float64) {
	e := p.estimator(&p.instances[0], model, false)
	seconds, _ = e.Work(1)
	return seconds, e.OutputMean
}

// Waiting is how many requests wait or run by instance.
func (p *Policy) Waiting() []int {
	out := make([]int, len(p.instances))
	for q := range out {
		out[q] = len(p.instances[q].running)
		for _, x := range p.state.queues[q].slots {
			out[q] += int(p.groups[x.group].size)
		}
	}
	return out
}

// BestSoon is State.Best, with queues passed over where none can be better.
func BestSoon(s *State, group int32) (queue int32, place int, delta float64) {
	return bestPlace(s, group, s.p.atLeast(group))
}

// Marked returns whether just the queues that have groups are marked.
func Marked(s *State) bool {
	for q := range s.queues {
		if (s.filled.after(int32(q)) == int32(q)) != (len(s.queues[q].slots) > 0) {
			return false
		}
	}
	return s.filled.after(int32(len(s.queues))) < 0
}

// Granted is what a re-plan was allowed last, in positions.
func (p *Policy) Granted() int64 { return p.plan.effort.grant }

// Wide is by how much standard deviations of starts are multiplied.
func (p *Policy) Wide() float64 { return p.wide }

// Pauses tells whether an instance has requests that it holds back now.
func (p *Policy) Pauses(now time.Duration, q int32) bool {
	return p.state.First(q) >= 0 && pricing{p.grouping}.pauses(now, q)
}

// PauseCost is what a second of a pause costs the queue of an instance.
func (p *Policy) PauseCost(q int32, idle float64) float64 {
	return pricing{p.grouping}.pauseCost(q, idle)
}

// Spoiled is the same where the groups from a place on have costs that are no number.
func (p *Policy) Spoiled(q int32, from int) float64 {
	l := &p.state.queues[q]
	kept := slices.Clone(l.slots)
	for i := from; i < len(l.slots); i++ {
		l.slots[i].cost = math.NaN()
	}
	cost := p.PauseCost(q, 0.5)
	l.slots = kept
	return cost
}

// Exact has all queues computed anew at each change.
func (p *Policy) Exact() { p.state.loose = false }

// Len is the number of clusters.
func (c *Clusters) Len() int { return len(c.centres) }

// Model is the model of a cluster.
func (c *Clusters) Model(cluster int32) int32 { return c.centres[cluster].model }
