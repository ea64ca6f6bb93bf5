package vqueue

import (
	"slices"
	"time"
)

// groupTable has the request groups: their members, the problem that they form, and the order of the queues.
type grouping struct {
	*fleet
	*book
	opt Options

	groups   []members // by index of Problem.Groups
	spare    []int32   // free groups
	joinable []int32   // open groups, see openGroupIndex
	problem  Problem
	state    *State
	joins    int64   // number of requests that have joined groups
	changes  int64   // number of requests that have joined or left groups
	shifts   int64   // number of changes of networks, instances and prices
	wide     float64 // factor on the standard deviations of starts, see WaitQuantile
}

// groupMembers has the members of a group, beside the group's figures in Problem.Groups.
type members struct {
	live        bool
	gen         int32 // counts the uses of the index
	model       int32
	mega        bool
	first, last int32 // requests at both ends, or -1
	size        int32 // number of requests
	prompts     int64 // tokens of all prompts
	joinable    int32 // index in groupTable.openGroups while the group is open, else -1
}

// newGroupTable returns a table with an empty queue for each instance, and no groups.
func newGrouping(f *fleet, opt Options) *grouping {
	s := &grouping{fleet: f, book: &book{turns: newTurns(len(f.t.Models))}, opt: opt, wide: 1, problem: Problem{Kinds: len(f.t.Kinds), Models: len(f.t.Networks), Objective: opt.Objective}}
	for i := range f.instances {
		in := &f.instances[i]
		s.problem.Queues = append(s.problem.Queues, Queue{Kind: f.kind(in), Setup: make([]float64, len(f.t.Networks)), Closed: f.own.closed(in.device, len(f.t.Models))})
	}
	n := 2 * len(f.t.Models)
	if !opt.OneOpen {
		n *= len(f.instances)
	}
	s.joinable = slices.Repeat([]int32{-1}, n)
	s.state = NewState(&s.problem)
	s.state.loose = opt.Rule == FCFS || opt.Rule == EDF
	return s
}

// takeGroup returns an empty group of a served model: a free one, or a new one at the end.
func (s *grouping) take(model int32, mega bool) int32 {
	var g int32
	if n := len(s.spare); n > 0 {
		g = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		g = int32(len(s.groups))
		s.groups = append(s.groups, members{})
		s.problem.Groups = append(s.problem.Groups, Group{})
		for range s.problem.Kinds {
			s.problem.Costs = append(s.problem.Costs, Cost{})
		}
		s.state.where = append(s.state.where, -1)
	}
	x := &s.groups[g]
	*x = members{live: true, gen: x.gen + 1, model: model, mega: mega, first: -1, last: -1, joinable: -1}
	s.problem.Groups[g] = s.groupOf(model)
	return g
}

// emptyGroup returns the problem's entry for an empty group of a served model.
func (s *grouping) groupOf(model int32) Group {
	return Group{Model: s.network(model), Class: model, Priority: s.classes[model].priority}
}

// freeGroup frees a group that is in no queue and has no members.
func (s *grouping) give(g int32) {
	s.close(g)
	s.groups[g].live = false
	s.problem.Groups[g].Size = 0
	s.spare = append(s.spare, g)
}

// closeGroup ends that a group takes members.
func (s *grouping) close(g int32) {
	if at := s.groups[g].joinable; at >= 0 && s.joinable[at] == g {
		s.joinable[at] = -1
	}
}

// openGroup makes a group the open one at an index of openGroups.
func (s *grouping) setOpen(g, at int32) { s.joinable[at], s.groups[g].joinable = g, at }

// openGroupIndex returns the index in openGroups for a model in a queue.
func (s *grouping) joinableAt(q, model int32, mega bool) int32 {
	at := 2 * model
	if mega {
		at++
	}
	if !s.opt.OneOpen {
		at += 2 * int32(len(s.t.Models)) * q
	}
	return at
}

// maxMembers returns the largest number of members of a group of a model on a kind of device.
func (s *grouping) limit(model int32, mega bool, kind int32) int32 {
	if s.opt.Rule != Planned {
		return 1
	}
	batch := s.own.Estimator(s.problem.Kinds, model, mega, kind).Batch
	return max(int32(s.opt.Delta*batch), 1)
}

// updateGroup sets size, costs and deadlines of a group from its members. The deadlines between those of the first
// and the last member are taken as evenly spaced.
func (s *grouping) measure(g int32) {
	x, pg := &s.groups[g], &s.problem.Groups[g]
	pg.Size = float64(x.size)
	if x.size == 0 {
		return
	}
	from, to := seconds(s.requests[x.first].deadline), seconds(s.requests[x.last].deadline)
	for u := range pg.Deadline {
		pg.Deadline[u] = from + quantile[u]*(to-from)
	}
	s.price(g, x.size, x.prompts)
}

