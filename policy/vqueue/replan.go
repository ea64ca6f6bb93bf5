package vqueue

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"inferplan/formats/seeded"
)

// replanner starts searches for a better order of the queues, which run beside the event loop, and adopts their results.
type replanner struct {
	fleet     *instanceFleet
	groups    *groupTable
	orders    [][]int32    // scratch, by queue: a new order of groups
	planCount int64        // number of searches so far
	outcomes  ReplanCounts // how they ended
	budget    searchBudget
}

// newReplanner returns a replanner of the queues of a group table, which has started no search.
func newReplanner(groups *groupTable) replanner {
	return replanner{fleet: groups.fleet, groups: groups, orders: make([][]int32, len(groups.fleet.instances))}
}

// searchBudget is the work that the re-plans of a single queue may use: it grows with the changes since the last
// one. A search over several queues finds more the longer it runs, and is not limited by it. Work is counted in positions of queues looked at.
type searchBudget struct {
	seenChanges, seenJoins int64 // groupTable.memberChanges and joinCount when last counted
	credit                 int64 // positions that may be looked at
	granted                int64 // positions granted to the next search
	seenInstanceChanges    int64 // groupTable.instanceChanges at the last re-plan
	foundNoBetter          bool  // the last search found no better order
	skippedReplans         int   // number of re-plans skipped since then
}

const (
	// A search of few groups has tried all orders that matter long before a large budget ends.
	minSearchWork = 20_000
	workPerGroup  = 1000
	// workPerChange is the work granted for a request that joins or leaves a single queue, in positions.
	workPerChange = 2000
	// maxSkippedReplans is how many re-plans of a single queue in a row are skipped if no request joined and
	// nothing else changed since the last one.
	maxSkippedReplans = 2
)

// grantReplan is called at a tick. It reports whether a search for a better order is worthwhile now, and grants its
// work, in positions to look at. Several instances get the full work each time. One instance earns work by changes
// of groups, because the search would otherwise repeat itself. It skips a search that would see the same as the
// last one, which changed nothing, up to maxSkippedReplans times.
func (p *replanner) grantReplan() bool {
	// Several instances get the full work.
	budget, maxCredit := &p.budget, max(minSearchWork, workPerGroup*int64(len(p.groups.members)))
	if len(p.fleet.instances) > 1 {
		budget.granted = maxCredit
		return true
	}

	// Earn credit for the changes since the last tick. A short queue (of instance 0, the only one) gets the least work in any case.
	budget.credit = min(budget.credit+workPerChange*(p.groups.memberChanges-budget.seenChanges), maxCredit)
	budget.seenChanges = p.groups.memberChanges
	if workPerGroup*p.groups.assignment.Len(0) <= minSearchWork {
		budget.credit = max(budget.credit, minSearchWork)
	}

	// Skip a search that would see the same as the last one, or has too little credit.
	seesSame := budget.seenJoins == p.groups.joinCount && budget.seenInstanceChanges == p.groups.instanceChanges
	if budget.foundNoBetter && seesSame && budget.skippedReplans < maxSkippedReplans {
		budget.skippedReplans++
		return false
	}
	if budget.credit < minSearchWork {
		return false
	}

	// Grant all credit, and note what this search sees.
	budget.granted, budget.credit, budget.skippedReplans = budget.credit, 0, 0
	budget.seenJoins, budget.seenInstanceChanges = p.groups.joinCount, p.groups.instanceChanges
	return true
}

// syncProblem updates the search's problem to the current time (loaded networks, starts of queues, setup times), and recomputes all costs.
// It is called at every tick and when an instance is lost or returns.
func (p *replanner) syncProblem(now time.Duration) {
	p.groups.problem.Now = toSeconds(now)
	for queueIndex := range p.fleet.instances {
		p.groups.syncQueue(now, int32(queueIndex))
	}
	p.groups.assignment.Refresh()
}

// newSearch returns a search over a copy of the present problem, which may run beside the event loop while the policy goes on.
// The generations of the groups are copied too, so that the result does not name a group whose entry was freed and reused meanwhile.
func (p *replanner) newSearch() *planSearch {
	p.planCount++

	// Copy the problem and the generations of the groups. What the policy goes on to change needs copies: also the setup times of the queues,
	// which syncQueue writes in place. EDFAbove is the share of late requests above which the queues are ordered by deadline.
	replan := &planSearch{problem: p.groups.problem, generations: make([]int32, len(p.groups.members)), edfAbove: p.groups.options.EDFAbove, granted: p.budget.granted}
	replan.problem.Groups = slices.Clone(replan.problem.Groups)
	replan.problem.Costs = slices.Clone(replan.problem.Costs)
	replan.problem.Queues = slices.Clone(replan.problem.Queues)
	for queueIndex := range replan.problem.Queues {
		replan.problem.Queues[queueIndex].Setup = slices.Clone(replan.problem.Queues[queueIndex].Setup)
	}
	for groupIndex := range replan.generations {
		replan.generations[groupIndex] = p.groups.members[groupIndex].generation
	}

	// Copy the order of the queues. CopyFrom takes over the pointer to the policy's problem, so it is replaced by the copy.
	replan.plan.CopyFrom(p.groups.assignment)
	replan.plan.problem = &replan.problem
	replan.plan.Refresh()

	// Every search has random numbers of its own.
	replan.rng = seeded.New(p.groups.options.Seed, "vqueue/replan/"+strconv.FormatInt(p.planCount, 10))

	// Without balancing, groups stay in the queues to which they were dealt.
	replan.search.KeepQueues = !p.fleet.operations[Balancing]
	return replan
}

