package vqueue

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Policy serves request groups in the order of virtual queues, one per instance.
type Policy struct {
	t   *policy.Tables
	own *Tables
	opt Options

	requests  []request // by slot
	open      int
	groups    []members // by index of Problem.Groups
	spare     []int32   // groups that are free
	probe     int32     // the group by which places for a request are found
	instances []instance
	of        []int32 // by device: its instance; -1
	batches   []int32 // by slot: the request; -1
	slots     []int32 // batches that are free
	joinable  []int32 // open groups, see joinableAt
	turn      int     // of the next queue without Balancing

	problem  Problem
	state    *State
	orders   [][]int32 // to arrange a re-plan
	ticking  bool
	plans    int64
	homeless []int32
	pool     pool
}

// request is a request that the policy has.
type request struct {
	open                bool
	model               int32
	group               int32 // it waits in; -1
	batch               int32 // it runs in; -1
	next, prev          int32 // in its group
	prompt, limit, made int32
	evictions           int8
	evicting            bool // it was asked to leave its instance
	homeless            bool // no instance that could serve it is up
	pooled              bool // it waits in the pool
	arrived, deadline   time.Duration
}

// members is what is in a group beside Problem.Groups.
type members struct {
	live        bool
	gen         int32 // counts uses of the index
	model       int32
	mega        bool
	first, last int32 // requests
	size        int32
	prompts     int64
}

// instance is a server.
type instance struct {
	device   int32
	down     bool
	loaded   int32 // network; -1
	coming   int32 // network that is being loaded; -1
	since    time.Duration
	failed   bool    // the last load failed: it is tried again at the next tick
	running  []int32 // batch slots
	tokens   int64   // of KV memory that they may take
	evicting int
	chosen   int32 // network that it was loaded for under the rule Shepherd; -1
	full     int32 // running batches at which the server refused one; 0: never
	sequences,
	kv int64
}

// New makes the policy of a plan.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	own := Of(t)
	if own == nil {
		return nil, &formats.Error{Path: "queue.estimates", Found: "none", Expected: "one for each model of an instance on its device", Hint: "policy balance needs none"}
	}
	if err := own.check(t); err != nil {
		return nil, err
	}
	if opt.Delta == 0 {
		opt.Delta = 4
	}
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	if opt.Objective == (Objective{}) {
		opt.Objective = Recommended
	}
	p := &Policy{t: t, own: own, opt: opt, of: make([]int32, len(t.Devices))}
	p.problem = Problem{Kinds: len(t.Kinds), Models: len(t.Networks), Objective: opt.Objective}
	for d := range t.Devices {
		p.of[d] = -1
		at := t.InstanceOf(int32(d))
		if at < 0 {
			continue
		}
		p.of[d] = int32(len(p.instances))
		in := instance{device: int32(d), loaded: -1, coming: -1, chosen: -1, sequences: int64(t.Instances[at].Sequences), kv: t.Instances[at].KV}
		if r := t.Resident[d]; len(r) > 0 {
			in.loaded = r[0]
		}
		p.instances = append(p.instances, in)
		p.problem.Queues = append(p.problem.Queues, Queue{Kind: t.Devices[d].Kind, Setup: make([]float64, len(t.Networks))})
	}
	p.orders = make([][]int32, len(p.instances))
	n := 2 * len(t.Models)
	if !opt.OneOpen {
		n *= len(p.instances)
	}
	p.joinable = slices.Repeat([]int32{-1}, n)
	p.pool = make(pool, len(t.Networks))
	p.state = NewState(&p.problem)
	p.probe = p.takeGroup(0, false)
	p.sync(0)
	return p, nil
}

// Handle implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.BatchFinished:
		p.finished(now, ev, out)
	case policy.BatchReturned:
		p.returned(now, ev, out)
	case policy.TokenProgress:
		p.requests[p.batches[ev.Batch]].made = ev.Tokens
	case policy.NetworkLoaded:
		p.loaded(now, ev, out)
	case policy.WorkerLost:
		p.lost(now, ev.Device, out)
	case policy.WorkerBack:
		p.back(now, ev, out)
	case policy.ReplanResult:
		p.replanned(now, ev.List, out)
	case policy.Cancel:
		if p.requests[ev.Req].open {
			p.drop(ev.Req, policy.ReasonCancelled, out)
		}
	case policy.Timer:
		p.tick(now, out)
	}
	if p.opt.Rule == Shepherd {
		p.assign(now, out)
	}
}

// Open is the number of requests that the policy has.
func (p *Policy) Open() int { return p.open }

func (p *Policy) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	for int(ev.Req) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}
	p.requests[ev.Req] = request{open: true, model: ev.Model, group: -1, batch: -1, next: -1, prev: -1,
		prompt: ev.Tokens, limit: ev.Limit, arrived: ev.Arrived, deadline: ev.Deadline}
	p.open++
	if !p.ticking {
		p.ticking = true
		p.sync(now)
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + p.opt.Every})
	}
	q := p.join(now, ev.Req, -1)
	if q < 0 {
		return
	}
	p.serve(now, q, out)
	for i := range p.instances {
		if p.requests[ev.Req].batch < 0 && p.state.First(int32(i)) < 0 {
			p.serve(now, int32(i), out)
		}
	}
}

// drop ends a request that does not run.
func (p *Policy) drop(req int32, why policy.Reason, out *policy.Actions) {
	p.leave(req)
	p.unpool(req)
	if r := &p.requests[req]; r.homeless {
		r.homeless = false
		p.homeless = slices.DeleteFunc(p.homeless, func(h int32) bool { return h == req })
	}
	p.requests[req].open = false
	p.open--
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: why})
}

