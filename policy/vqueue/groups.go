package vqueue

import (
	"math"
	"time"
)

// takeGroup gives an empty group.
func (p *Policy) takeGroup(model int32, mega bool) int32 {
	var g int32
	if n := len(p.spare); n > 0 {
		g = p.spare[n-1]
		p.spare = p.spare[:n-1]
	} else {
		g = int32(len(p.groups))
		p.groups = append(p.groups, members{})
		p.problem.Groups = append(p.problem.Groups, Group{})
		for range p.problem.Kinds {
			p.problem.Costs = append(p.problem.Costs, Cost{})
		}
		p.state.where = append(p.state.where, -1)
	}
	x := &p.groups[g]
	*x = members{live: true, gen: x.gen + 1, model: model, mega: mega, first: -1, last: -1}
	p.problem.Groups[g] = Group{Model: p.network(model)}
	return g
}

// network is the network of a served model.
func (p *Policy) network(model int32) int32 {
	return p.t.Pipelines[p.t.Models[model].FirstPipeline].Network
}

// giveGroup frees a group that is in no queue and has no members.
func (p *Policy) giveGroup(g int32) {
	p.close(g)
	p.groups[g].live = false
	p.problem.Groups[g].Size = 0
	p.spare = append(p.spare, g)
}

// close takes a group off the open ones.
func (p *Policy) close(g int32) {
	for i, o := range p.joinable {
		if o == g {
			p.joinable[i] = -1
		}
	}
}

// joinableAt is where the open group of a model in a queue stands.
func (p *Policy) joinableAt(q, model int32, mega bool) *int32 {
	at := 2 * int(model)
	if mega {
		at++
	}
	if !p.opt.OneOpen {
		at += 2 * len(p.t.Models) * int(q)
	}
	return &p.joinable[at]
}

// limit is the most members of a group of a model in a queue.
func (p *Policy) limit(model int32, mega bool, kind int32) int32 {
	if p.opt.Rule != Planned {
		return 1
	}
	batch := p.own.Estimator(p.problem.Kinds, model, mega, kind).Batch
	return max(int32(p.opt.Delta*batch), 1)
}

// measure sets size, costs and deadlines of a group from its members. Deadlines
// between the first and the last member are taken as evenly spread.
func (p *Policy) measure(g int32) {
	x, pg := &p.groups[g], &p.problem.Groups[g]
	pg.Size = float64(x.size)
	if x.size == 0 {
		return
	}
	from, to := seconds(p.requests[x.first].deadline), seconds(p.requests[x.last].deadline)
	for u := range pg.Deadline {
		pg.Deadline[u] = from + quantile[u]*(to-from)
	}
	p.price(g, x.size, x.prompts)
}

// price sets the costs of a group of so many requests with so many prompt tokens.
func (p *Policy) price(g, size int32, prompts int64) {
	x := &p.groups[g]
	for k := range p.problem.Kinds {
		c, r := p.problem.Cost(g, int32(k)), p.own.Estimator(p.problem.Kinds, x.model, x.mega, int32(k))
		if r.Batch == 0 {
			*c = Cost{Work: never}
			continue
		}
		n := float64(size)
		c.Work = r.Alpha*float64(prompts) + n*r.Beta*r.OutputMean
		c.Variance = n * r.Beta * r.Beta * r.OutputVar
		c.Residence, c.ResidenceVar = r.Residence(1)
	}
}

// join finds a queue and a group for a request that waits and puts it there. home
// is the queue that has its state; -1: none. It gives the queue. It is -1 where no
// instance that is up can serve the request: then it waits for one.
func (p *Policy) join(now time.Duration, req, home int32) int32 {
	r := &p.requests[req]
	if p.opt.Rule == Shepherd {
		p.await(req)
		return -1
	}
	mega := p.own.Mega[r.model] > 0 && r.prompt >= p.own.Mega[r.model]
	if open := *p.joinableAt(0, r.model, mega); p.opt.OneOpen && open >= 0 && home < 0 {
		q := p.state.Where(open)
		if q >= 0 && p.runs(open, q) && p.groups[open].size < p.limit(r.model, mega, p.problem.Queues[q].Kind) {
			p.enter(open, req)
			return q
		}
	}
	q, place := p.placeFor(req, mega, home)
	if q < 0 {
		r.homeless = true
		p.homeless = append(p.homeless, req)
		return -1
	}
	open := p.joinableAt(q, r.model, mega)
	if g := *open; g >= 0 && p.state.Where(g) == q && p.groups[g].size < p.limit(r.model, mega, p.problem.Queues[q].Kind) {
		p.enter(g, req)
		return q
	}
	g := p.takeGroup(r.model, mega)
	if p.opt.Rule == Planned {
		*open = g
	}
	p.append(g, req)
	p.measure(g)
	p.state.Insert(g, q, place)
	return q
}