// planSearch is a search for a better order of the queues that runs beside the event loop, on a copy of the problem.
type planSearch struct {
	problem     Problem
	plan        Assignment // the present order, then the best one found
	generations []int32    // by group: the count of uses of its entry, when the search began
	search      Search
	rng         *rand.Rand
	granted     int64   // number of positions that it may look at
	edfAbove    float64 // see Options.EDFAbove
}

// run searches for a better order of the queues, beside the event loop, and appends the result to dst. If a better order was found, that is
// the order (appendOrder). If too many requests are late (Options.EDFAbove), it is the queues sorted by deadline, better or not. If ctx ended
// before a better order was found, these are the result if they are better. Behind an order by deadline stands resultByDeadline. Without a
// new order the result is resultUnchanged or resultOutOfTime alone.
// It also returns the search work done, in positions looked at. That stays within `work` and the work that grantReplan has granted.
func (s *planSearch) run(ctx context.Context, work int64, dst []int32) (result []int32, workDone int64) {
	oldWork, oldTotal := s.plan.SearchWork(), s.plan.Total()
	if !s.tooManyLate() && oldTotal-s.plan.LowerBound() <= minPlanGain {
		return append(dst, resultUnchanged), 0 // no order is better by more than minPlanGain, so none is worth a search
	}

	// Search for a better order.
	s.search.Run(ctx, &s.plan, s.rng, min(work, s.granted))
	workDone = s.plan.SearchWork() - oldWork
	tooManyLate := s.tooManyLate()
	switch {
	case !tooManyLate && s.plan.Total() < oldTotal-minPlanGain:
		return s.appendOrder(dst), workDone
	case !tooManyLate && ctx.Err() == nil:
		return append(dst, resultUnchanged), workDone
	}

	// Too many late requests, or no better order before ctx ended: fall back to deadlines. Too many late requests call for that order even if
	// its total is no better.
	sortByDeadline(&s.plan)
	if !tooManyLate && s.plan.Total() >= oldTotal-minPlanGain {
		return append(dst, resultOutOfTime), workDone
	}
	return append(s.appendOrder(dst), resultByDeadline), workDone
}

// tooManyLate reports whether the present order makes a larger share of the requests late than Options.EDFAbove allows.
func (s *planSearch) tooManyLate() bool {
	return s.edfAbove > 0 && s.plan.LateRequests() > s.edfAbove*s.problem.totalRequests()
}

// appendOrder appends the order that was found to dst, in the form that adoptOrder reads: for each queue its number of groups, then each
// group with its generation (the count of uses of its entry).
func (s *planSearch) appendOrder(dst []int32) []int32 {
	for queueIndex := range s.problem.Queues {
		dst = append(dst, int32(s.plan.Len(int32(queueIndex))))
		for _, groupIndex := range s.plan.AppendOrder(int32(queueIndex), nil) {
			dst = append(dst, groupIndex, s.generations[groupIndex])
		}
	}
	return dst
}

const (
	// Values in a result instead of an order, or behind one. An empty result means that the search failed.
	resultUnchanged  = -1 // no better order was found: the order remains
	resultOutOfTime  = -2 // the same because the search ran out of time
	resultByDeadline = -3 // behind an order: it is that of the deadlines
)

// ReplanCounts counts the results of searches.
type ReplanCounts struct {
	Adopted, Stayed int64 // a better order was found; none was found
	// OutOfTime and Failed count searches that ran out of time or failed. ByDeadline counts how often the queues
	// took the order of deadlines, after a failure or because of EDFAbove.
	OutOfTime, Failed, ByDeadline int64
}

// Replans returns how the searches so far have ended.
func (p *Policy) Replans() ReplanCounts { return p.replanner.outcomes }

