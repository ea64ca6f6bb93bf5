package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// queueServer carries out the order of the queues on the instances: it sends requests to them and changes their networks.
type queueServer struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
	sessions *sessionTable
	evictor  evictor
	pauses   pausePricer
}

// newQueueServer returns a server of the queues of a group table, with its rules of eviction and of pauses.
func newQueueServer(groups *groupTable) *queueServer {
	return &queueServer{fleet: groups.fleet, requests: groups.requests, groups: groups, sessions: groups.sessions, evictor: evictor{fleet: groups.fleet, requests: groups.requests, groups: groups}, pauses: pausePricer{fleet: groups.fleet, requests: groups.requests, groups: groups}}
}

// serveQueue lets an instance do what its queue says, until it can do no more at this time: it sends requests of the head group to the
// instance, which join its running batch, changes the network, or evicts requests.
// If its queue is empty, it serves a group of another queue that needs no change of network (borrowedGroup).
// It is called whenever the instance may have become free or its queue has changed. The instance has the index of the queue.
func (s *queueServer) serveQueue(now time.Duration, queueIndex int32, actions *policy.Actions) {
	instance := &s.fleet.instances[queueIndex]
	// With pulling, requests join a running batch. Without it only an instance on which nothing runs takes requests, but then as many as fit. So
	// mayPull is set before the first of them is sent, after which the instance runs something.
	mayPull := s.fleet.operations[Pulling] || len(instance.RunningBatches) == 0
	for instance.IsUp() && instance.LoadingNetwork < 0 && instance.pendingEvictions == 0 { // until an eviction has ended, its place is not free
		// Choose the group: the head of its queue or, if that needs no change of network, a more urgent head of another queue that needs none either.
		groupIndex := s.headGroup(instance, queueIndex)
		if groupIndex < 0 { // its queue is empty
			groupIndex = s.borrowedGroup(instance)
			if groupIndex < 0 {
				return
			}
		} else if instance.LoadedNetwork == s.groups.problem.Groups[groupIndex].Model {
			groupIndex = s.moreUrgentHead(now, instance, queueIndex, groupIndex)
		}

		// Choose its request: clients take turns. Then change the network, evict requests, or dispatch it. A change of network waits until
		// the running batch has ended or was evicted.
		requestNumber := s.nextByTurn(queueIndex, groupIndex)
		request := &s.requests.byNumber[requestNumber]
		switch network := s.groups.problem.Groups[groupIndex].Model; {
		case instance.LoadedNetwork != network && len(instance.RunningBatches) > 0:
			s.evictor.evictAllForHead(now, queueIndex, groupIndex, actions)
			return
		case instance.LoadedNetwork != network:
			// From now on, requests are placed by the queue's times with the network that is being loaded.
			s.ChangeNetwork(now, instance, network, actions)
			s.groups.syncQueue(now, queueIndex)
			s.groups.assignment.QueueChanged(queueIndex)
			return
		case !mayPull:
			return
		case !s.fleet.CanTakeRequest(instance, request):
			s.evictor.evictForHead(now, instance, request, actions)
			return
		case s.pauses.shouldPause(now, queueIndex): // its prompt would slow the running answers more than it wins
			return
		}
		s.DispatchRequest(instance, requestNumber, actions)
	}
}

// headGroup returns the group that an instance serves next from its queue. That is the first one, unless as many requests of its served model
// run as the cap allows: then it is the next group whose served model is below its cap, if no group up to it needs another network.
// A served model is one SLO class of a model; all classes share its network (weights). If the queue is empty, it returns -1.
func (s *queueServer) headGroup(instance *Instance, queueIndex int32) int32 {
	firstGroup := s.groups.assignment.Head(queueIndex)
	if s.fleet.queueTables.Caps == nil || firstGroup < 0 {
		return firstGroup
	}

	// Skip groups at their caps, up to the first that does not need the loaded network (entry.model is a network, members.model a served model).
	// If there is none below its cap, the first group waits.
	for _, entry := range s.groups.assignment.queues[queueIndex].entries {
		if entry.model != instance.LoadedNetwork {
			break
		}
		if !s.fleet.AtCap(instance, s.groups.members[entry.group].model) {
			return entry.group
		}
	}
	return firstGroup
}

