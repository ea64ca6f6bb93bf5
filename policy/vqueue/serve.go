package vqueue

import (
	"time"

	"inferplan/policy"
)

// need is the KV memory that a request is counted with, in tokens: its prompt and
// the mean answer, or what it has made if that is more.
func (p *Policy) need(r *request) int64 {
	out := int32(p.own.RCT[2*int(r.model)*p.problem.Kinds].OutputMean)
	if r.limit > 0 {
		out = min(out, r.limit)
	}
	return int64(r.prompt) + int64(out)
}

// most is how many requests of a model run at once on an instance.
func (p *Policy) most(in *instance, model int32) int64 {
	most, _ := p.holds(in, p.network(model))
	if kind := p.t.Devices[in.device].Kind; p.own.Sequences != nil {
		if own := p.own.Sequences[int(model)*p.problem.Kinds+int(kind)]; own > 0 {
			return min(most, int64(own))
		}
	}
	return most
}

// holds is how many sequences and tokens of KV memory an instance takes with a
// network: the server's figures where the tables have them, else what it last told.
func (p *Policy) holds(in *instance, network int32) (sequences, kv int64) {
	if server := p.t.Instances[p.t.InstanceOf(in.device)].Server; server != nil {
		c := &server.Costs[network]
		return int64(c.Sequences), c.KV
	}
	return in.sequences, in.kv
}

// room tells whether an instance takes one more request.
func (p *Policy) room(in *instance, r *request) bool {
	n, most := int64(len(in.running)), p.most(in, r.model)
	switch {
	case n == 0:
		return true
	case in.full > 0 && n >= int64(in.full):
		return false
	}
	_, kv := p.holds(in, p.network(r.model))
	return n < most && (kv == 0 || in.tokens+p.need(r) <= kv)
}

// serve does what the head of a queue asks for: it pulls requests into the running
// batch, changes the model, or evicts.
func (p *Policy) serve(now time.Duration, q int32, out *policy.Actions) {
	in := &p.instances[q]
	filling := !p.opt.Without[Pulling] || len(in.running) == 0
	for !in.down && in.coming < 0 && in.evicting == 0 {
		g := p.state.First(q)
		if g < 0 {
			if g = p.borrowed(in); g < 0 {
				return
			}
		}
		req := p.groups[g].first
		r := &p.requests[req]
		switch network := p.problem.Groups[g].Model; {
		case in.loaded != network && len(in.running) > 0:
			p.clear(now, q, g, out)
			return
		case in.loaded != network:
			p.change(now, in, network, out)
			return
		case !filling:
			return
		case !p.room(in, r):
			p.makeRoom(now, in, r, out)
			return
		}
		p.dispatch(in, req, out)
	}
}

// borrowed is the group with the earliest deadline among those of other queues that
// an instance with an empty queue can serve as it is; -1: none. Nobody who runs
// already comes along: first members that have an answer in part stay.
func (p *Policy) borrowed(in *instance) int32 {
	best, first := int32(-1), time.Duration(0)
	if p.opt.Rule != Planned || p.opt.Without[Balancing] || in.loaded < 0 {
		return best
	}
	for q := range p.instances {
		for _, x := range p.state.queues[q].slots {
			if p.problem.Groups[x.group].Model != in.loaded || !p.runs(x.group, p.of[in.device]) {
				continue
			}
			r := &p.requests[p.groups[x.group].first]
			if r.made == 0 && r.evictions == 0 && p.room(in, r) && (best < 0 || r.deadline < first) {
				best, first = x.group, r.deadline
			}
		}
	}
	return best
}

// change brings a network to an instance that runs nothing.
func (p *Policy) change(now time.Duration, in *instance, network int32, out *policy.Actions) {
	if in.failed {
		return
	}
	if in.loaded >= 0 {
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: in.loaded, Device: in.device})
	}
	in.loaded, in.coming, in.since = -1, network, now
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: network, Device: in.device})
}

