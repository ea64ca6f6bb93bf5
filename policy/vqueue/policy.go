package vqueue

import (
	"context"
	"math"
	"slices"
	"time"

	"inferplan/formats/document"
	"inferplan/policy"
)

// Policy serves request groups in the order of virtual queues, one per instance. It implements policy.Policy.
type Policy struct {
	*grouping
	place placing
	run   *serving
	plan  planning
	learn following
	pool  Dispatcher // nil if requests wait in queues
	scale Scaler     // nil if all instances are always on
	ticks ticks
}

// New returns the policy of a plan. If the plan has no estimators or asks for something that the policy cannot do,
// it returns an error.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	own := Of(t)
	if own == nil {
		return nil, &document.Error{Path: "queue.estimates", Found: "none", Expected: "one for each model of an instance on its device", Hint: "policy balance needs none"}
	}
	if err := own.check(t); err != nil {
		return nil, err
	}

	// Options that change tables get a copy of them.
	if opt.Only != nil {
		parted := *own
		parted.Only = opt.Only
		own = &parted
	}
	if opt.Dispatch != nil {
		opt.Rule = byDispatcher
	}
	if opt.Follow {
		learns := *own
		learns.RCT = slices.Clone(own.RCT)
		own = &learns
	}

	// Set the defaults.
	if opt.Delta == 0 {
		opt.Delta = 4
	}
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	if opt.Objective == (Objective{}) {
		opt.Objective = Recommended
	}

	// Make the parts, which share the group table.
	p := &Policy{grouping: newGrouping(newFleet(t, own, newOperations(&opt)), opt), ticks: ticks{every: opt.Every}}
	p.run = &serving{p.grouping}
	p.place, p.plan = newPlacing(p.grouping), newPlanning(p.grouping)
	p.learn = newFollowing(p.grouping)
	if opt.Dispatch != nil {
		p.pool = opt.Dispatch(&Servers{p.run})
	}
	if opt.Scale != nil {
		p.scale = opt.Scale(&Servers{p.run})
	}
	p.plan.sync(0)
	return p, nil
}

// Handle handles an event. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	// Events of instances make the next tick come soon.
	first := len(out.List)
	switch ev.Kind {
	case policy.Arrival, policy.Cancel, policy.ReplanResult, policy.Timer:
	default:
		p.ticks.act(now, out)
	}
	switch ev.Kind {
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.BatchFinished:
		p.finished(now, ev, out)
	case policy.BatchReturned:
		p.returned(now, ev, out)
	case policy.TokenProgress:
		if q := p.of[ev.Device]; q >= 0 {
			p.learn.made(q, p.batches[ev.Batch], ev.Tokens)
		}
	case policy.NetworkLoaded:
		p.loaded(now, ev, out)
	case policy.WorkerLost:
		p.lost(now, ev.Device, out)
	case policy.WorkerBack:
		p.back(now, ev, out)
	case policy.ReplanResult:
		if p.plan.ended(ev.List) {
			p.serveAll(now, out)
		}
	case policy.Cancel:
		if p.requests[ev.Req].open {
			p.drop(ev.Req, policy.ReasonCancelled, out)
		}
	case policy.Timer:
		p.tick(now, out)
	}

	// A dispatcher decides after every event. The calibrator observes the starts.
	if p.pool != nil {
		p.pool.Assign(now, out)
	}
	p.learn.started(now, out, first)
}

// Search returns a search for a better order. It implements policy.Searcher.
func (p *Policy) Search(time.Duration, int32) func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	return p.plan.search()
}

// OpenRequests returns the number of open requests.
func (p *Policy) Open() int { return p.open }

// handleArrival adds a request, unless the queue is full, and serves it if an instance is free.
func (p *Policy) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.note(ev, p.classes[ev.Model].due(ev))
	if !p.ticks.on {
		p.plan.sync(now)
		p.ticks.begin(now, out)
	}
	if ev.Value != 1 && p.full() {
		p.drop(ev.Req, policy.ReasonQueueFull, out)
		return
	}

	// Serve its instance, then instances with an empty queue, which may borrow it.
	q := p.join(ev.Req, -1)
	if q < 0 {
		return
	}
	p.run.serve(now, q, out)
	for i := range p.instances {
		if p.requests[ev.Req].batch < 0 && p.state.First(int32(i)) < 0 {
			p.run.serve(now, int32(i), out)
		}
	}
}

// queueFull reports whether more requests wait than the limit allows, with the new one.
func (p *Policy) full() bool {
	return p.opt.QueueLimit > 0 && p.waiting() > p.opt.QueueLimit
}

// enqueue adds a waiting request to a queue, or to the dispatcher's list, see placer.placeRequest.
func (p *Policy) join(req, home int32) int32 {
	if p.pool != nil {
		p.pool.Await(req)
		return -1
	}
	return p.place.join(req, home)
}

// dropRequest drops a request that does not run.
func (p *Policy) drop(req int32, why policy.Reason, out *policy.Actions) {
	p.leave(req)
	if p.pool != nil {
		p.pool.Forget(req)
	}
	p.unstrand(req)
	p.end(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: why})
}

// handleFinish closes an answered request and serves its instance.
func (p *Policy) finished(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.run.unbatch(ev.Batch)
	if p.pool != nil {
		p.pool.Ended(now, req)
	}
	p.learn.answered(q, req, ev.Tokens)
	p.end(req)
	p.run.serve(now, q, out)
	p.learn.look(now, q)
}

