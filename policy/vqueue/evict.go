package vqueue

import (
	"time"

	"inferplan/policy"
)

const (
	// The rule of eviction for a head of the loaded network: the head may still be in time, and the victim has a
	// late deadline.
	headHope     = 0.6              // latest that the head may be, relative to its residence
	headHurry    = 4 * time.Second  // longest time that an urgent head could still wait
	victimAfter  = 60 * time.Second // least time from the head's deadline to the victim's
	victimSpare  = 3                // least time from now to the victim's deadline, in residences
	mostEvicted  = 3                // per request
	switchFactor = 1.5              // requests that a change of network saves, relative to those that it makes late
)

// evictor removes requests from running batches in favour of the heads of queues.
type evicting struct{ *grouping }

// evictForHead evicts the running request with the latest deadline, if the head is urgent.
func (e evicting) makeRoom(now time.Duration, in *instance, head *request, out *policy.Actions) {
	if !e.ops.evict.on {
		return
	}
	stay, lead, rank := e.stay(in, head.model), e.lead(in, head.model), e.classes[head.model].priority

	// The head must be urgent, and not hopelessly late.
	slack := head.deadline - now - lead
	if slack > headHurry || float64(slack) < -headHope*float64(stay) || e.capped(in, head.model) {
		return
	}

	// Find the request with the latest deadline that is not more important than the head.
	victim, latest := int32(-1), max(head.deadline+victimAfter, now+victimSpare*stay)
	for _, slot := range in.running {
		r := &e.requests[e.batches[slot]]
		if due := e.left(r); r.open && r.evictions < mostEvicted && e.classes[r.model].priority >= rank && due > latest {
			victim, latest = slot, due
		}
	}
	if victim >= 0 {
		e.order(in, victim, out)
	}
}

// effectiveDeadline returns the deadline of a running request. If it has reached its class's milestone, the
// deadline is much later.
func (e evicting) left(r *request) time.Duration {
	if e.classes[r.model].passed(r) {
		return r.deadline + patience
	}
	return r.deadline
}

// orderEviction orders that a batch leaves its instance.
func (e evicting) order(in *instance, slot int32, out *policy.Actions) {
	in.evicting++
	e.requests[e.batches[slot]].evicting = true
	out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: slot, Device: in.device, Tag: e.ops.swap.tag()})
}

// evictAllForHead evicts the whole batch for a head of another network, if that brings clearly more requests in
// time than it makes late. Otherwise the batch runs out.
func (e evicting) clear(now time.Duration, q, head int32, out *policy.Actions) {
	if !e.ops.evict.on {
		return
	}
	in, x := &e.instances[q], &e.groups[head]
	stay, lead, load := e.stay(in, x.model), e.lead(in, x.model), e.changeTime(in, e.problem.Groups[head].Model)

	// Find how long the batch would take to run out. Requests that may not be evicted keep all.
	drain := time.Duration(0)
	for _, slot := range in.running {
		r := &e.requests[e.batches[slot]]
		drain = max(drain, e.stay(in, r.model))
		if r.evictions >= mostEvicted || e.classes[r.model].priority < e.classes[x.model].priority {
			return
		}
	}

	// Compare the requests saved with those made late.
	if float64(e.gained(in, x, now+load+lead, drain)) <= switchFactor*float64(e.lost(in, now, now+2*load+stay+drain))+1 {
		return
	}
	for _, slot := range in.running {
		e.order(in, slot, out)
	}
}

// lateByEviction returns how many requests of a running batch are late if they leave and are in their network's
// batch again only at returnsAt.
func (e evicting) lost(in *instance, now, again time.Duration) int {
	n := 0
	for _, slot := range in.running {
		if due := e.left(&e.requests[e.batches[slot]]); due > now && due < again {
			n++
		}
	}
	return n
}

// savedByChange returns how many requests of a group are in time if its first one is answered at firstDone, and
// late if that is drainTime later.
func (e evicting) gained(in *instance, x *members, done, drain time.Duration) int {
	est := e.estimator(in, x.model, x.mega)
	each, _ := est.Work(1)
	gain := 0
	for req, n := x.first, 0; req >= 0; req, n = e.requests[req].next, n+1 {
		at := done + time.Duration(est.Wait(each*float64(n))*float64(time.Second))
		if d := e.requests[req].deadline; d >= at && d < at+drain {
			gain++
		}
	}
	return gain
}
