package vqueue

import (
	"slices"
	"time"
)

// groupTable has the request groups: their members, the problem that they form, and the order of the queues.
type groupTable struct {
	fleet    *instanceFleet
	requests *requestTable
	options  Options

	members         []groupMembers // by index of Problem.Groups
	freeGroups      []int32        // free groups
	openGroups      []int32        // open groups, see openGroupIndex
	problem         Problem
	assignment      *Assignment
	joinCount       int64   // number of requests that have joined groups
	memberChanges   int64   // number of requests that have joined or left groups
	instanceChanges int64   // number of changes of networks, instances and prices
	startSDScale    float64 // factor on the standard deviations of starts, see WaitQuantile
}

// groupMembers has the members of a group, beside the group's figures in Problem.Groups.
type groupMembers struct {
	inUse                     bool
	generation                int32 // counts the uses of the index
	model                     int32
	mega                      bool
	firstRequest, lastRequest int32 // requests at both ends, or -1
	size                      int32 // number of requests
	promptTokens              int64 // tokens of all prompts
	openIndex                 int32 // index in groupTable.openGroups while the group is open, else -1
}

// newGroupTable returns the table of request groups (waiting requests of one model, similar in length) with an
// empty queue for each instance, when a policy starts. Open groups still take members: each model has two, for
// regular requests and for mega prompts, which are many times longer. Each queue has its own, unless OneOpenGroup
// shares them among all queues. Costs of long queues are not kept for FCFS and EDF, because these rules do not use
// them.
func newGroupTable(f *instanceFleet, opt Options) *groupTable {
	s := &groupTable{fleet: f, requests: &requestTable{turns: newClientTurns(len(f.tables.Models))}, options: opt, startSDScale: 1, problem: Problem{Kinds: len(f.tables.Kinds), Models: len(f.tables.Networks), Objective: opt.Objective}}
	for i := range f.instances {
		in := &f.instances[i]
		s.problem.Queues = append(s.problem.Queues, Queue{Kind: f.kindOf(in), Setup: make([]float64, len(f.tables.Networks)), ClosedClasses: f.queueTables.closedModels(in.device, len(f.tables.Models))})
	}
	n := 2 * len(f.tables.Models)
	if !opt.OneOpenGroup {
		n *= len(f.instances)
	}
	s.openGroups = slices.Repeat([]int32{-1}, n)
	s.assignment = NewAssignment(&s.problem)
	s.assignment.lazyCosts = opt.Rule == FCFS || opt.Rule == EDF
	return s
}

// takeGroup returns an empty group of a served model: one that was freed, or a new one at the end of all arrays. A
// reused group gets a new generation, so that the result of a search that began earlier does not take it for the
// old one.
func (s *groupTable) takeGroup(model int32, isMega bool) int32 {
	var g int32
	if n := len(s.freeGroups); n > 0 {
		g = s.freeGroups[n-1]
		s.freeGroups = s.freeGroups[:n-1]
	} else {
		g = int32(len(s.members))
		s.members = append(s.members, groupMembers{})
		s.problem.Groups = append(s.problem.Groups, Group{})
		for range s.problem.Kinds {
			s.problem.Costs = append(s.problem.Costs, Cost{})
		}
		s.assignment.queueOf = append(s.assignment.queueOf, -1)
	}
	members := &s.members[g]
	*members = groupMembers{inUse: true, generation: members.generation + 1, model: model, mega: isMega, firstRequest: -1, lastRequest: -1, openIndex: -1}
	s.problem.Groups[g] = s.emptyGroup(model)
	return g
}

// emptyGroup returns the problem's entry for an empty group of a served model.
func (s *groupTable) emptyGroup(model int32) Group {
	return Group{Model: s.fleet.networkOf(model), Class: model, Priority: s.fleet.classes[model].priority}
}

// freeGroup makes a group that is in no queue and has no members available for reuse.
func (s *groupTable) freeGroup(g int32) {
	s.closeGroup(g)
	s.members[g].inUse = false
	s.problem.Groups[g].Size = 0
	s.freeGroups = append(s.freeGroups, g)
}