// borrowedGroup returns the group that an instance with an empty queue serves from another instance's queue without a change of network:
// the one with the highest priority, then the earliest deadline. If there is none, it returns -1.
// Groups whose first member has started before stay in their queue, because its state is on that instance.
func (s *queueServer) borrowedGroup(instance *Instance) int32 {
	bestGroup, earliestDeadline, bestPriority := int32(-1), time.Duration(0), int32(0)
	mayBorrow := s.groups.options.Rule == VirtualQueues && s.fleet.operations[Balancing]
	if !mayBorrow || instance.LoadedNetwork < 0 || s.requests.waitingRequests() == 0 || s.fleet.isFull(instance) {
		return bestGroup
	}

	// Look at all groups of the loaded network.
	for queueIndex := s.groups.assignment.nonEmpty.next(0); queueIndex >= 0; queueIndex = s.groups.assignment.nonEmpty.next(queueIndex + 1) {
		for _, entry := range s.groups.assignment.queues[queueIndex].entries {
			if s.groups.problem.Groups[entry.group].Model != instance.LoadedNetwork || !s.groups.canRun(entry.group, s.fleet.instanceOf[instance.Device]) {
				continue
			}
			if s.staysWithPrefix(&entry, queueIndex) {
				continue
			}
			request := &s.requests.byNumber[s.groups.members[entry.group].requests.First]
			hasStarted := request.producedTokens > 0 || request.evictionCount > 0
			isBetter := bestGroup < 0 || entry.priority < bestPriority || entry.priority == bestPriority && request.Deadline < earliestDeadline
			if !hasStarted && isBetter && s.fleet.CanTakeRequest(instance, request) {
				bestGroup, earliestDeadline, bestPriority = entry.group, request.Deadline, entry.priority
			}
		}
	}
	return bestGroup
}

// moreUrgentHead returns the head of another queue that an instance serves before the head of its own queue (headIndex): one with an
// earlier deadline that it can still meet here. If there is none, it returns headIndex.
// Without this rule a request would wait for its own instance while others of its network serve less urgent requests.
// Requests that have started before stay, as do those of other kinds of devices.
func (s *queueServer) moreUrgentHead(now time.Duration, instance *Instance, queueIndex, headIndex int32) int32 {
	if s.groups.options.Rule != VirtualQueues || !s.fleet.operations[Balancing] || len(s.fleet.instances) == 1 {
		return headIndex
	}
	headRequest := &s.requests.byNumber[s.groups.members[headIndex].requests.First]
	bestGroup, earliestDeadline := headIndex, headRequest.Deadline
	for otherQueue := s.groups.assignment.nonEmpty.next(0); otherQueue >= 0; otherQueue = s.groups.assignment.nonEmpty.next(otherQueue + 1) {
		groupIndex := s.groups.assignment.Head(otherQueue)
		// The head must need the loaded network, be at least as important as the instance's own head, and wait on a device of the same kind.
		group, ownGroup := &s.groups.problem.Groups[groupIndex], &s.groups.problem.Groups[headIndex]
		if groupIndex == headIndex || group.Model != instance.LoadedNetwork || group.Priority > ownGroup.Priority {
			continue
		}
		isOtherKind := s.groups.problem.Queues[otherQueue].Kind != s.groups.problem.Queues[queueIndex].Kind
		if isOtherKind || s.staysWithPrefix(&s.groups.assignment.queues[otherQueue].entries[0], otherQueue) {
			continue
		}

		// Its first request must have an earlier deadline, not have started before, and still be in time here.
		request := &s.requests.byNumber[s.groups.members[groupIndex].requests.First]
		hasStarted := request.producedTokens > 0 || request.evictionCount > 0
		if request.Deadline >= earliestDeadline || hasStarted {
			continue
		}
		isInTime := request.Deadline >= now+s.fleet.LeadTime(instance, request.Model)
		if isInTime && s.groups.canRun(groupIndex, queueIndex) && s.fleet.CanTakeRequest(instance, request) {
			bestGroup, earliestDeadline = groupIndex, request.Deadline
		}
	}
	return bestGroup
}

