package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// queueServer carries out the order of the queues: it pulls requests and changes networks.
type queueServer struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
	evictor  evictor
	pauses   pausePricer
}

// newQueueServer returns a server of the queues of a group table.
func newQueueServer(s *groupTable) *queueServer {
	return &queueServer{fleet: s.fleet, requests: s.requests, groups: s, evictor: evictor{fleet: s.fleet, requests: s.requests, groups: s}, pauses: pausePricer{fleet: s.fleet, requests: s.requests, groups: s}}
}

// serveQueue pulls requests of the head group of a queue into the running batch, changes the network, or evicts
// requests. It ends when the instance can do no more at this time. It is called whenever an instance may have
// become free or its queue has changed.
func (s *queueServer) serveQueue(now time.Duration, q int32, out *policy.Actions) {
	in := &s.fleet.instances[q]
	mayPull := s.fleet.operations.pull.takesNow(in)
	for in.isUp() && in.loadingNetwork < 0 && in.pendingEvictions == 0 {
		// Choose the group: the head, or a more urgent one of another queue.
		group := s.headGroup(in, q)
		if group < 0 {
			if group = s.borrowedGroup(in); group < 0 {
				return
			}
		} else if in.loadedNetwork == s.groups.problem.Groups[group].Model {
			group = s.moreUrgentHead(now, in, q, group)
		}

		// Choose its request. Then change the network, evict requests, or dispatch it.
		req := s.nextByTurn(q, group)
		r := &s.requests.bySlot[req]
		switch network := s.groups.problem.Groups[group].Model; {
		case in.loadedNetwork != network && len(in.runningBatches) > 0:
			s.evictor.evictAllForHead(now, q, group, out)
			return
		case in.loadedNetwork != network:
			s.changeNetwork(now, in, network, out)
			s.groups.syncQueue(now, q) // requests that arrive meanwhile join the queue of the network that is being loaded
			s.groups.assignment.QueueChanged(q)
			return
		case !mayPull:
			return
		case !s.fleet.canTakeRequest(in, r):
			s.evictor.evictForHead(now, in, r, out)
			return
		case s.pauses.shouldPause(now, q):
			return
		}
		s.dispatchRequest(in, req, out)
	}
}

// headGroup returns the group that a queue serves next: the first one or, if its class is at its cap (the most of a
// class that run at once), the next of the loaded network that is not. If the queue is empty, it returns -1.
func (s *queueServer) headGroup(in *instance, q int32) int32 {
	firstGroup := s.groups.assignment.Head(q)
	if s.fleet.queueTables.Caps == nil || firstGroup < 0 {
		return firstGroup
	}
	for _, slot := range s.groups.assignment.queues[q].slots {
		if slot.model != in.loadedNetwork {
			break
		}
		if !s.fleet.atCap(in, s.groups.members[slot.group].model) {
			return slot.group
		}
	}
	return firstGroup
}

// borrowedGroup returns the group that an instance with an empty queue serves from other queues without a change
// of network: the one with the highest priority, then the earliest deadline. If there is none, it returns -1.
// Groups whose first member has started before stay in their queue.
func (s *queueServer) borrowedGroup(in *instance) int32 {
	bestGroup, earliestDeadline, bestPriority := int32(-1), time.Duration(0), int32(0)
	if s.groups.options.Rule != VirtualQueues || !s.fleet.operations.balance.enabled || in.loadedNetwork < 0 || s.requests.waitingRequests() == 0 || s.fleet.isFull(in) {
		return bestGroup
	}
	for q := s.groups.assignment.nonEmpty.next(0); q >= 0; q = s.groups.assignment.nonEmpty.next(q + 1) {
		for _, slot := range s.groups.assignment.queues[q].slots {
			if s.groups.problem.Groups[slot.group].Model != in.loadedNetwork || !s.groups.canRun(slot.group, s.fleet.instanceOf[in.device]) {
				continue
			}
			r := &s.requests.bySlot[s.groups.members[slot.group].firstRequest]
			isBetter := bestGroup < 0 || slot.priority < bestPriority || slot.priority == bestPriority && r.deadline < earliestDeadline
			if r.producedTokens == 0 && r.evictionCount == 0 && s.fleet.canTakeRequest(in, r) && isBetter {
				bestGroup, earliestDeadline, bestPriority = slot.group, r.deadline, slot.priority
			}
		}
	}
	return bestGroup
}