// handleResult is called when a search has ended. It adopts its result, counts it, and reports whether the order of the queues changed.
// The result is that of planSearch.run: resultUnchanged or resultOutOfTime alone, or an order of the queues as appendOrder writes it. Behind
// an order by deadline stands resultByDeadline. An empty result means that the search failed; if a violation of an SLO is likely then,
// handleResult sorts the queues by deadline.
func (p *replanner) handleResult(result []int32) bool {
	p.budget.foundNoBetter = false
	if len(result) == 0 {
		p.outcomes.Failed++
		if !p.violationLikely() {
			return false
		}
		p.outcomes.ByDeadline++
		sortByDeadline(p.groups.assignment)
		return true
	}

	// No new order: an order would begin with a number of groups, which is not negative.
	switch result[0] {
	case resultUnchanged:
		p.outcomes.Stayed++
		p.budget.foundNoBetter = true // so that the next ticks need not search for the same
		return false
	case resultOutOfTime:
		p.outcomes.OutOfTime++
		return false
	}

	// Adopt the order. One that is cut off, or for more queues than there are numbers, is no result of a search, and is not counted.
	if !p.adoptOrder(result) {
		return false
	}
	if result[len(result)-1] == resultByDeadline {
		p.outcomes.ByDeadline++
	} else {
		p.outcomes.Adopted++
	}
	return true
}

// minPlanGain is the gain of the objective from which on a new order is adopted.
const minPlanGain = 0.05

// violationLikely reports whether some group is likely to have late requests: its cost exceeds violationThreshold of what one late request costs.
func (p *replanner) violationLikely() bool {
	refreshStaleQueues(p.groups.assignment)
	return slices.ContainsFunc(p.groups.assignment.queues, func(order queueOrder) bool {
		return slices.ContainsFunc(order.entries, func(entry queueEntry) bool { return entry.cost > violationThreshold*p.groups.problem.LateWeight })
	})
}

// violationThreshold is the expected number of late requests of a group that counts as a violation.
const violationThreshold = 0.5

// adoptOrder takes over an order that a search found, in the form of planSearch.appendOrder; what stands behind it is not read.
// Groups that are gone, or that cannot run in their new queue, are skipped. Then arrangeOrders appends the groups that the order does not
// have, such as those that are newer than the search, to their present queues.
// If the order is cut off or for fewer queues, as one from a log or another program may be, the queues stay as they are (p.orders is scratch)
// and adoptOrder returns false.
func (p *replanner) adoptOrder(result []int32) bool {
	for queueIndex := range p.orders {
		// The next number of the result is that of the queue's groups. Two numbers follow for each of them.
		p.orders[queueIndex] = p.orders[queueIndex][:0]
		if len(result) == 0 {
			return false
		}
		groupCount := int(result[0])
		result = result[1:]
		if groupCount < 0 || len(result) < 2*groupCount {
			return false
		}

		// Take the groups that still exist and can run in this queue. An entry that was freed is in no queue, and one that was freed and used
		// again has another generation.
		for i := range groupCount {
			groupIndex, generation := result[2*i], result[2*i+1]
			if groupIndex < 0 || int(groupIndex) >= len(p.groups.members) || p.groups.members[groupIndex].generation != generation {
				continue
			}
			if p.groups.assignment.QueueOf(groupIndex) < 0 || !p.groups.canRun(groupIndex, int32(queueIndex)) {
				continue
			}
			p.orders[queueIndex] = append(p.orders[queueIndex], groupIndex)
		}
		result = result[2*groupCount:]
	}
	p.arrangeOrders()
	return true
}

// arrangeOrders sets the queues to p.orders, so that every group stands in one queue once. A group that two orders name stays at the first,
// and a group that none names, because it is newer than the search, stays in its queue behind those of equal priority.
func (p *replanner) arrangeOrders() {
	// Remove duplicates.
	isPlaced := make([]bool, len(p.groups.members))
	for queueIndex := range p.orders {
		p.orders[queueIndex] = slices.DeleteFunc(p.orders[queueIndex], func(groupIndex int32) bool {
			isDuplicate := isPlaced[groupIndex]
			isPlaced[groupIndex] = true
			return isDuplicate
		})
	}

	// Append the groups that no order has.
	for queueIndex := range p.orders {
		for _, entry := range p.groups.assignment.queues[queueIndex].entries {
			if !isPlaced[entry.group] {
				p.orders[queueIndex] = append(p.orders[queueIndex], entry.group)
			}
		}
	}

	// Sort by priority: new groups stand behind those of equal priority.
	for queueIndex := range p.orders {
		slices.SortStableFunc(p.orders[queueIndex], func(groupA, groupB int32) int {
			return cmp.Compare(p.groups.problem.Groups[groupA].Priority, p.groups.problem.Groups[groupB].Priority)
		})
	}
	p.groups.assignment.Arrange(p.orders)

	// An open group that moved to another queue is no longer open, because requests join the open group of their queue. Its slot says which
	// queue it was opened for: each queue has two slots for each model.
	for slot, groupIndex := range p.groups.openGroups {
		if groupIndex >= 0 && !p.groups.options.OneOpenGroup && p.groups.assignment.QueueOf(groupIndex) != int32(slot/(2*len(p.fleet.tables.Models))) {
			p.groups.openGroups[slot] = -1
		}
	}
}
