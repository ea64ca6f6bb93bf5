package vqueue

import (
	"slices"
	"time"

	"inferplan/policy/slots"
)

// groupTable holds the request groups: their members, which are requests, the problem that they form for the search, and the order of the queues.
// A group's index is that in members and in Problem.Groups. Queues have the indexes of their instances.
type groupTable struct {
	fleet    *instanceFleet
	requests *requestTable
	sessions *sessionTable
	options  Options

	members         []groupMembers // by group
	freeGroups      []int32        // indexes of unused groups
	openGroups      []int32        // groups that still take members; -1 where there is none; see openGroupSlot
	prefixGroups    []int32        // the same for groups of requests that stay with their prefixes, by queue and served model; nil before the first one
	problem         Problem
	assignment      *Assignment // order of the groups in the queues
	joinCount       int64       // number of requests that have joined groups
	memberChanges   int64       // number of requests that have joined or left groups
	instanceChanges int64       // number of changes of networks, instances and estimators
	startSDScale    float64     // factor on the standard deviations of starts, see WaitQuantile
}

// groupMembers describes the members of a group, which are waiting requests of one served model, beside the group's figures in Problem.Groups.
type groupMembers struct {
	inUse        bool       // the entry is a group, not a free one
	generation   int32      // counts the uses of the entry, so that an old result is not taken for the present group
	model        int32      // served model
	isMegaPrompt bool       // its requests are mega prompts, many times longer than others
	requests     slots.List // request numbers
	promptTokens int64      // tokens of all prompts
	openSlot     int32      // index in groupTable.openGroups while the group takes members, else -1
	prefixQueue  int32      // queue of the instance that has the prefixes of all members, or noQueue
}

// newGroupTable returns a table without groups, with an empty queue for each instance, when a policy starts.
// It keeps a list of open groups, which still take members: one for regular requests and one for mega prompts (many times longer) of each
// served model, in each queue or with OneOpenGroup in all queues together. A served model is one SLO class of a model; the classes share its
// network (weights).
// FCFS and EDF place requests by arrival or deadline, and do not use the costs of groups. So in long queues costs are computed only when
// something reads them (lazyCosts). Standard deviations of starts count as estimated at first (startSDScale 1).
func newGroupTable(fleet *instanceFleet, opt Options) *groupTable {
	models, networks := len(fleet.tables.Models), len(fleet.tables.Networks)
	groups := &groupTable{
		fleet: fleet, sessions: &sessionTable{fleet: fleet}, requests: &requestTable{turns: newClientTurns(models)}, options: opt, startSDScale: 1,
		problem: Problem{Kinds: len(fleet.tables.Kinds), Models: networks, Objective: opt.Objective},
	}

	// Make an empty queue for each instance. Changes of network (Setup) are by network.
	for i := range fleet.instances {
		instance := &fleet.instances[i]
		groups.problem.Queues = append(groups.problem.Queues, Queue{Kind: fleet.kindOf(instance), Setup: make([]float64, networks), ClosedClasses: fleet.queueTables.closedModels(instance.Device, models)})
	}

	// Make the slots of open groups: for regular requests and for mega prompts of each model, in all queues together or in each.
	openSlots := 2 * models
	if !opt.OneOpenGroup {
		openSlots *= len(fleet.instances)
	}
	groups.openGroups = slices.Repeat([]int32{-1}, openSlots)
	groups.assignment = NewAssignment(&groups.problem)
	groups.assignment.lazyCosts = opt.Rule == FCFS || opt.Rule == EDF
	return groups
}

// takeGroup returns the index of an empty group of a served model, for regular requests or mega prompts: an entry that was freed, or a new
// one at the end of all arrays. A reused entry gets a new generation, so that the result of a search that began earlier does not take it
// for the old group.
func (t *groupTable) takeGroup(model int32, isMegaPrompt bool) int32 {
	// Take a free entry, or add one to every list by group.
	groupIndex := slots.Take(&t.members, &t.freeGroups)
	if int(groupIndex) == len(t.problem.Groups) {
		t.problem.Groups = append(t.problem.Groups, Group{})
		for range t.problem.Kinds {
			t.problem.Costs = append(t.problem.Costs, Cost{})
		}
		t.assignment.queueOf = append(t.assignment.queueOf, -1)
	}
	members := &t.members[groupIndex]
	*members = groupMembers{inUse: true, generation: members.generation + 1, model: model, isMegaPrompt: isMegaPrompt, requests: slots.EmptyList, openSlot: -1, prefixQueue: noQueue}
	t.problem.Groups[groupIndex] = t.emptyGroup(model)
	return groupIndex
}

// emptyGroup returns the search's description of a group of a served model without members.
func (t *groupTable) emptyGroup(model int32) Group {
	return Group{Model: t.fleet.networkOf(model), Class: model, Priority: t.fleet.classes[model].priority}
}