// closeGroup ends that a group takes members.
func (s *groupTable) closeGroup(g int32) {
	if index := s.members[g].openIndex; index >= 0 && s.openGroups[index] == g {
		s.openGroups[index] = -1
	}
}

// openGroup makes a group the open one at an index of openGroups.
func (s *groupTable) openGroup(g, index int32) {
	s.openGroups[index], s.members[g].openIndex = g, index
}

// openGroupIndex returns the index in openGroups of the group of a model that still takes members. There are two
// for each model (regular, then mega: requests many times longer) and, unless all queues share them, for each queue
// q.
func (s *groupTable) openGroupIndex(q, model int32, isMega bool) int32 {
	index := 2 * model
	if isMega {
		index++
	}
	if !s.options.OneOpenGroup {
		index += 2 * int32(len(s.fleet.tables.Models)) * q
	}
	return index
}

// maxMembers returns the largest number of members of a group of a model on a kind of device: some batches
// (GroupBatches, the paper's delta), or one under rules that sort single requests.
func (s *groupTable) maxMembers(model int32, isMega bool, kind int32) int32 {
	if s.options.Rule != VirtualQueues {
		return 1
	}
	batch := s.fleet.queueTables.Estimator(s.problem.Kinds, model, isMega, kind).Batch
	return max(int32(s.options.GroupBatches*batch), 1)
}

// updateGroup sets size, costs and deadlines of a group from its members. The deadlines between those of the first
// and the last member are taken as evenly spaced. It is called after each change of the members. An empty group
// gets size 0 and keeps the rest.
func (s *groupTable) updateGroup(g int32) {
	members, group := &s.members[g], &s.problem.Groups[g]
	group.Size = float64(members.size)
	if members.size == 0 {
		return
	}
	firstDeadline, lastDeadline := toSeconds(s.requests.bySlot[members.firstRequest].deadline), toSeconds(s.requests.bySlot[members.lastRequest].deadline)
	for u := range group.Deadline {
		group.Deadline[u] = firstDeadline + memberQuantiles[u]*(lastDeadline-firstDeadline)
	}
	s.setCosts(g, members.size, members.promptTokens)
}

// setCosts sets the costs of a group of `size` requests with `prompts` prompt tokens in all, on every kind of
// device: its work in seconds, and the time from a request's start to its milestone, to which the SLO applies. A
// kind that has no estimator for the model (Batch 0) gets infinite work, so that the group is never placed there.
func (s *groupTable) setCosts(g, size int32, prompts int64) {
	members := &s.members[g]
	for k := range s.problem.Kinds {
		c, r := s.problem.Cost(g, int32(k)), s.fleet.queueTables.Estimator(s.problem.Kinds, members.model, members.mega, int32(k))
		if r.Batch == 0 {
			*c = Cost{Work: infiniteCost}
			continue
		}
		n := float64(size)
		c.Work = r.Alpha*float64(prompts) + n*r.Beta*r.OutputMean
		c.Variance = r.AnswerVariance(n, c.Work) * (s.startSDScale * s.startSDScale)
		c.Residence, c.ResidenceVar = r.timeToMilestone(s.fleet.classes[members.model].milestone)
	}
}

// joinGroup adds a request to a group that is in a queue.
func (s *groupTable) joinGroup(g, req int32) {
	s.insertMember(g, req)
	s.updateGroup(g)
	s.assignment.GroupChanged(g)
}

// insertMember inserts a request into the members of a group, in their order. It also counts the request, and adds
// it to the line of its client. The caller updates the group's costs.
func (s *groupTable) insertMember(g, req int32) {
	members, r := &s.members[g], &s.requests.bySlot[req]

	// Find its place from the end.
	previous := members.lastRequest
	for previous >= 0 && s.memberBefore(r, &s.requests.bySlot[previous]) {
		previous = s.requests.bySlot[previous].prevInGroup
	}
	r.group, r.prevInGroup = g, previous
	if previous < 0 {
		r.nextInGroup, members.firstRequest = members.firstRequest, req
	} else {
		r.nextInGroup = s.requests.bySlot[previous].nextInGroup
		s.requests.bySlot[previous].nextInGroup = req
	}
	if r.nextInGroup < 0 {
		members.lastRequest = req
	} else {
		s.requests.bySlot[r.nextInGroup].prevInGroup = req
	}

	// Count it, and add it to its client's line.
	s.joinCount, s.memberChanges = s.joinCount+1, s.memberChanges+1
	members.size++
	members.promptTokens += int64(r.promptTokens)
	s.requests.joinClientLine(req)
}

