package vqueue

import (
	"math"
	"slices"
	"sort"
)

// placer finds the queue and position of waiting requests.
type placer struct {
	fleet      *instanceFleet
	requests   *requestTable
	groups     *groupTable
	probeGroup int32                   // group that is in no queue; it stands for a request while the search is asked where that would be best
	nextQueue  int                     // queue that gets the next request if Balancing is disabled
	dealQueue  func(instances int) int // see Options.NewDealer
}

// newPlacer returns a placer, which finds the queue of each waiting request. It takes a group to probe with, which stays in no queue.
func newPlacer(groups *groupTable) placer {
	placer := placer{fleet: groups.fleet, requests: groups.requests, groups: groups, probeGroup: groups.takeGroup(0, false)}
	if groups.options.NewDealer != nil {
		placer.dealQueue = groups.options.NewDealer(groups.options.Seed)
	}
	return placer
}

// placeRequest adds a waiting request, given by its number, to a group in a queue, and returns the index of the queue.
// It joins the open group (one that takes members) of its model there, or a new group. stateQueue is the queue of the instance that has
// the KV state of a request that has run there before, to which it returns if possible, or -1.
// If no instance that is up can serve it, it becomes unplaced, and placeRequest returns -1.
// It is called for a new request, and for one that comes back from its instance.
func (p *placer) placeRequest(requestNumber, stateQueue int32) int32 {
	request := &p.requests.byNumber[requestNumber]
	isMegaPrompt := p.fleet.isMegaPrompt(request) // it is many times longer than others, which then form groups of their own

	// A request whose prefix an instance has stays there if that costs nothing.
	if queueIndex, position := p.prefixPosition(request, isMegaPrompt, stateQueue); queueIndex >= 0 {
		p.joinPrefixGroup(requestNumber, queueIndex, position)
		return queueIndex
	}

	// With one open group per model for all queues (queue 0 stands for all), join that. A request whose state is on an instance goes there.
	if openGroup := p.groups.openGroups[p.groups.openGroupSlot(0, request.Model, isMegaPrompt)]; p.groups.options.OneOpenGroup && openGroup >= 0 && stateQueue < 0 {
		if queueIndex := p.groups.assignment.QueueOf(openGroup); queueIndex >= 0 && p.groups.canRun(openGroup, queueIndex) && p.groupHasSpace(openGroup, queueIndex) {
			p.groups.joinGroup(openGroup, requestNumber)
			return queueIndex
		}
	}

	// Otherwise find the queue and position, and join the open group there.
	queueIndex, position := p.choosePosition(requestNumber, isMegaPrompt, stateQueue)
	if queueIndex < 0 {
		p.requests.markUnplaced(requestNumber)
		return -1
	}
	openSlot := p.groups.openGroupSlot(queueIndex, request.Model, isMegaPrompt)
	if p.joinOpenGroup(p.groups.openGroups[openSlot], requestNumber, queueIndex) {
		return queueIndex
	}

	// If there is none with space, insert a new group. It is open for later requests, except under rules that sort single requests.
	groupIndex := p.insertGroup(requestNumber, queueIndex, position)
	if p.groups.options.Rule == VirtualQueues {
		p.groups.openGroup(groupIndex, openSlot)
	}
	return queueIndex
}

// joinOpenGroup adds a waiting request, given by its number, to a group that is open for requests in a queue. It returns false if there is
// no such group (-1), or if the group is in another queue or full.
func (p *placer) joinOpenGroup(groupIndex, requestNumber, queueIndex int32) bool {
	if groupIndex < 0 || p.groups.assignment.QueueOf(groupIndex) != queueIndex || !p.groupHasSpace(groupIndex, queueIndex) {
		return false
	}
	p.groups.joinGroup(groupIndex, requestNumber)
	return true
}

// insertGroup inserts a new group, with a waiting request as its only member, at a position of a queue, and returns its index.
func (p *placer) insertGroup(requestNumber, queueIndex int32, position int) int32 {
	request := &p.requests.byNumber[requestNumber]
	groupIndex := p.groups.takeGroup(request.Model, p.fleet.isMegaPrompt(request))
	p.groups.insertMember(groupIndex, requestNumber)
	p.groups.updateGroup(groupIndex)
	p.groups.assignment.Insert(groupIndex, queueIndex, position)
	return groupIndex
}

// regardsSession reports whether a request is placed with regard to its session.
func (p *placer) regardsSession(request *Request) bool {
	options := &p.groups.options
	return request.Session != 0 && !options.IgnoreSessions && options.Rule == VirtualQueues && !options.AppendGroups && p.fleet.operations[Balancing]
}