// freeGroup makes the entry of a group that is in no queue and has no members available for another group.
func (t *groupTable) freeGroup(groupIndex int32) {
	t.closeGroup(groupIndex)
	t.members[groupIndex].inUse = false
	t.problem.Groups[groupIndex].Size = 0
	t.freeGroups = append(t.freeGroups, groupIndex)
}

// closeGroup ends that a group is open: no further request joins it.
func (t *groupTable) closeGroup(groupIndex int32) {
	// Another group may have taken its slot meanwhile.
	if slot := t.members[groupIndex].openSlot; slot >= 0 && t.openGroups[slot] == groupIndex {
		t.openGroups[slot] = -1
	}
}

// openGroup makes a group the open one, which requests join, in a slot of openGroups (openGroupSlot). Another group there is no longer open.
func (t *groupTable) openGroup(groupIndex, slot int32) {
	t.openGroups[slot], t.members[groupIndex].openSlot = groupIndex, slot
}

// openGroupSlot returns the index in openGroups at which the group of a model in a queue stands that still takes members. There are two
// slots for each model, for regular requests and for mega prompts (many times longer), and unless OneOpenGroup makes all queues share them,
// for each queue. With OneOpenGroup queueIndex does not matter.
func (t *groupTable) openGroupSlot(queueIndex, model int32, isMegaPrompt bool) int32 {
	slot := requestKind(model, isMegaPrompt)
	if !t.options.OneOpenGroup {
		slot += 2 * len(t.fleet.tables.Models) * int(queueIndex)
	}
	return int32(slot)
}

// maxMembers returns the largest number of requests in a group of a model on a kind of device: some batches (GroupBatches, the paper's
// delta), or one request under rules that sort single requests.
func (t *groupTable) maxMembers(model int32, isMegaPrompt bool, kind int32) int32 {
	if t.options.Rule != VirtualQueues {
		return 1
	}
	batch := t.fleet.queueTables.Estimator(t.problem.Kinds, model, isMegaPrompt, kind).Batch
	return max(int32(t.options.GroupBatches*batch), 1)
}

// updateGroup sets size, costs and deadlines of a group for the search, from its members.
// The deadlines between those of the first and the last member are taken as evenly spaced. It is called after each change of the members.
// An empty group gets size 0 and keeps the rest.
func (t *groupTable) updateGroup(groupIndex int32) {
	members, group := &t.members[groupIndex], &t.problem.Groups[groupIndex]
	group.Size = float64(members.requests.Len)
	if members.requests.Len == 0 {
		return
	}

	// The objective judges the group by members at some quantiles of its order of service, at which it needs their deadlines.
	firstDeadline, lastDeadline := toSeconds(t.requests.byNumber[members.requests.First].Deadline), toSeconds(t.requests.byNumber[members.requests.Last].Deadline)
	for quantile := range group.Deadline {
		group.Deadline[quantile] = firstDeadline + memberQuantiles[quantile]*(lastDeadline-firstDeadline)
	}
	t.setCosts(groupIndex, members.requests.Len, members.promptTokens)
}

// setCosts sets the costs of a group of `size` requests with promptTokens tokens of prompts in all, on every kind of device: its work in
// seconds, and the time from a request's start to its milestone, the point to which the SLO applies.
// A kind that has no estimator for the model (Batch 0) gets infinite work, so that the group is never put into a queue there.
func (t *groupTable) setCosts(groupIndex, size int32, promptTokens int64) {
	members := &t.members[groupIndex]
	for kind := range t.problem.Kinds {
		cost, estimator := t.problem.Cost(groupIndex, int32(kind)), t.fleet.queueTables.Estimator(t.problem.Kinds, members.model, members.isMegaPrompt, int32(kind))
		if estimator.Batch == 0 {
			*cost = Cost{Work: infiniteCost}
			continue
		}

		// The prompts are known, and the answers are taken to be of mean length. startSDScale corrects the variance by observed starts.
		requestCount := float64(size)
		cost.Work = estimator.Alpha*float64(promptTokens) + requestCount*estimator.Beta*estimator.OutputMean
		cost.Variance = estimator.AnswerVariance(requestCount, cost.Work) * (t.startSDScale * t.startSDScale)
		cost.Residence, cost.ResidenceVar = estimator.timeToMilestone(t.fleet.classes[members.model].milestone)
	}
}

// joinGroup adds a waiting request, given by its number, to a group that is in a queue, and updates the costs.
func (t *groupTable) joinGroup(groupIndex, requestNumber int32) {
	t.insertMember(groupIndex, requestNumber)
	t.updateGroup(groupIndex)
	t.assignment.GroupChanged(groupIndex)
}