// handleReturn takes back a request that has no answer yet: it waits again, in the queue of its instance.
func (p *Policy) returned(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.run.unbatch(ev.Batch)
	in, r := &p.instances[q], &p.requests[req]
	if len(ev.List) > 0 {
		r.made = ev.List[0]
	}

	// Note why it came back.
	switch policy.Return(ev.Value) {
	case policy.ReturnEvicted:
		r.evictions++
	case policy.ReturnFull:
		in.full = int32(len(in.running))
	case policy.ReturnNotLoaded:
		in.loaded = -1
		p.shifts++
	}

	// Let it wait again, unless it was dropped meanwhile.
	if r.open {
		p.join(req, q)
	}
	if policy.Return(ev.Value) == policy.ReturnEvicted {
		p.run.serve(now, q, out)
	}
	p.learn.look(now, q) // an instance that refused or failed is asked again at the next event or tick
}

// handleLoaded notes that a network is loaded on an instance, or that the load failed, and serves the instance.
func (p *Policy) loaded(now time.Duration, ev *policy.Event, out *policy.Actions) {
	q := p.of[ev.Device]
	if q < 0 || p.instances[q].coming != ev.Network {
		return
	}
	in := &p.instances[q]
	in.coming = -1
	p.shifts++
	if ev.Value != 0 {
		in.failed = true
		return
	}
	in.loaded = ev.Network
	p.run.serve(now, q, out)
	p.learn.look(now, q)
}

// handleLoss requeues the requests of a lost instance: those of its batches, and those of its queue.
func (p *Policy) lost(now time.Duration, device int32, out *policy.Actions) {
	q := p.of[device]
	if q < 0 {
		return
	}
	in := &p.instances[q]
	in.down, in.loaded, in.coming, in.full = true, -1, -1, 0
	p.shifts++
	p.plan.sync(now)

	// Abort its batches.
	for len(in.running) > 0 {
		slot := in.running[len(in.running)-1]
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: slot})
		req, _ := p.run.unbatch(slot)
		p.requests[req].made = 0
		if p.requests[req].open {
			p.join(req, -1)
		}
	}

	// Redistribute its queue, and serve the others.
	p.scatter(q)
	p.learn.look(now, q)
	p.serveAll(now, out)
}

// redistributeQueue moves the requests of a queue to other queues.
func (p *Policy) scatter(q int32) {
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
		p.join(req, -1)
	}
}

// handleRecovery returns an instance to service, with the limits that its server reports, and serves it.
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
	p.shifts++
	p.plan.sync(now)
	p.house()
	p.run.serve(now, q, out)
}

// requeueUnplaced enqueues again all requests that no instance could serve.
func (p *Policy) house() {
	waiting := p.homeless
	p.homeless = nil
	for _, req := range waiting {
		p.requests[req].homeless = false
		p.join(req, -1)
	}
}

// serveAll serves every queue.
func (p *Policy) serveAll(now time.Duration, out *policy.Actions) {
	for i := range p.instances {
		p.run.serve(now, int32(i), out)
	}
}

// handleTick drops late requests, updates estimators and the problem, serves all queues, and asks for a re-plan.
func (p *Policy) tick(now time.Duration, out *policy.Actions) {
	p.dropLate(now, out)
	grown := p.scale != nil && p.scale.Tick(now, p.violation(now))
	if p.ticks.on = p.open > 0 || p.scale != nil && p.scale.More(); !p.ticks.on {
		return
	}

	// Update estimators and the problem.
	p.learn.tick(now)
	p.plan.sync(now)
	if grown {
		p.shifts++
		p.house()
	}
	if p.pool != nil {
		p.pool.Tick(now)
	}

	// Serve all queues, also of instances that failed or refused.
	for i := range p.instances {
		p.instances[i].failed, p.instances[i].full = false, 0
		p.run.serve(now, int32(i), out)
	}

	// Schedule the next tick and a re-plan.
	p.ticks.again(now, p.pool == nil && p.scale == nil && len(p.homeless) == 0, out)
	if p.opt.Rule == Planned && !p.opt.Still && (!p.opt.OnViolation || p.plan.violation()) && p.plan.due() {
		out.List = append(out.List, policy.Action{Kind: policy.Replan})
	}
}

// violationLikely reports whether some request is likely to be late.
func (p *Policy) violation(now time.Duration) bool {
	return len(p.homeless) > 0 || p.plan.violation() || p.pool != nil && p.pool.Violation(now)
}

// dropLate drops requests past their deadlines that no instance can serve and, with DropLate, all late ones that
// wait.
func (p *Policy) dropLate(now time.Duration, out *policy.Actions) {
	for i := len(p.homeless) - 1; i >= 0; i-- {
		if r := &p.requests[p.homeless[i]]; r.deadline <= now && !r.promised {
			p.drop(p.homeless[i], policy.ReasonWorkerLost, out)
		}
	}
	for req := p.stuck(now); req >= 0; req = p.stuck(now) {
		p.drop(req, policy.ReasonWorkerLost, out)
	}
	if !p.opt.Admission {
		return
	}
	for i := range p.requests {
		if r := &p.requests[i]; r.open && r.batch < 0 && r.deadline <= now {
			p.drop(int32(i), policy.ReasonDeadline, out)
		}
	}
}

// stuckRequest returns a request of the dispatcher that is past its deadline and that no instance which is up can
// serve. If there is none, it returns -1.
func (p *Policy) stuck(now time.Duration) int32 {
	if p.pool == nil {
		return -1
	}
	return p.pool.Stuck(now)
}

// toSeconds converts a time to the seconds of the problem.
func seconds(t time.Duration) float64 { return float64(t) / float64(time.Second) }

// infiniteCost is a cost that rules a choice out.
var never = math.Inf(1)
