package vqueue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"inferplan/formats/seeded"
)

// replanner starts searches for a better order and adopts their results.
type planning struct {
	*grouping
	orders [][]int32 // by queue: buffer for a new order
	plans  int64     // number of searches
	ends   Replans   // how they ended
	effort effort
}

// newReplanner returns a replanner that has started no search.
func newPlanning(s *grouping) planning {
	return planning{grouping: s, orders: make([][]int32, len(s.instances))}
}

// searchBudget is the work that the re-plans of a single queue may use: it grows with the changes since the last
// one. A search over several queues finds more the longer it runs, and is not limited by it.
type effort struct {
	seen, joined int64 // groupTable.memberChanges and joinCount when last counted
	credit       int64 // positions that may be looked at
	grant        int64 // positions granted to the next search
	shifted      int64 // groupTable.instanceChanges at the last re-plan
	settled      bool  // the last search found no better order
	rested       int   // re-plans skipped since then
}

const (
	// A search of few groups has tried all orders that matter long before a large budget ends.
	leastWork    = 20_000
	workPerGroup = 1000
	// workPerChange is the work granted for a request that joins or leaves a single queue, in positions.
	workPerChange = 2000
	// maxSkippedReplans is how many re-plans of a single queue in a row are skipped if no request joined and
	// nothing else changed since the last one.
	mostRested = 2
)

// grantReplan reports whether a re-plan is worthwhile now, and grants its work.
func (p *planning) due() bool {
	e, most := &p.effort, max(leastWork, workPerGroup*int64(len(p.groups)))
	if len(p.instances) > 1 {
		e.grant = most
		return true
	}

	// Earn credit for the changes.
	e.credit = min(e.credit+workPerChange*(p.changes-e.seen), most)
	e.seen = p.changes
	if workPerGroup*p.state.Len(0) <= leastWork {
		e.credit = max(e.credit, leastWork)
	}

	// Skip a search that would see the same as the last one, or has too little credit.
	if e.settled && e.joined == p.joins && e.shifted == p.shifts && e.rested < mostRested {
		e.rested++
		return false
	}
	if e.credit < leastWork {
		return false
	}
	e.grant, e.credit, e.joined, e.shifted, e.rested = e.credit, 0, p.joins, p.shifts, 0
	return true
}

// syncProblem updates the problem to the current time: loaded networks, starts of queues, setup times.
func (p *planning) sync(now time.Duration) {
	p.problem.Now = seconds(now)
	for q := range p.instances {
		p.situate(now, int32(q))
	}
	p.state.Refresh()
}

// newSearch returns a search over a copy of the present problem. It runs beside the loop. Its result has, for each
// queue, the number of groups, then each group and its generation; or one of the result constants instead.
func (p *planning) search() func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	p.plans++

	// Copy the problem, the generations of the groups, and the order.
	problem := p.problem
	problem.Groups, problem.Costs = slices.Clone(p.problem.Groups), slices.Clone(p.problem.Costs)
	problem.Queues = slices.Clone(p.problem.Queues)
	for q := range problem.Queues {
		problem.Queues[q].Setup = slices.Clone(problem.Queues[q].Setup)
	}
	gens := make([]int32, len(p.groups))
	for g := range gens {
		gens[g] = p.groups[g].gen
	}
	plan := &State{}
	plan.CopyFrom(p.state)
	plan.p = &problem
	plan.Refresh()

	// Every search has random numbers of its own.
	rng := seeded.New(p.opt.Seed, "vqueue/replan/"+strconv.FormatInt(p.plans, 10))
	search, grant := &Search{Stay: !p.ops.balance.on}, p.effort.grant
	return func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
		before, began := plan.Work(), plan.Total()
		if late := p.opt.EDFAbove > 0 && plan.Late() > p.opt.EDFAbove*problem.requests(); !late && began-plan.Floor() <= least {
			return append(dst, stays), 0 // no order is better by more than minPlanGain
		}

		// Search for a better order.
		work = min(work, grant)
		search.Run(ctx, plan, rng, work)
		worked := plan.Work() - before

		// No better order, or too many late requests: keep the order, or fall back to deadlines.
		late := p.opt.EDFAbove > 0 && plan.Late() > p.opt.EDFAbove*problem.requests()
		if better := plan.Total() < began-least; late || !better {
			if !late && ctx.Err() == nil {
				return append(dst, stays), worked
			}
			edf(plan)
			if !late && plan.Total() >= began-least {
				return append(dst, outOfTime), worked
			}
			late = true
		}

		// Write the order.
		for q := range problem.Queues {
			dst = append(dst, int32(plan.Len(int32(q))))
			for _, g := range plan.Order(int32(q), nil) {
				dst = append(dst, g, gens[g])
			}
		}
		if late {
			dst = append(dst, byDeadline)
		}
		return dst, worked
	}
}

