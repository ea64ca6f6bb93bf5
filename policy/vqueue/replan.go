package vqueue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"inferplan/formats/seeded"
)

// planning is what re-plans begin from and end with.
type planning struct {
	*grouping
	orders [][]int32 // to arrange a re-plan
	plans  int64
	ends   Replans
	effort effort
}

func newPlanning(s *grouping) planning {
	return planning{grouping: s, orders: make([][]int32, len(s.instances))}
}

// effort is how much the re-plans of a single queue may work: as much as what has changed
// since is worth. A search over several queues finds more the longer it works.
type effort struct {
	seen, joined int64 // grouping.changes and grouping.joins at the last look
	credit       int64 // positions
	grant        int64 // for the search that is asked for
	shifted      int64 // grouping.shifts at the last re-plan
	settled      bool  // the last search found nothing better
	rested       int   // re-plans that were passed over since then
}

const (
	// A search of few groups has seen what there is long before a large budget ends.
	leastWork    = 20_000
	workPerGroup = 1000
	// workPerChange is what a request that comes to a single queue or goes from it is worth,
	// in positions.
	workPerChange = 2000
	// mostRested is how many re-plans of a single queue in a row are passed over where
	// nobody came, and nothing that the last one saw is other than it was.
	mostRested = 2
)

// due returns whether a re-plan is worth it now, and grants its work.
func (p *planning) due() bool {
	e, most := &p.effort, max(leastWork, workPerGroup*int64(len(p.groups)))
	if len(p.instances) > 1 {
		e.grant = most
		return true
	}
	e.credit = min(e.credit+workPerChange*(p.changes-e.seen), most)
	e.seen = p.changes
	if workPerGroup*p.state.Len(0) <= leastWork {
		e.credit = max(e.credit, leastWork)
	}
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

// sync brings the problem up to the time: which models are loaded, when queues
// start, and what changes of models take.
func (p *planning) sync(now time.Duration) {
	p.problem.Now = seconds(now)
	for q := range p.instances {
		p.situate(now, int32(q))
	}
	p.state.Refresh()
}

// search is a search over what is queued now, to be run beside the loop.
func (p *planning) search() func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	p.plans++
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
	rng := seeded.New(p.opt.Seed, "vqueue/replan/"+strconv.FormatInt(p.plans, 10))
	search, grant := &Search{Stay: !p.ops.balance.on}, p.effort.grant
	return func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
		before, began := plan.Work(), plan.Total()
		if late := p.opt.EDFAbove > 0 && plan.Late() > p.opt.EDFAbove*problem.requests(); !late && began-plan.Floor() <= least {
			return append(dst, stays), 0 // no order is better by more
		}
		work = min(work, grant)
		search.Run(ctx, plan, rng, work)
		worked := plan.Work() - before
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

// What a result says instead of an order, or behind one. A search that comes back
// with an empty list has failed.
const (
	stays      = -1 // nothing better was found: the order stays
	outOfTime  = -2 // so it does because the search ran out of time
	byDeadline = -3 // the order is the earliest deadline first
)

// Replans counts how searches ended.
type Replans struct {
	Adopted, Stayed int64 // a better order was found; none was
	// Searches that ran out of time or failed. ByDeadline: the queues then took the
	// order of the earliest deadline first, as they do above EDFAbove.
	OutOfTime, Failed, ByDeadline int64
}

// Replans tells how searches ended so far.
func (p *Policy) Replans() Replans { return p.plan.ends }

// ended counts how a search ended. A failed one, where a violation is likely, leaves
// the queues in the order of the earliest deadline first.
func (p *planning) ended(list []int32) bool {
	p.effort.settled = len(list) > 0 && list[0] == stays
	switch {
	case len(list) == 0:
		p.ends.Failed++
		if !p.violation() {
			return false
		}
		p.ends.ByDeadline++
		edf(p.state)
		return true
	case list[0] == stays:
		p.ends.Stayed++
		return false
	case list[0] == outOfTime:
		p.ends.OutOfTime++
		return false
	}
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

// least is the gain from which on a new order is worth it.
const least = 0.05

// violation tells whether any violation of a deadline is likely.
func (p *planning) violation() bool {
	fresh(p.state)
	return slices.ContainsFunc(p.state.queues, func(l line) bool {
		return slices.ContainsFunc(l.slots, func(x slot) bool { return x.cost > likely*p.problem.Late })
	})
}

// likely is the expected number of late requests of a group that is a violation.
const likely = 0.5

// adopt takes over an order that a search found. Groups born since keep their
// queue, behind the others; those that are gone are passed over. An order for
// another number of queues, or one that is cut off, changes nothing, and adopt is
// false.
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

// settle arranges p.orders, each group once, with the groups that they lack.
func (p *planning) settle() {
	seen := make([]bool, len(p.groups))
	for q := range p.orders {
		p.orders[q] = slices.DeleteFunc(p.orders[q], func(g int32) bool {
			again := seen[g]
			seen[g] = true
			return again
		})
	}
	for q := range p.orders {
		for _, x := range p.state.queues[q].slots {
			if !seen[x.group] {
				p.orders[q] = append(p.orders[q], x.group)
			}
		}
	}
	for q := range p.orders { // what is new goes behind its equals
		slices.SortStableFunc(p.orders[q], func(a, b int32) int { return cmp.Compare(p.problem.Groups[a].Priority, p.problem.Groups[b].Priority) })
	}
	p.state.Arrange(p.orders)
	// A group may have come to a queue that has an open one of its model: it is open
	// no more.
	for i, g := range p.joinable {
		if g >= 0 && !p.opt.OneOpen && p.state.Where(g) != int32(i/(2*len(p.t.Models))) {
			p.joinable[i] = -1
		}
	}
}
