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
	minVictimResidences = 3                // least time from now to the victim's deadline, in residences of the head, behind which the victim runs again
	maxEvictions        = 3                // per request
	minSwitchGain       = 1.5              // requests that a change of network saves, relative to those that it makes late
)

// evictor removes running requests from instances in favour of the heads of queues, the groups to serve next.
type evictor struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
}

// evictForHead evicts the running request with the latest deadline from an instance that cannot take the request to serve next (head), if
// that is urgent. Nothing is evicted if the head still has much time, is hopelessly late, or could not run anyway because its class is at its cap.
// The evicted request's deadline must be later than the head's by minDeadlineGap and leave time to run again behind the head.
func (e *evictor) evictForHead(now time.Duration, instance *Instance, head *Request, actions *policy.Actions) {
	if !e.fleet.operations[Eviction] {
		return
	}
	headResidence := e.fleet.residence(instance, head.Model)
	headLeadTime := e.fleet.LeadTime(instance, head.Model)
	headPriority := e.fleet.classes[head.Model].priority

	// The head must be urgent, and not hopelessly late. slack is how long it could still wait before it starts. Its residence is the time
	// from its start to its answer, and its lead time the time from its start to the point to which its SLO applies.
	slack := head.Deadline - now - headLeadTime
	hasTime, isHopeless := slack > maxHeadSlack, float64(slack) < -maxHeadLateness*float64(headResidence)
	if hasTime || isHopeless || e.fleet.AtCap(instance, head.Model) {
		return
	}

	// Find the batch of the request with the latest deadline that is not more important than the head (a smaller priority number is more
	// important). A request that has reached the point to which its SLO applies counts with a later deadline (effectiveDeadline), since it can
	// no longer be late. -1 means that none has a deadline late enough.
	victim, latest := int32(-1), max(head.Deadline+minDeadlineGap, now+minVictimResidences*headResidence)
	for _, batchNumber := range instance.RunningBatches {
		request := &e.requests.byNumber[e.requests.requestOfBatch[batchNumber]]
		mayBeEvicted := request.isOpen && request.evictionCount < maxEvictions && e.fleet.classes[request.Model].priority >= headPriority
		if due := e.effectiveDeadline(request); mayBeEvicted && due > latest {
			victim, latest = batchNumber, due
		}
	}
	if victim >= 0 {
		e.orderEviction(instance, victim, actions)
	}
}

// effectiveDeadline returns the deadline of a running request, by which evictions choose.
// If it has reached its class's milestone (the point to which the SLO applies), that is much later.
func (e *evictor) effectiveDeadline(request *Request) time.Duration {
	if e.fleet.classes[request.Model].milestonePassed(request) {
		return request.Deadline + defaultStartLimit
	}
	return request.Deadline
}

// orderEviction orders that a batch, which is one request, leaves its instance.
func (e *evictor) orderEviction(instance *Instance, batchNumber int32, actions *policy.Actions) {
	instance.pendingEvictions++
	e.requests.byNumber[e.requests.requestOfBatch[batchNumber]].isEvictionOrdered = true
	action := policy.Action{Kind: policy.Evict, Batch: batchNumber, Device: instance.Device}
	if e.fleet.operations[StateSwap] {
		action.Tag = 1 // the instance keeps the KV state in host memory
	}
	actions.List = append(actions.List, action)
}

// evictAllForHead evicts all running requests of an instance for the head group of its queue, which needs another network, if that brings
// clearly more requests in time than it makes late. Otherwise the batch runs out.
// A batch with a request that was evicted maxEvictions times, or that has a higher priority (a smaller number), is never evicted.
func (e *evictor) evictAllForHead(now time.Duration, queueIndex, head int32, actions *policy.Actions) {
	if !e.fleet.operations[Eviction] {
		return
	}
	instance, group := &e.fleet.instances[queueIndex], &e.groups.members[head]
	headResidence := e.fleet.residence(instance, group.model)
	headLeadTime := e.fleet.LeadTime(instance, group.model)
	loadTime := e.fleet.ChangeTime(instance, e.groups.problem.Groups[head].Model)

	// Find how long the batch takes to run out, and to run again after an eviction: at most about the longest residence (mean time from start
	// to answer) of its requests. If one of them may not be evicted, none is.
	drainTime := time.Duration(0)
	for _, batchNumber := range instance.RunningBatches {
		request := &e.requests.byNumber[e.requests.requestOfBatch[batchNumber]]
		drainTime = max(drainTime, e.fleet.residence(instance, request.Model))
		if request.evictionCount >= maxEvictions || e.fleet.classes[request.Model].priority < e.fleet.classes[group.model].priority {
			return
		}
	}

	// Compare the requests saved with those made late. The first member of the head reaches the point to which its SLO applies a lead time
	// after the load. The batch comes back only after both changes of network and one residence of the head, and then runs for drainTime again.
	// The saved requests must exceed minSwitchGain times the delayed ones by more than one, so that small differences evict nothing.
	firstDone, batchEndsAt := now+loadTime+headLeadTime, now+2*loadTime+headResidence+drainTime
	savedRequests := float64(e.requestsSavedByEviction(instance, group, firstDone, drainTime))
	delayedRequests := float64(e.requestsDelayedByEviction(instance, now, batchEndsAt))
	if savedRequests <= minSwitchGain*delayedRequests+1 {
		return
	}
	for _, batchNumber := range instance.RunningBatches {
		e.orderEviction(instance, batchNumber, actions)
	}
}

// requestsDelayedByEviction returns how many running requests of an instance become late if they are evicted now and, because they run again
// later, end only at endsAt. Requests that are late already do not count.
func (e *evictor) requestsDelayedByEviction(instance *Instance, now, endsAt time.Duration) int {
	delayedCount := 0
	for _, batchNumber := range instance.RunningBatches {
		if deadline := e.effectiveDeadline(&e.requests.byNumber[e.requests.requestOfBatch[batchNumber]]); deadline > now && deadline < endsAt {
			delayedCount++
		}
	}
	return delayedCount
}

// requestsSavedByEviction returns how many requests of a group the eviction of a batch would save: those that are in time if the first one
// reaches its milestone at firstDone, but late if that is drainTime later, when the batch has run out by itself.
func (e *evictor) requestsSavedByEviction(instance *Instance, group *groupMembers, firstDone, drainTime time.Duration) int {
	estimator := e.fleet.EstimatorOn(instance, group.model, group.isMegaPrompt)
	// Members start one after the other, so each waits for the work of those before it.
	workEach, _ := estimator.Work(1)
	savedCount, earlierMembers := 0, 0
	for requestNumber := group.requests.First; requestNumber >= 0; requestNumber = e.requests.groupLinks[requestNumber].Next {
		doneAt := firstDone + time.Duration(estimator.MeanWait(workEach*float64(earlierMembers))*float64(time.Second))
		if deadline := e.requests.byNumber[requestNumber].Deadline; deadline >= doneAt && deadline < doneAt+drainTime {
			savedCount++
		}
		earlierMembers++
	}
	return savedCount
}