const (
	// Values in a result instead of an order, or behind one. An empty result means that the search failed.
	stays      = -1 // no better order was found: the order remains
	outOfTime  = -2 // the same because the search ran out of time
	byDeadline = -3 // behind an order: it is that of the deadlines
)

// ReplanCounts counts the results of searches.
type Replans struct {
	Adopted, Stayed int64 // a better order was found; none was found
	// OutOfTime and Failed count searches that ran out of time or failed. ByDeadline counts how often the queues
	// took the order of deadlines, after a failure or because of EDFAbove.
	OutOfTime, Failed, ByDeadline int64
}

// Replans returns the results of searches so far.
func (p *Policy) Replans() Replans { return p.plan.ends }

// handleResult adopts the result of a search, counts it, and reports whether the order changed. If the search
// failed and a violation is likely, it orders the queues by deadline.
func (p *planning) ended(list []int32) bool {
	p.effort.settled = len(list) > 0 && list[0] == stays
	switch {
	// The search failed.
	case len(list) == 0:
		p.ends.Failed++
		if !p.violation() {
			return false
		}
		p.ends.ByDeadline++
		edf(p.state)
		return true

	// There is no better order.
	case list[0] == stays:
		p.ends.Stayed++
		return false
	case list[0] == outOfTime:
		p.ends.OutOfTime++
		return false
	}

	// There is a new order.
	if !p.adopt(list) {
		return false
	}
	if list[len(list)-1] == byDeadline {
		p.ends.ByDeadline++
	} else {
		p.ends.Adopted++
	}
	return true
}

// minPlanGain is the gain of the objective from which on a new order is adopted.
const least = 0.05

// violationLikely reports whether some group is likely to have late requests.
func (p *planning) violation() bool {
	fresh(p.state)
	return slices.ContainsFunc(p.state.queues, func(l line) bool {
		return slices.ContainsFunc(l.slots, func(x slot) bool { return x.cost > likely*p.problem.Late })
	})
}

// violationThreshold is the expected number of late requests of a group that counts as a violation.
const likely = 0.5

// adoptOrder takes over an order that a search found. Groups that are newer than the search keep their queue,
// behind the others; groups that are gone are skipped. If the order is for another number of queues or is cut off,
// nothing changes and adoptOrder returns false.
func (p *planning) adopt(list []int32) bool {
	for q := range p.orders {
		p.orders[q] = p.orders[q][:0]
		if len(list) == 0 {
			return false
		}
		n := int(list[0])
		if n < 0 || len(list) < 1+2*n {
			return false
		}
		for i := range n {
			g, gen := list[1+2*i], list[2+2*i]
			if g < 0 || int(g) >= len(p.groups) || p.groups[g].gen != gen || p.state.Where(g) < 0 || !p.runs(g, int32(q)) {
				continue
			}
			p.orders[q] = append(p.orders[q], g)
		}
		list = list[1+2*n:]
	}
	p.settle()
	return true
}

// arrangeOrders sets the queues to p.orders, with every group once, and adds the groups that are missing.
func (p *planning) settle() {
	// Remove duplicates.
	seen := make([]bool, len(p.groups))
	for q := range p.orders {
		p.orders[q] = slices.DeleteFunc(p.orders[q], func(g int32) bool {
			again := seen[g]
			seen[g] = true
			return again
		})
	}

	// Append the groups that no order has.
	for q := range p.orders {
		for _, x := range p.state.queues[q].slots {
			if !seen[x.group] {
				p.orders[q] = append(p.orders[q], x.group)
			}
		}
	}

	// Sort by priority: new groups stand behind those of equal priority.
	for q := range p.orders {
		slices.SortStableFunc(p.orders[q], func(a, b int32) int { return cmp.Compare(p.problem.Groups[a].Priority, p.problem.Groups[b].Priority) })
	}
	p.state.Arrange(p.orders)

	// An open group that moved to another queue is no longer open.
	for i, g := range p.joinable {
		if g >= 0 && !p.opt.OneOpen && p.state.Where(g) != int32(i/(2*len(p.t.Models))) {
			p.joinable[i] = -1
		}
	}
}