// placeFor is the queue and place for a request.
func (p *Policy) placeFor(req int32, mega bool, home int32) (q int32, place int) {
	r, x := &p.requests[req], &p.groups[p.probe]
	x.model, x.mega = r.model, mega
	pg := &p.problem.Groups[p.probe]
	*pg = Group{Model: p.network(r.model)}
	for u := range pg.Deadline {
		pg.Deadline[u] = seconds(r.deadline)
	}
	p.price(p.probe, 1, int64(r.prompt))
	pg.Size = 1
	defer func() { pg.Size = 0 }()
	if home >= 0 && !p.instances[home].down {
		if place, _ := p.state.insertion(p.probe, home, never); place >= 0 {
			return home, p.rulePlace(home, r, place)
		}
	}
	if p.opt.Without[Balancing] {
		for range p.instances {
			q := int32(p.turn % len(p.instances))
			p.turn++
			if place, _ := p.state.insertion(p.probe, q, never); place >= 0 {
				return q, p.rulePlace(q, r, place)
			}
		}
		return -1, 0
	}
	if p.opt.Rule == Planned && !p.opt.Append {
		q, place, _ = p.state.Best(p.probe)
		return q, place
	}
	q, least := -1, math.Inf(1)
	for i := range p.instances {
		if at, _ := p.state.insertion(p.probe, int32(i), never); at < 0 {
			continue
		}
		if end := p.state.end(int32(i)); end < least {
			q, least = int32(i), end
		}
	}
	if q < 0 {
		return -1, 0
	}
	return q, p.rulePlace(q, r, p.state.Len(q))
}

// rulePlace is the place in a queue that the rule gives a request.
func (p *Policy) rulePlace(q int32, r *request, planned int) int {
	if p.opt.Rule == Planned {
		return planned
	}
	// The last place behind all that goes first.
	place := p.state.Len(q)
	for place > 0 {
		before := &p.requests[p.groups[p.state.groupAt(q, place-1)].first]
		if p.opt.Rule == EDF && before.deadline <= r.deadline || p.opt.Rule == FCFS && before.arrived <= r.arrived {
			break
		}
		place--
	}
	return place
}

// enter adds a request to a group in a queue.
func (p *Policy) enter(g, req int32) {
	p.append(g, req)
	p.measure(g)
	p.state.Grown(g)
}

// append adds a request to the members of a group, in their order.
func (p *Policy) append(g, req int32) {
	x, r := &p.groups[g], &p.requests[req]
	after := x.last
	for after >= 0 && p.before(r, &p.requests[after]) {
		after = p.requests[after].prev
	}
	r.group, r.prev = g, after
	if after < 0 {
		r.next, x.first = x.first, req
	} else {
		r.next = p.requests[after].next
		p.requests[after].next = req
	}
	if r.next < 0 {
		x.last = req
	} else {
		p.requests[r.next].prev = req
	}
	x.size++
	x.prompts += int64(r.prompt)
}

// before tells whether a goes before b in a group.
func (p *Policy) before(a, b *request) bool {
	if p.opt.Members == ByDeadline {
		return a.deadline < b.deadline
	}
	return a.arrived < b.arrived
}

// leave takes a request out of its group. A group without members is free.
func (p *Policy) leave(req int32) {
	r := &p.requests[req]
	g := r.group
	if g < 0 {
		return
	}
	x := &p.groups[g]
	if r.prev < 0 {
		x.first = r.next
	} else {
		p.requests[r.prev].next = r.next
	}
	if r.next < 0 {
		x.last = r.prev
	} else {
		p.requests[r.next].prev = r.prev
	}
	r.group, r.next, r.prev = -1, -1, -1
	x.size--
	x.prompts -= int64(r.prompt)
	if x.size == 0 {
		p.problem.Groups[g].Size = 0
		p.state.Remove(g)
		p.giveGroup(g)
		return
	}
	p.measure(g)
	p.state.Grown(g)
}