// prefixPosition returns the queue of the instance whose memory holds the context of a waiting request's session, and the position there
// that costs least, if the objective grows there no more than in any other queue. The request saves the work of the tokens that the memory
// holds, and late requests count with their own weight: so the session stays where that makes nobody late. If the instance has no prefix,
// another queue costs less, or the options or the request's state (stateQueue) decide otherwise, it returns noQueue.
func (p *placer) prefixPosition(request *Request, isMegaPrompt bool, stateQueue int32) (queueIndex int32, position int) {
	if stateQueue >= 0 || !p.regardsSession(request) {
		return noQueue, 0
	}
	queueIndex, savedTokens := p.groups.sessions.prefixOf(request)
	if queueIndex < 0 {
		return noQueue, 0
	}
	probe := p.setProbe(request, isMegaPrompt)
	defer func() { probe.Size = 0 }() // so that searches skip it

	// Compare the least increases there, with less work and a shorter time to the first token, and anywhere.
	kind := p.groups.problem.Queues[queueIndex].Kind
	cost := p.groups.problem.Cost(p.probeGroup, kind)
	wholeCost, estimator := *cost, p.fleet.queueTables.Estimator(p.groups.problem.Kinds, request.Model, isMegaPrompt, kind)
	savedTime := estimator.Alpha * float64(savedTokens)
	cost.Work -= min(cost.Work, savedTime)
	cost.Residence -= min(cost.Residence, estimator.Prefill, savedTime)
	position, increase := p.groups.assignment.cheapestInsertion(p.probeGroup, queueIndex, infiniteCost)
	*cost = wholeCost
	if position < 0 {
		return noQueue, 0
	}
	for otherQueue := range p.fleet.instances {
		if otherPosition, _ := p.groups.assignment.cheapestInsertion(p.probeGroup, int32(otherQueue), increase); otherPosition >= 0 {
			return noQueue, 0 // it costs less there
		}
	}
	return queueIndex, position
}

// joinPrefixGroup adds a waiting request, given by its number, to the open group of requests that stay with their prefixes in a queue, or
// inserts a new one at a position.
func (p *placer) joinPrefixGroup(requestNumber, queueIndex int32, position int) {
	model := p.requests.byNumber[requestNumber].Model
	isMegaPrompt := p.fleet.isMegaPrompt(&p.requests.byNumber[requestNumber])
	if p.groups.prefixGroups == nil {
		p.groups.prefixGroups = slices.Repeat([]int32{-1}, len(p.fleet.instances)*len(p.fleet.tables.Models))
	}
	openGroup := &p.groups.prefixGroups[int(queueIndex)*len(p.fleet.tables.Models)+int(model)]

	// The group may be gone, used for others, in another queue, or of another kind of prompts.
	if *openGroup >= 0 {
		members := &p.groups.members[*openGroup]
		isSame := members.inUse && members.prefixQueue == queueIndex && members.model == model && members.isMegaPrompt == isMegaPrompt
		if isSame && p.joinOpenGroup(*openGroup, requestNumber, queueIndex) {
			return
		}
	}
	*openGroup = p.insertGroup(requestNumber, queueIndex, position)
	p.groups.members[*openGroup].prefixQueue = queueIndex
}

// groupHasSpace reports whether a group that is in a queue takes one more member.
func (p *placer) groupHasSpace(groupIndex, queueIndex int32) bool {
	members := &p.groups.members[groupIndex]
	return members.requests.Len < p.groups.maxMembers(members.model, members.isMegaPrompt, p.groups.problem.Queues[queueIndex].Kind)
}

// choosePosition returns the queue for a waiting request, given by its number, and the position in it.
// It asks with the probe group, which stands for the request. If no queue can serve the request, queueIndex is -1. stateQueue is the queue
// of the instance that has state of the request, or -1; the request returns to it if possible.
func (p *placer) choosePosition(requestNumber int32, isMegaPrompt bool, stateQueue int32) (queueIndex int32, position int) {
	request := &p.requests.byNumber[requestNumber]
	probe := p.setProbe(request, isMegaPrompt)
	defer func() { probe.Size = 0 }() // so that searches skip it

	// Return to the instance that has the request's state.
	if stateQueue >= 0 && p.fleet.instances[stateQueue].IsUp() {
		if position := p.probePosition(stateQueue); position >= 0 {
			return stateQueue, p.positionByRule(stateQueue, request, position)
		}
	}

	// Otherwise by the options: dealt in turn, where the objective grows least, or where the least work waits.
	if !p.fleet.operations[Balancing] {
		return p.nextDealtPosition(request)
	}
	if p.groups.options.Rule == VirtualQueues && !p.groups.options.AppendGroups {
		return p.cheapestProbePosition()
	}

	// Find the queue that ends first, among those that can serve it. The request goes to its end, or to its place by the rule.
	queueIndex, earliestEnd := int32(-1), math.Inf(1)
	for i := range p.fleet.instances {
		if p.probePosition(int32(i)) < 0 {
			continue
		}
		if end := p.groups.assignment.queues[i].endTime(p.groups.problem.Queues[i].Start); end < earliestEnd {
			queueIndex, earliestEnd = int32(i), end
		}
	}
	if queueIndex < 0 {
		return -1, 0
	}
	return queueIndex, p.positionByRule(queueIndex, request, p.groups.assignment.Len(queueIndex))
}

