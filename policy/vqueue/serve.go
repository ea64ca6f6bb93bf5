package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// queueServer carries out the order of the queues: it pulls requests and changes networks.
type serving struct{ *grouping }

// serveQueue pulls requests of the head group of a queue into the running batch, changes the network, or evicts
// requests. It ends when the instance can do no more at this time.
func (s *serving) serve(now time.Duration, q int32, out *policy.Actions) {
	in := &s.instances[q]
	filling := s.ops.pull.fills(in)
	for in.up() && in.coming < 0 && in.evicting == 0 {
		// Choose the group: the head, or a more urgent one of another queue.
		g := s.head(in, q)
		if g < 0 {
			if g = s.borrowed(in); g < 0 {
				return
			}
		} else if in.loaded == s.problem.Groups[g].Model {
			g = s.sooner(now, in, q, g)
		}

		// Choose its request. Then change the network, evict requests, or dispatch it.
		req := s.turn(q, g)
		r := &s.requests[req]
		switch network := s.problem.Groups[g].Model; {
		case in.loaded != network && len(in.running) > 0:
			evicting{s.grouping}.clear(now, q, g, out)
			return
		case in.loaded != network:
			s.change(now, in, network, out)
			s.situate(now, q) // requests that arrive meanwhile join the queue of the network that is being loaded
			s.state.Moved(q)
			return
		case !filling:
			return
		case !s.room(in, r):
			evicting{s.grouping}.makeRoom(now, in, r, out)
			return
		case pricing{s.grouping}.pauses(now, q):
			return
		}
		s.dispatch(in, req, out)
	}
}

// headGroup returns the group that a queue serves next: the first one or, if its class is at its cap, the next of
// the loaded network that is not. If there is none, it returns -1.
func (s *serving) head(in *instance, q int32) int32 {
	first := s.state.First(q)
	if s.own.Caps == nil || first < 0 {
		return first
	}
	for _, x := range s.state.queues[q].slots {
		if x.model != in.loaded {
			break
		}
		if !s.capped(in, s.groups[x.group].model) {
			return x.group
		}
	}
	return first
}

// borrowedGroup returns the group that an instance with an empty queue serves from other queues without a change
// of network: the one with the highest priority, then the earliest deadline. If there is none, it returns -1.
// Groups whose first member has started before stay in their queue.
func (s *serving) borrowed(in *instance) int32 {
	best, first, rank := int32(-1), time.Duration(0), int32(0)
	if s.opt.Rule != Planned || !s.ops.balance.on || in.loaded < 0 || s.waiting() == 0 || s.stuffed(in) {
		return best
	}
	for q := s.state.filled.after(0); q >= 0; q = s.state.filled.after(q + 1) {
		for _, x := range s.state.queues[q].slots {
			if s.problem.Groups[x.group].Model != in.loaded || !s.runs(x.group, s.of[in.device]) {
				continue
			}
			r := &s.requests[s.groups[x.group].first]
			sooner := best < 0 || x.priority < rank || x.priority == rank && r.deadline < first
			if r.made == 0 && r.evictions == 0 && s.room(in, r) && sooner {
				best, first, rank = x.group, r.deadline, x.priority
			}
		}
	}
	return best
}

// moreUrgentHead returns the head of another queue that an instance serves before its own head: one with an
// earlier deadline that it can still meet here. If there is none, it returns ownHead. Without this rule a request
// would wait for its own instance while others of its network serve less urgent requests. Requests that have
// started before stay, as do those of other kinds of devices.
func (s *serving) sooner(now time.Duration, in *instance, q, own int32) int32 {
	if s.opt.Rule != Planned || !s.ops.balance.on || len(s.instances) == 1 {
		return own
	}
	first := &s.requests[s.groups[own].first]
	best, due := own, first.deadline
	for x := s.state.filled.after(0); x >= 0; x = s.state.filled.after(x + 1) {
		g := s.state.First(x)
		if g == own || s.problem.Groups[g].Model != in.loaded || s.problem.Groups[g].Priority > s.problem.Groups[own].Priority ||
			s.problem.Queues[x].Kind != s.problem.Queues[q].Kind {
			continue
		}
		r := &s.requests[s.groups[g].first]
		if r.deadline < due && r.made == 0 && r.evictions == 0 && r.deadline >= now+s.lead(in, r.model) && s.runs(g, q) && s.room(in, r) {
			best, due = g, r.deadline
		}
	}
	return best
}

// changeNetwork loads a network on an instance on which nothing runs.
func (s *serving) change(now time.Duration, in *instance, network int32, out *policy.Actions) {
	if in.failed {
		return
	}
	if in.loaded >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: in.loaded, Device: in.device})
	}
	in.loaded, in.coming, in.since = -1, network, now
	s.shifts++
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: in.device})
}

// dispatchRequest sends a waiting request to an instance.
func (s *serving) dispatch(in *instance, req int32, out *policy.Actions) {
	s.pass(req)
	s.leave(req)

	// Count it with its instance.
	slot, r := s.batchFor(req), &s.requests[req]
	r.instance = s.of[in.device]
	in.running = append(in.running, slot)
	in.counts[r.model]++
	r.taken = s.need(r)
	in.tokens += r.taken

	// Dispatch a batch of one task with one hop.
	pipeline := s.t.Models[r.model].FirstPipeline
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: r.model, Batch: slot, Size: 1,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, req)
	out.Hops = append(out.Hops, policy.Hop{Stage: s.t.Pipelines[pipeline].FirstStage, Device: in.device, Uplink: -1, Downlink: -1})
}

// removeBatch removes a batch from its instance and frees its slot. It returns the request and the instance's
// queue.
func (s *serving) unbatch(slot int32) (req, q int32) {
	req = s.batches[slot]
	r := &s.requests[req]
	q = r.instance
	in := &s.instances[q]
	if at := slices.Index(in.running, slot); at >= 0 {
		in.running = slices.Delete(in.running, at, at+1)
		in.counts[r.model]--
		in.tokens -= r.taken
		if r.evicting {
			r.evicting = false
			in.evicting--
		}
	}
	s.giveBatch(slot)
	return req, q
}
