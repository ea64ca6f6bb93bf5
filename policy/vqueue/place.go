package vqueue

import (
	"math"
	"sort"
)

// placer finds queues for waiting requests.
type placer struct {
	fleet      *instanceFleet
	requests   *requestTable
	groups     *groupTable
	probeGroup int32                   // group that stands for a request while its place is sought
	nextQueue  int                     // queue that is dealt next if Balancing is disabled
	dealQueue  func(instances int) int // see Options.NewDealer
}

// newPlacer returns a placer, which finds the queue of each request. It takes a group to probe with: one that is in
// no queue, to ask where a request would stand.
func newPlacer(s *groupTable) placer {
	p := placer{fleet: s.fleet, requests: s.requests, groups: s, probeGroup: s.takeGroup(0, false)}
	if s.options.NewDealer != nil {
		p.dealQueue = s.options.NewDealer(s.options.Seed)
	}
	return p
}

// placeRequest finds a queue and a group for a waiting request, adds it there, and returns the queue. stateQueue is
// the queue of the instance that has its state, or -1. If no instance that is up can serve the request, it becomes
// unplaced and placeRequest returns -1. It is called for a new request, and for one that comes back. A group is
// open while it takes members.
func (p *placer) placeRequest(req, stateQueue int32) int32 {
	r := &p.requests.bySlot[req]
	isMega := p.fleet.isMega(r)

	// With one open group per model, join that.
	if openGroup := p.groups.openGroups[p.groups.openGroupIndex(0, r.model, isMega)]; p.groups.options.OneOpenGroup && openGroup >= 0 && stateQueue < 0 {
		if q := p.groups.assignment.QueueOf(openGroup); q >= 0 && p.groups.canRun(openGroup, q) && p.groupHasSpace(openGroup, q) {
			p.groups.joinGroup(openGroup, req)
			return q
		}
	}

	// Otherwise find the queue and place, and join the open group there.
	q, place := p.placeFor(req, isMega, stateQueue)
	if q < 0 {
		p.requests.markUnplaced(req)
		return -1
	}
	openIndex := p.groups.openGroupIndex(q, r.model, isMega)
	if g := p.groups.openGroups[openIndex]; g >= 0 && p.groups.assignment.QueueOf(g) == q && p.groupHasSpace(g, q) {
		p.groups.joinGroup(g, req)
		return q
	}

	// If there is none with space, insert a new group.
	g := p.groups.takeGroup(r.model, isMega)
	if p.groups.options.Rule == VirtualQueues {
		p.groups.openGroup(g, openIndex)
	}
	p.groups.insertMember(g, req)
	p.groups.updateGroup(g)
	p.groups.assignment.Insert(g, q, place)
	return q
}

// groupHasSpace reports whether a group in a queue takes one more member.
func (p *placer) groupHasSpace(g, q int32) bool {
	members := &p.groups.members[g]
	return members.size < p.groups.maxMembers(members.model, members.mega, p.groups.problem.Queues[q].Kind)
}

// placeFor returns the queue and place for a request. It tries the request as the probe group, which is in no queue
// and serves for such questions only. If no queue can serve the request, the queue is -1. stateQueue is the queue
// of the instance that has state of the request, -1 without one.
func (p *placer) placeFor(req int32, isMega bool, stateQueue int32) (q int32, place int) {
	r := &p.requests.bySlot[req]
	probe := p.setProbe(r, isMega)
	defer func() { probe.Size = 0 }()

	// Return to the instance that has the request's state.
	if stateQueue >= 0 && p.fleet.instances[stateQueue].isUp() {
		if place := p.probePlace(stateQueue); place >= 0 {
			return stateQueue, p.rulePlace(stateQueue, r, place)
		}
	}

	// Otherwise by the options: dealt in turn, where the objective grows least, or where the least work waits.
	if !p.fleet.operations.balance.enabled {
		return p.dealtPlace(r)
	}
	if p.groups.options.Rule == VirtualQueues && !p.groups.options.AppendGroups {
		return p.cheapestProbePlace()
	}
	q, earliestEnd := int32(-1), math.Inf(1)
	for i := range p.fleet.instances {
		if p.probePlace(int32(i)) < 0 {
			continue
		}
		if end := p.groups.assignment.queues[i].emptyAt(p.groups.problem.Queues[i].Start); end < earliestEnd {
			q, earliestEnd = int32(i), end
		}
	}
	if q < 0 {
		return -1, 0
	}
	return q, p.rulePlace(q, r, p.groups.assignment.Len(q))
}