// memberBefore reports whether request a is served before request b of the same group.
func (s *groupTable) memberBefore(a, b *request) bool {
	if s.options.MemberOrder == ByDeadline {
		return a.deadline < b.deadline
	}
	return a.arrivedAt < b.arrivedAt
}

// leaveGroup removes a request that starts or is dropped from its group and from its client's line. A group that
// becomes empty leaves its queue and is freed; otherwise its costs are updated.
func (s *groupTable) leaveGroup(req int32) {
	r := &s.requests.bySlot[req]
	g := r.group
	if g < 0 {
		return
	}

	// Unlink the request.
	s.requests.leaveClientLine(req)
	members := &s.members[g]
	if r.prevInGroup < 0 {
		members.firstRequest = r.nextInGroup
	} else {
		s.requests.bySlot[r.prevInGroup].nextInGroup = r.nextInGroup
	}
	if r.nextInGroup < 0 {
		members.lastRequest = r.prevInGroup
	} else {
		s.requests.bySlot[r.nextInGroup].prevInGroup = r.prevInGroup
	}
	r.group, r.nextInGroup, r.prevInGroup = -1, -1, -1

	// Update the group, or free it.
	s.memberChanges++
	members.size--
	members.promptTokens -= int64(r.promptTokens)
	if members.size == 0 {
		s.problem.Groups[g].Size = 0
		s.assignment.Remove(g)
		s.freeGroup(g)
		return
	}
	s.updateGroup(g)
	s.assignment.GroupChanged(g)
}

// canRun reports whether a group can run in a queue.
func (s *groupTable) canRun(g, q int32) bool {
	problemQueue := &s.problem.Queues[q]
	return problemQueue.accepts(&s.problem.Groups[g], s.problem.Cost(g, problemQueue.Kind))
}

// syncQueue updates an instance's queue of the problem to the current time: the network that is loaded or loading,
// when its first group may start, and how long a change to each network takes. The start is before now if the
// running batch has free places.
func (s *groupTable) syncQueue(now time.Duration, q int32) {
	in, problemQueue := &s.fleet.instances[q], &s.problem.Queues[q]
	problemQueue.Model, problemQueue.Start = in.loadedNetwork, toSeconds(now)

	// If the batch is not full, members of the first groups can start at once.
	drain := 0.0
	if in.loadedNetwork >= 0 {
		model := s.fleet.anyModelOf(in.loadedNetwork)
		drain = toSeconds(s.fleet.residence(in, model))
		if est := s.fleet.estimatorOn(in, model, false); est.Batch > 0 && len(in.runningBatches) < int(est.Batch) {
			// Requests that fit into the batch start at once.
			workEach, _ := est.Work(1)
			// Each free place is worth one request's work that need not be waited for.
			problemQueue.Start -= (est.Batch - float64(len(in.runningBatches))) * workEach
		}
	}

	// While a network is loading, the queue starts when it is loaded.
	if in.loadingNetwork >= 0 {
		problemQueue.Model = in.loadingNetwork
		problemQueue.Start = max(problemQueue.Start, toSeconds(in.loadStart+s.fleet.changeTime(in, in.loadingNetwork)))
	}

	// Changes of network wait for the batch to drain.
	for n := range problemQueue.Setup {
		problemQueue.Setup[n] = drain + toSeconds(s.fleet.changeTime(in, int32(n)))
		if !in.isUp() || !s.fleet.isAllowed(in, int32(n)) {
			problemQueue.Setup[n] = infiniteCost
		}
	}
}
