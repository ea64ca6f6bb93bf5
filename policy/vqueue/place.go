package vqueue

import (
	"math"
	"sort"
)

// placer finds queues for waiting requests.
type placing struct {
	*grouping
	probe int32                   // group that stands for a request while its place is sought
	turn  int                     // queue that is dealt next if Balancing is disabled
	deal  func(instances int) int // see Options.NewDealer
}

// newPlacer returns a placer with a group to probe with.
func newPlacing(s *grouping) placing {
	p := placing{grouping: s, probe: s.take(0, false)}
	if s.opt.Deal != nil {
		p.deal = s.opt.Deal(s.opt.Seed)
	}
	return p
}

// placeRequest finds a queue and a group for a waiting request, adds it there, and returns the queue. stateQueue
// is the queue of the instance that has its state, or -1. If no instance that is up can serve the request, it
// becomes unplaced and placeRequest returns -1.
func (p *placing) join(req, home int32) int32 {
	r := &p.requests[req]
	mega := p.mega(r)

	// With one open group per model, join that.
	if open := p.joinable[p.joinableAt(0, r.model, mega)]; p.opt.OneOpen && open >= 0 && home < 0 {
		if q := p.state.Where(open); q >= 0 && p.runs(open, q) && p.takes(open, q) {
			p.enter(open, req)
			return q
		}
	}

	// Otherwise find the queue and place, and join the open group there.
	q, place := p.placeFor(req, mega, home)
	if q < 0 {
		p.strand(req)
		return -1
	}
	open := p.joinableAt(q, r.model, mega)
	if g := p.joinable[open]; g >= 0 && p.state.Where(g) == q && p.takes(g, q) {
		p.enter(g, req)
		return q
	}

	// If there is none with space, insert a new group.
	g := p.take(r.model, mega)
	if p.opt.Rule == Planned {
		p.setOpen(g, open)
	}
	p.add(g, req)
	p.measure(g)
	p.state.Insert(g, q, place)
	return q
}

// groupHasSpace reports whether a group in a queue takes one more member.
func (p *placing) takes(g, q int32) bool {
	x := &p.groups[g]
	return x.size < p.limit(x.model, x.mega, p.problem.Queues[q].Kind)
}

// placeFor returns the queue and place for a request. If no queue can serve it, the queue is -1.
func (p *placing) placeFor(req int32, mega bool, home int32) (q int32, place int) {
	r := &p.requests[req]
	pg := p.probing(r, mega)
	defer func() { pg.Size = 0 }()

	// Return to the instance that has the request's state.
	if home >= 0 && p.instances[home].up() {
		if place := p.fits(home); place >= 0 {
			return home, p.rulePlace(home, r, place)
		}
	}

	// Otherwise by the options: dealt in turn, where the objective grows least, or where the least work waits.
	if !p.ops.balance.on {
		return p.dealt(r)
	}
	if p.opt.Rule == Planned && !p.opt.Append {
		q, place, _ = bestPlace(p.state, p.probe, p.problem.atLeast(p.probe))
		return q, place
	}
	q, least := int32(-1), math.Inf(1)
	for i := range p.instances {
		if p.fits(int32(i)) < 0 {
			continue
		}
		if end := p.state.queues[i].end(p.problem.Queues[i].Start); end < least {
			q, least = int32(i), end
		}
	}
	if q < 0 {
		return -1, 0
	}
	return q, p.rulePlace(q, r, p.state.Len(q))
}

// setProbe makes the probe group a group of this request alone.
func (p *placing) probing(r *request, mega bool) *Group {
	p.groups[p.probe].model, p.groups[p.probe].mega = r.model, mega
	pg := &p.problem.Groups[p.probe]
	*pg = p.groupOf(r.model)
	for u := range pg.Deadline {
		pg.Deadline[u] = seconds(r.deadline)
	}
	p.price(p.probe, 1, int64(r.prompt))
	pg.Size = 1
	return pg
}

// dealtPlace returns the next queue, in turn or by Options.NewDealer, that can serve the probe group, and the
// request's place there.
func (p *placing) dealt(r *request) (q int32, place int) {
	if p.deal != nil {
		p.turn = p.deal(len(p.instances))
	}
	for range p.instances {
		q := int32(p.turn % len(p.instances))
		p.turn++
		if place := p.fits(q); place >= 0 {
			return q, p.rulePlace(q, r, place)
		}
	}
	return -1, 0
}

// probePlace returns the cheapest place for the probe group in a queue. For rules without costs it returns 0. If
// the group cannot run there, it returns -1.
func (p *placing) fits(q int32) int {
	if p.opt.Rule == Planned {
		place, _ := p.state.insertion(p.probe, q, never)
		return place
	}
	if p.runs(p.probe, q) {
		return 0
	}
	return -1
}

// rulePlace returns the place of a request in a queue by the rule: behind all groups that precede it or, with
// virtual queues, the given place moved behind no group of a lower priority.
func (p *placing) rulePlace(q int32, r *request, planned int) int {
	slots, rank := p.state.queues[q].slots, p.classes[r.model].priority
	if p.opt.Rule != Planned { // the queue is sorted by the rule
		return sort.Search(len(slots), func(i int) bool { return !p.precedes(&slots[i], r) })
	}
	place := planned
	for place > 0 && slots[place-1].priority > rank {
		place--
	}
	return place
}

// slotPrecedes reports whether the request in a slot precedes another by the rule, or is equal to it.
func (p *placing) precedes(x *slot, r *request) bool {
	first, rank := &p.requests[p.groups[x.group].first], p.classes[r.model].priority
	switch {
	case x.priority != rank:
		return x.priority < rank
	case p.opt.Rule == EDF:
		return first.deadline <= r.deadline
	}
	return first.arrived <= r.arrived
}