// cheapestProbePlace returns the queue and place at which the probe group adds least to the objective.
func (p *placer) cheapestProbePlace() (q int32, place int) {
	q, place, _ = bestPlaceUntil(p.groups.assignment, p.probeGroup, p.groups.problem.minIncrease(p.probeGroup))
	return q, place
}

// setProbe makes the probe group a group of this request alone, with its deadline and costs. The probe group is in
// no queue: it is used to ask where a request would stand. The caller sets its size back to 0, so that the search
// ignores it.
func (p *placer) setProbe(r *request, isMega bool) *Group {
	p.groups.members[p.probeGroup].model, p.groups.members[p.probeGroup].mega = r.model, isMega
	probe := &p.groups.problem.Groups[p.probeGroup]
	*probe = p.groups.emptyGroup(r.model)
	for u := range probe.Deadline {
		probe.Deadline[u] = toSeconds(r.deadline)
	}
	p.groups.setCosts(p.probeGroup, 1, int64(r.promptTokens))
	probe.Size = 1
	return probe
}

// dealtPlace returns the next queue, in turn or by Options.NewDealer, that can serve the probe group, and the
// request's place there. It is used if balancing is switched off. If no queue can, it returns -1.
func (p *placer) dealtPlace(r *request) (q int32, place int) {
	if p.dealQueue != nil {
		p.nextQueue = p.dealQueue(len(p.fleet.instances))
	}
	for range p.fleet.instances {
		q := int32(p.nextQueue % len(p.fleet.instances))
		p.nextQueue++
		if place := p.probePlace(q); place >= 0 {
			return q, p.rulePlace(q, r, place)
		}
	}
	return -1, 0
}

// probePlace returns the cheapest place for the probe group in a queue. For rules without costs it returns 0. If
// the group cannot run there, it returns -1.
func (p *placer) probePlace(q int32) int {
	if p.groups.options.Rule == VirtualQueues {
		place, _ := p.groups.assignment.cheapestInsertion(p.probeGroup, q, infiniteCost)
		return place
	}
	if p.groups.canRun(p.probeGroup, q) {
		return 0
	}
	return -1
}

// rulePlace returns the place of a request in a queue by the policy's rule. Under the rules with sorted queues it
// is the place behind all groups that precede the request. With virtual queues it is searchPlace, moved to the
// front past all groups of a lower priority (a larger number).
func (p *placer) rulePlace(q int32, r *request, searchPlace int) int {
	slots, priority := p.groups.assignment.queues[q].slots, p.fleet.classes[r.model].priority
	if p.groups.options.Rule != VirtualQueues { // the queue is sorted by the rule
		return sort.Search(len(slots), func(i int) bool { return !p.slotPrecedes(&slots[i], r) })
	}
	place := searchPlace
	for place > 0 && slots[place-1].priority > priority {
		place--
	}
	return place
}

// slotPrecedes reports whether the request in a slot precedes another by the rule, or is equal to it. Smaller
// priorities precede, then earlier deadlines under EDF or else earlier arrivals. Each group holds one request under
// these rules.
func (p *placer) slotPrecedes(slot *queueSlot, r *request) bool {
	firstRequest, priority := &p.requests.bySlot[p.groups.members[slot.group].firstRequest], p.fleet.classes[r.model].priority
	switch {
	case slot.priority != priority:
		return slot.priority < priority
	case p.groups.options.Rule == EDF:
		return firstRequest.deadline <= r.deadline
	}
	return firstRequest.arrivedAt <= r.arrivedAt
}