// cheapestProbePosition returns the queue and the position in it at which the probe group, which stands for a request, adds least to the
// objective. If it can run nowhere, queueIndex is -1.
func (p *placer) cheapestProbePosition() (queueIndex int32, position int) {
	queueIndex, position, _ = bestPositionUntil(p.groups.assignment, p.probeGroup, p.groups.problem.minIncrease(p.probeGroup))
	return queueIndex, position
}

// setProbe makes the probe group a group of this request alone, with its deadline and costs, and returns it.
// The probe group is in no queue: the search is asked where it would be best. The caller sets its size back to 0, so that searches skip it.
func (p *placer) setProbe(request *Request, isMegaPrompt bool) *Group {
	p.groups.members[p.probeGroup].model, p.groups.members[p.probeGroup].isMegaPrompt = request.Model, isMegaPrompt
	probe := &p.groups.problem.Groups[p.probeGroup]
	*probe = p.groups.emptyGroup(request.Model)
	for quantile := range probe.Deadline {
		probe.Deadline[quantile] = toSeconds(request.Deadline)
	}
	p.groups.setCosts(p.probeGroup, 1, int64(request.promptTokens))
	probe.Size = 1
	return probe
}

// nextDealtPosition returns the next queue, in turn or by Options.NewDealer, that can serve the probe group, which stands for a request,
// and the request's position there. It is used if balancing is switched off. If no queue can, it returns -1.
func (p *placer) nextDealtPosition(request *Request) (queueIndex int32, position int) {
	if p.dealQueue != nil {
		p.nextQueue = p.dealQueue(len(p.fleet.instances))
	}

	// Ask each queue once, from that one on.
	for range p.fleet.instances {
		queueIndex := int32(p.nextQueue % len(p.fleet.instances))
		p.nextQueue++
		if position := p.probePosition(queueIndex); position >= 0 {
			return queueIndex, p.positionByRule(queueIndex, request, position)
		}
	}
	return -1, 0
}

// probePosition returns the cheapest position in a queue for the probe group, which stands for a request.
// Under rules that sort single requests it returns 0. If the group cannot run there, it returns -1.
func (p *placer) probePosition(queueIndex int32) int {
	if p.groups.options.Rule == VirtualQueues {
		position, _ := p.groups.assignment.cheapestInsertion(p.probeGroup, queueIndex, infiniteCost)
		return position
	}
	if p.groups.canRun(p.probeGroup, queueIndex) {
		return 0
	}
	return -1
}

// positionByRule returns the position of a request in a queue by the policy's rule.
// Under rules that sort queues it is the position behind all requests that precede it.
// With virtual queues it is searchPosition, moved to the front past all groups of a lower priority (a larger number).
func (p *placer) positionByRule(queueIndex int32, request *Request, searchPosition int) int {
	entries, priority := p.groups.assignment.queues[queueIndex].entries, p.fleet.classes[request.Model].priority
	if p.groups.options.Rule != VirtualQueues { // the queue is sorted by the rule
		return sort.Search(len(entries), func(i int) bool { return !p.entryPrecedes(&entries[i], request) })
	}

	// A position that the search has found keeps the order of priorities. With AppendGroups it is the end of the queue instead, and groups of a
	// lower priority may stand before that.
	position := searchPosition
	for position > 0 && entries[position-1].priority > priority {
		position--
	}
	return position
}

// entryPrecedes reports whether the request of a queue's entry precedes another request by the rule, or is equal to it: smaller priorities
// precede, then earlier deadlines under EDF or else earlier arrivals. Each group holds one request under these rules.
func (p *placer) entryPrecedes(entry *queueEntry, request *Request) bool {
	// An entry is a group, and its first request the only one.
	firstRequest, priority := &p.requests.byNumber[p.groups.members[entry.group].requests.First], p.fleet.classes[request.Model].priority
	switch {
	case entry.priority != priority:
		return entry.priority < priority
	case p.groups.options.Rule == EDF:
		return firstRequest.Deadline <= request.Deadline
	}
	return firstRequest.ArrivedAt <= request.ArrivedAt
}
