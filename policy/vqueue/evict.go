package vqueue

import (
	"time"

	"inferplan/policy"
)

// The rule of eviction for a head of the model that is loaded: the head may still
// be in time, and what leaves has long to go.
const (
	headHope     = 0.6 // of its residence: how late the head may be
	headHurry    = 4 * time.Second
	victimAfter  = 60 * time.Second
	victimSpare  = 3 // residences
	mostEvicted  = 3
	switchFactor = 1.5 // how much more a change must gain than it loses
)

// evicting takes requests off running batches for the heads of queues.
type evicting struct{ *grouping }

// makeRoom evicts the request with the latest deadline for a head that hurries.
func (e evicting) makeRoom(now time.Duration, in *instance, head *request, out *policy.Actions) {
	if !e.ops.evict.on {
		return
	}
	stay, lead, rank := e.stay(in, head.model), e.lead(in, head.model), e.classes[head.model].priority
	slack := head.deadline - now - lead
	if slack > headHurry || float64(slack) < -headHope*float64(stay) || e.capped(in, head.model) {
		return
	}
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

// left is when a request that runs is due, long after where its class's point is
// passed.
func (e evicting) left(r *request) time.Duration {
	if e.classes[r.model].passed(r) {
		return r.deadline + patience
	}
	return r.deadline
}

// order has a batch leave its instance.
func (e evicting) order(in *instance, slot int32, out *policy.Actions) {
	in.evicting++
	e.requests[e.batches[slot]].evicting = true
	out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: slot, Device: in.device, Tag: e.ops.swap.tag()})
}

// clear evicts all that runs for a head of another model, where that brings clearly
// more requests in time than it makes late. Otherwise the batch runs out.
func (e evicting) clear(now time.Duration, q, head int32, out *policy.Actions) {
	if !e.ops.evict.on {
		return
	}
	in, x := &e.instances[q], &e.groups[head]
	stay, lead, load := e.stay(in, x.model), e.lead(in, x.model), e.changeTime(in, e.problem.Groups[head].Model)
	drain := time.Duration(0)
	for _, slot := range in.running {
		r := &e.requests[e.batches[slot]]
		drain = max(drain, e.stay(in, r.model))
		if r.evictions >= mostEvicted || e.classes[r.model].priority < e.classes[x.model].priority {
			return
		}
	}
	if float64(e.gained(in, x, now+load+lead, drain)) <= switchFactor*float64(e.lost(in, now, now+2*load+stay+drain))+1 {
		return
	}
	for _, slot := range in.running {
		e.order(in, slot, out)
	}
}

// lost is how many requests of a batch are late because they leave, and are in
// their model's batch again only at a later time.
func (e evicting) lost(in *instance, now, again time.Duration) int {
	n := 0
	for _, slot := range in.running {
		if due := e.left(&e.requests[e.batches[slot]]); due > now && due < again {
			n++
		}
	}
	return n
}

// gained is how many requests of a group are in time if its first is done at a
// time, and not if that is later by drain.
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