// moreUrgentHead returns the head of another queue that an instance serves before its own head: one with an
// earlier deadline that it can still meet here. If there is none, it returns ownHead. Without this rule a request
// would wait for its own instance while others of its network serve less urgent requests. Requests that have
// started before stay, as do those of other kinds of devices.
func (s *queueServer) moreUrgentHead(now time.Duration, in *instance, q, ownHead int32) int32 {
	if s.groups.options.Rule != VirtualQueues || !s.fleet.operations.balance.enabled || len(s.fleet.instances) == 1 {
		return ownHead
	}
	ownRequest := &s.requests.bySlot[s.groups.members[ownHead].firstRequest]
	bestGroup, earliestDeadline := ownHead, ownRequest.deadline
	for x := s.groups.assignment.nonEmpty.next(0); x >= 0; x = s.groups.assignment.nonEmpty.next(x + 1) {
		g := s.groups.assignment.Head(x)
		if g == ownHead || s.groups.problem.Groups[g].Model != in.loadedNetwork || s.groups.problem.Groups[g].Priority > s.groups.problem.Groups[ownHead].Priority ||
			s.groups.problem.Queues[x].Kind != s.groups.problem.Queues[q].Kind {
			continue
		}
		r := &s.requests.bySlot[s.groups.members[g].firstRequest]
		if r.deadline < earliestDeadline && r.producedTokens == 0 && r.evictionCount == 0 && r.deadline >= now+s.fleet.leadTime(in, r.model) && s.groups.canRun(g, q) && s.fleet.canTakeRequest(in, r) {
			bestGroup, earliestDeadline = g, r.deadline
		}
	}
	return bestGroup
}

// changeNetwork orders an instance on which nothing runs to unload its network and load another. After a failed
// load it does nothing until the next tick, which tries again.
func (s *queueServer) changeNetwork(now time.Duration, in *instance, network int32, out *policy.Actions) {
	if in.loadFailed {
		return
	}
	if in.loadedNetwork >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: in.loadedNetwork, Device: in.device})
	}
	in.loadedNetwork, in.loadingNetwork, in.loadStart = -1, network, now
	s.groups.instanceChanges++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: in.device})
}

// dispatchRequest sends a waiting request to an instance as a batch of one, and counts its place and its KV memory
// there.
func (s *queueServer) dispatchRequest(in *instance, req int32, out *policy.Actions) {
	s.requests.endTurn(req)
	s.groups.leaveGroup(req)

	// Count it with its instance.
	slot, r := s.requests.takeBatch(req), &s.requests.bySlot[req]
	r.instance = s.fleet.instanceOf[in.device]
	in.runningBatches = append(in.runningBatches, slot)
	in.runningByModel[r.model]++
	r.countedKV = s.fleet.kvNeed(r)
	in.countedKV += r.countedKV

	// Dispatch a batch of one task with one hop.
	pipeline := s.fleet.tables.Models[r.model].FirstPipeline
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: r.model, Batch: slot, Size: 1,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, req)
	out.Hops = append(out.Hops, policy.Hop{Stage: s.fleet.tables.Pipelines[pipeline].FirstStage, Device: in.device, Uplink: -1, Downlink: -1})
}

// removeBatch removes a batch, which is one request, from its instance when it has ended or comes back, and frees
// its slot. It returns the request and the instance's queue.
func (s *queueServer) removeBatch(slot int32) (req, q int32) {
	req = s.requests.batchRequests[slot]
	r := &s.requests.bySlot[req]
	q = r.instance
	in := &s.fleet.instances[q]
	if index := slices.Index(in.runningBatches, slot); index >= 0 {
		in.runningBatches = slices.Delete(in.runningBatches, index, index+1)
		in.runningByModel[r.model]--
		in.countedKV -= r.countedKV
		if r.evictionOrdered {
			r.evictionOrdered = false
			in.pendingEvictions--
		}
	}
	s.requests.freeBatch(slot)
	return req, q
}