// insertMember inserts a waiting request, given by its number, into the members of a group, in their order (memberBefore), and adds it to
// the line of its client. The caller updates the group's costs.
func (t *groupTable) insertMember(groupIndex, requestNumber int32) {
	members, request := &t.members[groupIndex], &t.requests.byNumber[requestNumber]

	// Find its position among the members from the end, where a new request usually belongs. previous is the member before it, or -1.
	previous := members.requests.Last
	for previous >= 0 && t.memberBefore(request, &t.requests.byNumber[previous]) {
		previous = t.requests.groupLinks[previous].Previous
	}
	t.requests.groupLinks.InsertAfter(&members.requests, previous, requestNumber)
	request.groupIndex = groupIndex

	// Count it, and add it to its client's line.
	t.joinCount++
	t.memberChanges++
	members.promptTokens += int64(request.promptTokens)
	t.requests.joinClientLine(requestNumber)
}

// memberBefore reports whether a request is served before another one of the same group: by deadline or by arrival, as Options.MemberOrder says.
func (t *groupTable) memberBefore(first, second *Request) bool {
	if t.options.MemberOrder == ByDeadline {
		return first.Deadline < second.Deadline
	}
	return first.ArrivedAt < second.ArrivedAt
}

// leaveGroup removes a request, given by its number, that starts or is dropped from its group and from its client's line.
// If it is in no group, nothing changes. A group that becomes empty leaves its queue and is freed; otherwise its costs are updated.
func (t *groupTable) leaveGroup(requestNumber int32) {
	request := &t.requests.byNumber[requestNumber]
	groupIndex := request.groupIndex
	if groupIndex < 0 {
		return
	}

	// Unlink the request.
	t.requests.leaveClientLine(requestNumber)
	members := &t.members[groupIndex]
	t.requests.groupLinks.Remove(&members.requests, requestNumber)
	request.groupIndex = -1

	// Update the group, or free it.
	t.memberChanges++
	members.promptTokens -= int64(request.promptTokens)
	if members.requests.Len == 0 {
		t.problem.Groups[groupIndex].Size = 0
		t.assignment.Remove(groupIndex)
		t.freeGroup(groupIndex)
		return
	}
	t.updateGroup(groupIndex)
	t.assignment.GroupChanged(groupIndex)
}

// canRun reports whether a group can run in a queue, on the instance of that.
func (t *groupTable) canRun(groupIndex, queueIndex int32) bool {
	queue := &t.problem.Queues[queueIndex]
	return queue.accepts(&t.problem.Groups[groupIndex], t.problem.Cost(groupIndex, queue.Kind))
}

// syncQueue updates the search's description of an instance's queue to the current time: the network that is loaded or loading, when its
// first group may start, and how long a change to each network takes. The start is before now if the running batch is not full.
// It is called before a search or a placement may read the queue: at ticks, and when the network of the instance changes.
func (t *groupTable) syncQueue(now time.Duration, queueIndex int32) {
	instance, queue := &t.fleet.instances[queueIndex], &t.problem.Queues[queueIndex]
	queue.Model, queue.Start = instance.LoadedNetwork, toSeconds(now)

	// If the batch is not full, members of the first groups can start at once. drainTime is how long the running batch takes to end, in seconds:
	// the mean residence (start to answer) of a model of the loaded network, all of which share its weights.
	drainTime := 0.0
	if instance.LoadedNetwork >= 0 {
		model := t.fleet.anyModelOf(instance.LoadedNetwork)
		drainTime = toSeconds(t.fleet.residence(instance, model))
		if estimator := t.fleet.EstimatorOn(instance, model, false); estimator.Batch > 0 && len(instance.RunningBatches) < int(estimator.Batch) {
			// The search lets a group start when the work before it is done. A request that still fits into the batch waits for none, as if
			// the queue had begun earlier by the mean work of a request.
			workEach, _ := estimator.Work(1)
			freePlaces := estimator.Batch - float64(len(instance.RunningBatches))
			queue.Start -= freePlaces * workEach
		}
	}

	// While a network is loading, the queue starts when it is loaded.
	if instance.LoadingNetwork >= 0 {
		queue.Model = instance.LoadingNetwork
		queue.Start = max(queue.Start, toSeconds(instance.loadStart+t.fleet.ChangeTime(instance, instance.LoadingNetwork)))
	}

	// Changes of network wait for the batch to drain. The entry of the loaded network is not read: staying with it takes no time (changeTime).
	for network := range queue.Setup {
		queue.Setup[network] = drainTime + toSeconds(t.fleet.ChangeTime(instance, int32(network)))
		if !instance.IsUp() || !t.fleet.isAllowed(instance, int32(network)) {
			queue.Setup[network] = infiniteCost
		}
	}
}