// unbatch frees a batch slot and what its request took of the instance.
func (p *Policy) unbatch(slot int32) (req, q int32) {
	req = p.batches[slot]
	r := &p.requests[req]
	for i := range p.instances {
		in := &p.instances[i]
		if at := slices.Index(in.running, slot); at >= 0 {
			in.running = slices.Delete(in.running, at, at+1)
			in.tokens -= p.need(r)
			if r.evicting {
				r.evicting = false
				in.evicting--
			}
			q = int32(i)
			break
		}
	}
	p.batches[slot], r.batch = -1, -1
	p.slots = append(p.slots, slot)
	return req, q
}

func (p *Policy) finished(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.unbatch(ev.Batch)
	if r := &p.requests[req]; r.open {
		r.open = false
		p.open--
	}
	p.serve(now, q, out)
}

// returned takes back a request that has no answer yet.
func (p *Policy) returned(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.unbatch(ev.Batch)
	in, r := &p.instances[q], &p.requests[req]
	if len(ev.List) > 0 {
		r.made = ev.List[0]
	}
	switch policy.Return(ev.Value) {
	case policy.ReturnEvicted:
		r.evictions++
	case policy.ReturnFull:
		in.full = int32(len(in.running))
	case policy.ReturnNotLoaded:
		in.loaded = -1
	}
	if r.open {
		p.join(now, req, q)
	}
	if policy.Return(ev.Value) == policy.ReturnEvicted {
		p.serve(now, q, out)
	} // what refuses or fails is asked again at the next event or tick
}

func (p *Policy) loaded(now time.Duration, ev *policy.Event, out *policy.Actions) {
	q := p.of[ev.Device]
	if q < 0 || p.instances[q].coming != ev.Network {
		return
	}
	in := &p.instances[q]
	in.coming = -1
	if ev.Value != 0 {
		in.failed, in.chosen = true, -1
		return
	}
	in.loaded = ev.Network
	p.serve(now, q, out)
}

func (p *Policy) lost(now time.Duration, device int32, out *policy.Actions) {
	q := p.of[device]
	if q < 0 {
		return
	}
	in := &p.instances[q]
	in.down, in.loaded, in.coming, in.chosen, in.full = true, -1, -1, -1, 0
	p.sync(now)
	for len(in.running) > 0 {
		slot := in.running[len(in.running)-1]
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: slot})
		req, _ := p.unbatch(slot)
		p.requests[req].made = 0
		if p.requests[req].open {
			p.join(now, req, -1)
		}
	}
	p.scatter(now, q)
	for i := range p.instances {
		p.serve(now, int32(i), out)
	}
}

// scatter gives the requests of a queue to others.
func (p *Policy) scatter(now time.Duration, q int32) {
	var waiting []int32
	for _, x := range p.state.queues[q].slots {
		for req := p.groups[x.group].first; req >= 0; req = p.requests[req].next {
			waiting = append(waiting, req)
		}
	}
	for _, req := range waiting {
		p.leave(req)
	}
	for _, req := range waiting {
		p.join(now, req, -1)
	}
}

func (p *Policy) back(now time.Duration, ev *policy.Event, out *policy.Actions) {
	q := p.of[ev.Device]
	if q < 0 {
		return
	}
	in := &p.instances[q]
	in.down, in.failed = false, false
	if r := p.t.Resident[ev.Device]; len(r) > 0 && len(in.running) == 0 && in.coming < 0 {
		in.loaded = r[0]
	}
	if ev.Value > 0 {
		in.sequences = ev.Value
	}
	if ev.Limit > 0 {
		in.kv = int64(ev.Limit)
	}
	p.sync(now)
	waiting := p.homeless
	p.homeless = nil
	for _, req := range waiting {
		p.requests[req].homeless = false
		p.join(now, req, -1)
	}
	p.serve(now, q, out)
}

// tick looks after all queues, and asks for a re-plan.
func (p *Policy) tick(now time.Duration, out *policy.Actions) {
	p.dropLate(now, out)
	if p.ticking = p.open > 0; !p.ticking {
		return
	}
	p.sync(now)
	for i := range p.instances {
		p.instances[i].failed, p.instances[i].full = false, 0
		p.serve(now, int32(i), out)
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + p.opt.Every})
	if p.opt.Rule == Planned && !p.opt.Still && (!p.opt.OnViolation || p.violation()) {
		out.List = append(out.List, policy.Action{Kind: policy.Replan})
	}
}

// dropLate drops requests past their deadlines that no instance can serve, and with
// admission all that wait.
func (p *Policy) dropLate(now time.Duration, out *policy.Actions) {
	for i := len(p.homeless) - 1; i >= 0; i-- {
		if req := p.homeless[i]; p.requests[req].deadline <= now {
			p.drop(req, policy.ReasonWorkerLost, out)
		}
	}
	p.dropStuck(now, out)
	if !p.opt.Admission {
		return
	}
	for i := range p.requests {
		if r := &p.requests[i]; r.open && r.batch < 0 && r.deadline <= now {
			p.drop(int32(i), policy.ReasonDeadline, out)
		}
	}
}

// violation tells whether any violation of a deadline is likely.
func (p *Policy) violation() bool { return p.state.expectsLate(0.5) }

// seconds is a time as the problem has it.
func seconds(t time.Duration) float64 { return float64(t) / float64(time.Second) }

// never is a cost that rules a choice out.
var never = math.Inf(1)