// staysWithPrefix reports whether the group of a queue's entry waits for the queue's instance, although another one could serve it earlier:
// the instance has the prefixes of its prompts, and hardly any of its requests will be late there.
func (s *queueServer) staysWithPrefix(entry *queueEntry, queueIndex int32) bool {
	members := &s.groups.members[entry.group]
	return members.prefixQueue == queueIndex && entry.cost <= maxPrefixCost*float64(members.requests.Len)
}

// maxPrefixCost is the cost of a request, in units of the objective, up to which it waits for the instance that has its prefix. A late request
// costs 1.
const maxPrefixCost = 1e-3

// ChangeNetwork orders an instance on which nothing runs to unload its network and load another.
// After a failed load it does nothing until the next tick, which tries again.
func (s *queueServer) ChangeNetwork(now time.Duration, instance *Instance, network int32, actions *policy.Actions) {
	if instance.LoadFailed {
		return
	}
	if instance.LoadedNetwork >= 0 {
		actions.List = append(actions.List, policy.Action{Kind: policy.Unload, Network: instance.LoadedNetwork, Device: instance.Device})
	}
	instance.LoadedNetwork, instance.LoadingNetwork, instance.loadStart = -1, network, now
	instance.memoryEpoch++
	s.groups.instanceChanges++
	actions.List = append(actions.List, policy.Action{Kind: policy.Load, Network: network, Device: instance.Device})
}

// DispatchRequest sends a waiting request, given by its number, to an instance as a batch of one, and reserves KV memory for it there.
func (s *queueServer) DispatchRequest(instance *Instance, requestNumber int32, actions *policy.Actions) {
	s.requests.endTurn(requestNumber)
	s.groups.leaveGroup(requestNumber)

	// Count it with its instance.
	batchNumber, request := s.requests.takeBatch(requestNumber), &s.requests.byNumber[requestNumber]
	request.instanceIndex = s.fleet.instanceOf[instance.Device]
	instance.RunningBatches = append(instance.RunningBatches, batchNumber)
	instance.RunningByModel[request.Model]++
	request.reservedKVTokens = s.fleet.kvNeed(request)
	instance.reservedKVTokens += request.reservedKVTokens
	s.sessions.noteStart(requestNumber, request)

	// Dispatch a batch of one task with one hop.
	pipeline := s.fleet.tables.Models[request.Model].FirstPipeline
	actions.List = append(actions.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: request.Model, Batch: batchNumber, Size: 1,
		TaskFirst: int32(len(actions.Tasks)), HopFirst: int32(len(actions.Hops)), HopCount: 1})
	actions.Tasks = append(actions.Tasks, requestNumber)
	actions.Hops = append(actions.Hops, policy.Hop{Stage: s.fleet.tables.Pipelines[pipeline].FirstStage, Device: instance.Device, Uplink: -1, Downlink: -1})
}

// removeBatch removes a batch, which is one request, from its instance when it has ended or comes back, and frees its number.
// It returns the request's number and the index of the instance's queue.
func (s *queueServer) removeBatch(batchNumber int32) (requestNumber, queueIndex int32) {
	requestNumber = s.requests.requestOfBatch[batchNumber]
	request := &s.requests.byNumber[requestNumber]
	queueIndex = request.instanceIndex

	// Take it out of the counts of its instance.
	instance := &s.fleet.instances[queueIndex]
	if index := slices.Index(instance.RunningBatches, batchNumber); index >= 0 {
		instance.RunningBatches = slices.Delete(instance.RunningBatches, index, index+1)
		instance.RunningByModel[request.Model]--
		instance.reservedKVTokens -= request.reservedKVTokens
		instance.takenTokens -= request.takenTokens
		if request.isEvictionOrdered {
			request.isEvictionOrdered = false
			instance.pendingEvictions--
		}
	}
	s.requests.freeBatch(batchNumber)
	return requestNumber, queueIndex
}
