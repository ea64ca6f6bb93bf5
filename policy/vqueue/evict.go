package vqueue

import (
	"time"

	"inferplan/policy"
)

const (
	// The rule of eviction for a head of the loaded network: the head may still be in time, and the victim has a
	// late deadline.
	maxHeadLateness     = 0.6              // latest that the head may be, relative to its residence
	maxHeadSlack        = 4 * time.Second  // longest time that an urgent head could still wait
	minDeadlineGap      = 60 * time.Second // least time from the head's deadline to the victim's
	minVictimResidences = 3                // least time from now to the victim's deadline, in residences
	maxEvictions        = 3                // per request
	minSwitchGain       = 1.5              // requests that a change of network saves, relative to those that it makes late
)

// evictor removes requests from running batches in favour of the heads of queues.
type evictor struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
}

// evictForHead evicts the running request with the latest deadline from a full batch, if the head (the request to
// serve next) is urgent. Nothing is evicted if the head still has much time, is hopelessly late, or could not run
// anyway because its class is at its cap. A victim's deadline must be later than the head's by minDeadlineGap and
// leave time to run again.
func (e *evictor) evictForHead(now time.Duration, in *instance, head *request, out *policy.Actions) {
	if !e.fleet.operations.evict.enabled {
		return
	}
	headResidence, headLeadTime, rank := e.fleet.residence(in, head.model), e.fleet.leadTime(in, head.model), e.fleet.classes[head.model].priority

	// The head must be urgent, and not hopelessly late.
	slack := head.deadline - now - headLeadTime
	if slack > maxHeadSlack || float64(slack) < -maxHeadLateness*float64(headResidence) || e.fleet.atCap(in, head.model) {
		return
	}

	// Find the request with the latest deadline that is not more important than the head.
	victim, latest := int32(-1), max(head.deadline+minDeadlineGap, now+minVictimResidences*headResidence)
	for _, slot := range in.runningBatches {
		r := &e.requests.bySlot[e.requests.batchRequests[slot]]
		if due := e.effectiveDeadline(r); r.open && r.evictionCount < maxEvictions && e.fleet.classes[r.model].priority >= rank && due > latest {
			victim, latest = slot, due
		}
	}
	if victim >= 0 {
		e.orderEviction(in, victim, out)
	}
}

// effectiveDeadline returns the deadline of a running request. If it has reached its class's milestone, the
// deadline is much later.
func (e *evictor) effectiveDeadline(r *request) time.Duration {
	if e.fleet.classes[r.model].milestonePassed(r) {
		return r.deadline + defaultStartLimit
	}
	return r.deadline
}

// orderEviction orders that a batch leaves its instance.
func (e *evictor) orderEviction(in *instance, slot int32, out *policy.Actions) {
	in.pendingEvictions++
	e.requests.bySlot[e.requests.batchRequests[slot]].evictionOrdered = true
	out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: slot, Device: in.device, Tag: e.fleet.operations.swap.evictTag()})
}

// evictAllForHead evicts the whole batch for a head group of another network, if that brings clearly more requests
// in time than it makes late. Otherwise the batch runs out. A batch with a request that was evicted maxEvictions
// times, or that has a higher priority (a smaller number), is never evicted.
func (e *evictor) evictAllForHead(now time.Duration, q, head int32, out *policy.Actions) {
	if !e.fleet.operations.evict.enabled {
		return
	}
	in, group := &e.fleet.instances[q], &e.groups.members[head]
	headResidence, headLeadTime, loadTime := e.fleet.residence(in, group.model), e.fleet.leadTime(in, group.model), e.fleet.changeTime(in, e.groups.problem.Groups[head].Model)

	// Find how long the batch would take to run out. Requests that may not be evicted keep all.
	drainTime := time.Duration(0)
	for _, slot := range in.runningBatches {
		r := &e.requests.bySlot[e.requests.batchRequests[slot]]
		drainTime = max(drainTime, e.fleet.residence(in, r.model))
		if r.evictionCount >= maxEvictions || e.fleet.classes[r.model].priority < e.fleet.classes[group.model].priority {
			return
		}
	}

	// Compare the requests saved with those made late.
	// The batch returns only after both changes of network and the head's own batch. One request more than the gain
	// requires keeps small differences from evicting.
	if float64(e.savedByChange(in, group, now+loadTime+headLeadTime, drainTime)) <= minSwitchGain*float64(e.lateByEviction(in, now, now+2*loadTime+headResidence+drainTime))+1 {
		return
	}
	for _, slot := range in.runningBatches {
		e.orderEviction(in, slot, out)
	}
}

// lateByEviction returns how many requests of a running batch become late if they are evicted now and run again
// only at returnsAt. Requests that are late already do not count.
func (e *evictor) lateByEviction(in *instance, now, returnsAt time.Duration) int {
	n := 0
	for _, slot := range in.runningBatches {
		if deadline := e.effectiveDeadline(&e.requests.bySlot[e.requests.batchRequests[slot]]); deadline > now && deadline < returnsAt {
			n++
		}
	}
	return n
}

// savedByChange returns how many requests of a group the eviction of a batch would save: those that are in time if
// the first one is answered at firstDone, but late if that is drainTime later, when the batch has run out by
// itself.
func (e *evictor) savedByChange(in *instance, group *groupMembers, firstDone, drainTime time.Duration) int {
	est := e.fleet.estimatorOn(in, group.model, group.mega)
	workEach, _ := est.Work(1)
	gain := 0
	for req, n := group.firstRequest, 0; req >= 0; req, n = e.requests.bySlot[req].nextInGroup, n+1 {
		doneAt := firstDone + time.Duration(est.MeanWait(workEach*float64(n))*float64(time.Second))
		if deadline := e.requests.bySlot[req].deadline; deadline >= doneAt && deadline < doneAt+drainTime {
			gain++
		}
	}
	return gain
}