// dispatch sends the first request of the head group.
func (p *Policy) dispatch(in *instance, req int32, out *policy.Actions) {
	r := &p.requests[req]
	slot := int32(len(p.batches))
	if n := len(p.slots); n > 0 {
		slot = p.slots[n-1]
		p.slots = p.slots[:n-1]
		p.batches[slot] = req
	} else {
		p.batches = append(p.batches, req)
	}
	p.leave(req)
	r.batch = slot
	in.running = append(in.running, slot)
	in.tokens += p.need(r)
	pipeline := p.t.Models[r.model].FirstPipeline
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: r.model, Batch: slot, Size: 1,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, req)
	out.Hops = append(out.Hops, policy.Hop{Stage: p.t.Pipelines[pipeline].FirstStage, Device: in.device, Uplink: -1, Downlink: -1})
}

// The rule of eviction for a head of the model that is loaded: the head may still
// be in time, and what leaves has long to go.
const (
	headHope     = 0.6 // of its residence: how late the head may be
	headHurry    = 4 * time.Second
	victimAfter  = 60 * time.Second
	victimSpare  = 3 // residences
	mostEvicted  = 3
	switchFactor = 1.5 // how much more a change must gain than it loses
)

// makeRoom evicts the request with the latest deadline for a head that hurries.
func (p *Policy) makeRoom(now time.Duration, in *instance, head *request, out *policy.Actions) {
	if p.opt.Rule != Planned || p.opt.Without[Eviction] || p.opt.Without[Pulling] {
		return
	}
	stay := p.stay(in, head.model)
	slack := head.deadline - now - stay
	if slack > headHurry || float64(slack) < -headHope*float64(stay) {
		return
	}
	victim, latest := int32(-1), max(head.deadline+victimAfter, now+victimSpare*stay)
	for _, slot := range in.running {
		if r := &p.requests[p.batches[slot]]; r.open && r.evictions < mostEvicted && r.deadline > latest {
			victim, latest = slot, r.deadline
		}
	}
	if victim >= 0 {
		p.evict(in, victim, out)
	}
}

// stay is the residence of a model's requests on an instance.
func (p *Policy) stay(in *instance, model int32) time.Duration {
	mean, _ := p.own.Estimator(p.problem.Kinds, model, false, p.t.Devices[in.device].Kind).Residence(1)
	return time.Duration(mean * float64(time.Second))
}

func (p *Policy) evict(in *instance, slot int32, out *policy.Actions) {
	in.evicting++
	p.requests[p.batches[slot]].evicting = true
	keep := int32(1)
	if p.opt.Without[StateSwap] {
		keep = 0
	}
	out.List = append(out.List, policy.Action{Kind: policy.Evict, Batch: slot, Device: in.device, Tag: keep})
}

// clear evicts all that runs for a head of another model, where that brings clearly
// more requests in time than it makes late. Otherwise the batch runs out.
func (p *Policy) clear(now time.Duration, q, head int32, out *policy.Actions) {
	if p.opt.Rule != Planned || p.opt.Without[Eviction] || p.opt.Without[Pulling] {
		return
	}
	in, x := &p.instances[q], &p.groups[head]
	stay, load := p.stay(in, x.model), p.loadTime(in, p.problem.Groups[head].Model)
	drain, worst := time.Duration(0), 0
	for _, slot := range in.running {
		r := &p.requests[p.batches[slot]]
		drain = max(drain, p.stay(in, r.model))
		if r.evictions >= mostEvicted {
			return
		}
	}
	again := now + 2*load + stay + drain
	for _, slot := range in.running {
		if r := &p.requests[p.batches[slot]]; r.deadline > now && r.deadline < again {
			worst++
		}
	}
	gain, done := 0, now+load+stay
	kind := p.t.Devices[in.device].Kind
	est := p.own.Estimator(p.problem.Kinds, x.model, x.mega, kind)
	each, _ := est.Work(1)
	for req, n := x.first, 0; req >= 0; req, n = p.requests[req].next, n+1 {
		at := done + time.Duration(est.Wait(each*float64(n))*float64(time.Second))
		if d := p.requests[req].deadline; d >= at && d < at+drain {
			gain++
		}
	}
	if float64(gain) <= switchFactor*float64(worst)+1 {
		return
	}
	for _, slot := range in.running {
		p.evict(in, slot, out)
	}
}

// loadTime is how long a network takes to load.
func (p *Policy) loadTime(in *instance, network int32) time.Duration {
	tier := 0
	if p.opt.Without[WarmStart] {
		tier = 1
	}
	load := p.t.Networks[network].Load
	if kind := int(p.t.Devices[in.device].Kind); kind < len(load) {
		return load[kind][tier]
	}
	return 0
}