// setCosts sets the costs of a group of `size` requests with `prompts` prompt tokens in all, on every kind of
// device.
func (s *grouping) price(g, size int32, prompts int64) {
	x := &s.groups[g]
	for k := range s.problem.Kinds {
		c, r := s.problem.Cost(g, int32(k)), s.own.Estimator(s.problem.Kinds, x.model, x.mega, int32(k))
		if r.Batch == 0 {
			*c = Cost{Work: never}
			continue
		}
		n := float64(size)
		c.Work = r.Alpha*float64(prompts) + n*r.Beta*r.OutputMean
		c.Variance = r.Varies(n, c.Work) * (s.wide * s.wide)
		c.Residence, c.ResidenceVar = r.reach(s.classes[x.model].milestone)
	}
}

// joinGroup adds a request to a group that is in a queue.
func (s *grouping) enter(g, req int32) {
	s.add(g, req)
	s.measure(g)
	s.state.Grown(g)
}

// insertMember inserts a request into the members of a group, in their order.
func (s *grouping) add(g, req int32) {
	x, r := &s.groups[g], &s.requests[req]

	// Find its place from the end.
	after := x.last
	for after >= 0 && s.before(r, &s.requests[after]) {
		after = s.requests[after].prev
	}
	r.group, r.prev = g, after
	if after < 0 {
		r.next, x.first = x.first, req
	} else {
		r.next = s.requests[after].next
		s.requests[after].next = req
	}
	if r.next < 0 {
		x.last = req
	} else {
		s.requests[r.next].prev = req
	}

	// Count it, and add it to its client's line.
	s.joins, s.changes = s.joins+1, s.changes+1
	x.size++
	x.prompts += int64(r.prompt)
	s.lineUp(req)
}

// memberBefore reports whether request a is served before request b of the same group.
func (s *grouping) before(a, b *request) bool {
	if s.opt.Members == ByDeadline {
		return a.deadline < b.deadline
	}
	return a.arrived < b.arrived
}

// leaveGroup removes a request from its group and its client's line. A group that becomes empty is freed.
func (s *grouping) leave(req int32) {
	r := &s.requests[req]
	g := r.group
	if g < 0 {
		return
	}

	// Unlink the request.
	s.stepOut(req)
	x := &s.groups[g]
	if r.prev < 0 {
		x.first = r.next
	} else {
		s.requests[r.prev].next = r.next
	}
	if r.next < 0 {
		x.last = r.prev
	} else {
		s.requests[r.next].prev = r.prev
	}
	r.group, r.next, r.prev = -1, -1, -1

	// Update the group, or free it.
	s.changes++
	x.size--
	x.prompts -= int64(r.prompt)
	if x.size == 0 {
		s.problem.Groups[g].Size = 0
		s.state.Remove(g)
		s.give(g)
		return
	}
	s.measure(g)
	s.state.Grown(g)
}

// canRun reports whether a group can run in a queue.
func (s *grouping) runs(g, q int32) bool {
	def := &s.problem.Queues[q]
	return def.takes(&s.problem.Groups[g], s.problem.Cost(g, def.Kind))
}

// syncQueue updates the network, start and setup times of a queue of the problem to the current time.
func (s *grouping) situate(now time.Duration, q int32) {
	in, def := &s.instances[q], &s.problem.Queues[q]
	def.Model, def.Start = in.loaded, seconds(now)

	// If the batch is not full, members of the first groups can start at once.
	drain := 0.0
	if in.loaded >= 0 {
		model := s.someModel(in.loaded)
		drain = seconds(s.stay(in, model))
		if est := s.estimator(in, model, false); est.Batch > 0 && len(in.running) < int(est.Batch) {
			// Requests that fit into the batch start at once.
			each, _ := est.Work(1)
			def.Start -= (est.Batch - float64(len(in.running))) * each
		}
	}

	// While a network is loading, the queue starts when it is loaded.
	if in.coming >= 0 {
		def.Model = in.coming
		def.Start = max(def.Start, seconds(in.since+s.changeTime(in, in.coming)))
	}

	// Changes of network wait for the batch to drain.
	for n := range def.Setup {
		def.Setup[n] = drain + seconds(s.changeTime(in, int32(n)))
		if !in.up() || !s.may(in, int32(n)) {
			def.Setup[n] = never
		}
	}
}
