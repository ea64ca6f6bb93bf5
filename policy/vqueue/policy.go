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
	fleet      *instanceFleet
	requests   *requestTable
	groups     *groupTable
	placer     placer
	server     *queueServer
	replanner  replanner
	calibrator calibrator
	dispatcher Dispatcher // nil if requests wait in queues
	scaler     Scaler     // nil if all instances are always on
	ticks      tickSchedule
}

// New returns the policy of a plan. If the plan has no estimators or asks for something that the policy cannot do,
// it returns an error.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	queueTables := TablesOf(t)
	if queueTables == nil {
		return nil, &document.Error{Path: "queue.estimates", Found: "none", Expected: "one for each model of an instance on its device", Hint: "policy balance needs none"}
	}
	if err := queueTables.validate(t); err != nil {
		return nil, err
	}

	// Options that change tables get a copy of them.
	if opt.AllowedDevices != nil {
		restricted := *queueTables
		restricted.AllowedDevices = opt.AllowedDevices
		queueTables = &restricted
	}
	if opt.NewDispatcher != nil {
		opt.Rule = byDispatcher
	}
	if opt.FollowInstances {
		following := *queueTables
		following.RCT = slices.Clone(queueTables.RCT)
		queueTables = &following
	}

	// Set the defaults.
	if opt.GroupBatches == 0 {
		opt.GroupBatches = 4
	}
	if opt.ReplanInterval == 0 {
		opt.ReplanInterval = time.Second
	}
	if opt.Objective == (Objective{}) {
		opt.Objective = RecommendedObjective
	}

	// Make the parts, which share instances, requests and groups.
	groups := newGroupTable(newInstanceFleet(t, queueTables, newLSOSet(&opt)), opt)
	p := &Policy{fleet: groups.fleet, requests: groups.requests, groups: groups, ticks: tickSchedule{interval: opt.ReplanInterval}}
	p.server = newQueueServer(groups)
	p.placer, p.replanner = newPlacer(groups), newReplanner(groups)
	p.calibrator = newCalibrator(groups)
	if opt.NewDispatcher != nil {
		p.dispatcher = opt.NewDispatcher(&InstanceControl{fleet: p.fleet, requests: p.requests, server: p.server})
	}
	if opt.NewScaler != nil {
		p.scaler = opt.NewScaler(&InstanceControl{fleet: p.fleet, requests: p.requests, server: p.server})
	}
	p.replanner.syncProblem(0)
	return p, nil
}

// Handle handles an event of the run, such as an arrival or the end of a request, and appends the actions that it
// decides on. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	// Events of instances make the next tick come soon.
	firstAction := len(out.List)
	switch ev.Kind {
	case policy.Arrival, policy.Cancel, policy.ReplanResult, policy.Timer:
	default:
		p.ticks.noteActivity(now, out)
	}
	switch ev.Kind {
	case policy.Arrival:
		p.handleArrival(now, ev, out)
	case policy.BatchFinished:
		p.handleFinish(now, ev, out)
	case policy.BatchReturned:
		p.handleReturn(now, ev, out)
	case policy.TokenProgress:
		if q := p.fleet.instanceOf[ev.Device]; q >= 0 {
			p.calibrator.observeTokens(q, p.requests.batchRequests[ev.Batch], ev.Tokens)
		}
	case policy.NetworkLoaded:
		p.handleLoaded(now, ev, out)
	case policy.WorkerLost:
		p.handleLoss(now, ev.Device, out)
	case policy.WorkerBack:
		p.handleRecovery(now, ev, out)
	case policy.ReplanResult:
		if p.replanner.handleResult(ev.List) {
			p.serveAll(now, out)
		}
	case policy.Cancel:
		if p.requests.bySlot[ev.Req].open {
			p.dropRequest(ev.Req, policy.ReasonCancelled, out)
		}
	case policy.Timer:
		p.handleTick(now, out)
	}

	// A dispatcher decides after every event. The calibrator observes the starts.
	if p.dispatcher != nil {
		p.dispatcher.AssignRequests(now, out)
	}
	p.calibrator.observeStarts(now, out, firstAction)
}

// Search returns a search for a better order. It implements policy.Searcher.
func (p *Policy) Search(time.Duration, int32) func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	return p.replanner.newSearch().run
}

// handleArrival adds a request, unless the queue is full, and serves it if an instance is free. Value 1 of the
// event means that an answer was promised already, so the request is not refused. The first request starts the
// ticks.
func (p *Policy) handleArrival(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.requests.addRequest(ev, p.fleet.classes[ev.Model].dueAt(ev))
	if !p.ticks.pending {
		p.replanner.syncProblem(now)
		p.ticks.startTicks(now, out)
	}
	if ev.Value != 1 && p.queueFull() {
		p.dropRequest(ev.Req, policy.ReasonQueueFull, out)
		return
	}

	// Serve its instance, then instances with an empty queue, which may borrow it.
	q := p.enqueue(ev.Req, -1)
	if q < 0 {
		return
	}
	p.server.serveQueue(now, q, out)
	for i := range p.fleet.instances {
		if p.requests.bySlot[ev.Req].batch < 0 && p.groups.assignment.Head(int32(i)) < 0 {
			p.server.serveQueue(now, int32(i), out)
		}
	}
}

// queueFull reports whether more requests wait than the limit allows, with the new one.
func (p *Policy) queueFull() bool {
	return p.groups.options.QueueLimit > 0 && p.requests.waitingRequests() > p.groups.options.QueueLimit
}

// enqueue adds a waiting request to a queue and returns it (-1 if no instance can serve the request), see
// placer.placeRequest. With a dispatcher, which decides itself, it is added to its list instead.
func (p *Policy) enqueue(req, stateQueue int32) int32 {
	if p.dispatcher != nil {
		p.dispatcher.AddWaiting(req)
		return -1
	}
	return p.placer.placeRequest(req, stateQueue)
}

// dropRequest drops a request that waits or is unplaced: it leaves its group and is closed. A running request is
// not dropped this way.
func (p *Policy) dropRequest(req int32, reason policy.DropReason, out *policy.Actions) {
	p.groups.leaveGroup(req)
	if p.dispatcher != nil {
		p.dispatcher.RemoveWaiting(req)
	}
	p.requests.unmarkUnplaced(req)
	p.requests.closeRequest(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Reason: reason})
}

// handleFinish closes the request whose answer a batch has brought, and serves its instance, which has a free place
// now.
func (p *Policy) handleFinish(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.server.removeBatch(ev.Batch)
	if p.dispatcher != nil {
		p.dispatcher.RequestEnded(now, req)
	}
	p.calibrator.observeAnswer(q, req, ev.Tokens)
	p.requests.closeRequest(req)
	p.server.serveQueue(now, q, out)
	p.calibrator.observeLoad(now, q)
}

// handleReturn takes back a request that comes back from its instance without an answer, because it was evicted,
// refused, or failed. It waits again, in the queue of that instance, where its state may be.
func (p *Policy) handleReturn(now time.Duration, ev *policy.Event, out *policy.Actions) {
	req, q := p.server.removeBatch(ev.Batch)
	in, r := &p.fleet.instances[q], &p.requests.bySlot[req]
	if len(ev.List) > 0 {
		r.producedTokens = ev.List[0]
	}

	// Note why it came back.
	switch policy.ReturnReason(ev.Value) {
	case policy.ReturnEvicted:
		r.evictionCount++
	case policy.ReturnFull:
		in.refusedAt = int32(len(in.runningBatches))
	case policy.ReturnNotLoaded:
		in.loadedNetwork = -1
		p.groups.instanceChanges++
	}

	// Let it wait again, unless it was dropped meanwhile.
	if r.open {
		p.enqueue(req, q)
	}
	if policy.ReturnReason(ev.Value) == policy.ReturnEvicted {
		p.server.serveQueue(now, q, out)
	}
	p.calibrator.observeLoad(now, q) // an instance that refused or failed is asked again at the next event or tick
}

// handleLoaded notes that a network is loaded on an instance, which is then served, or that the load failed: then
// it is tried again at the next tick. Loads that were not ordered last are ignored.
func (p *Policy) handleLoaded(now time.Duration, ev *policy.Event, out *policy.Actions) {
	q := p.fleet.instanceOf[ev.Device]
	if q < 0 || p.fleet.instances[q].loadingNetwork != ev.Network {
		return
	}
	in := &p.fleet.instances[q]
	in.loadingNetwork = -1
	p.groups.instanceChanges++
	if ev.Value != 0 {
		in.loadFailed = true
		return
	}
	in.loadedNetwork = ev.Network
	p.server.serveQueue(now, q, out)
	p.calibrator.observeLoad(now, q)
}

// handleLoss handles the loss of an instance: the requests of its batches and of its queue go to other queues. What
// their answers had so far is made again.
func (p *Policy) handleLoss(now time.Duration, device int32, out *policy.Actions) {
	q := p.fleet.instanceOf[device]
	if q < 0 {
		return
	}
	in := &p.fleet.instances[q]
	in.deviceLost, in.loadedNetwork, in.loadingNetwork, in.refusedAt = true, -1, -1, 0
	p.groups.instanceChanges++
	p.replanner.syncProblem(now)

	// Abort its batches.
	for len(in.runningBatches) > 0 {
		slot := in.runningBatches[len(in.runningBatches)-1]
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: slot})
		req, _ := p.server.removeBatch(slot)
		p.requests.bySlot[req].producedTokens = 0
		if p.requests.bySlot[req].open {
			p.enqueue(req, -1)
		}
	}

	// Redistribute its queue, and serve the others.
	p.redistributeQueue(q)
	p.calibrator.observeLoad(now, q)
	p.serveAll(now, out)
}

// redistributeQueue moves the requests that wait in the queue of a lost instance to other queues. All leave before
// the first is placed again, because the costs of the groups change with their members.
func (p *Policy) redistributeQueue(q int32) {
	var queued []int32
	for _, slot := range p.groups.assignment.queues[q].slots {
		for req := p.groups.members[slot.group].firstRequest; req >= 0; req = p.requests.bySlot[req].nextInGroup {
			queued = append(queued, req)
		}
	}
	for _, req := range queued {
		p.groups.leaveGroup(req)
	}
	for _, req := range queued {
		p.enqueue(req, -1)
	}
}

// handleRecovery returns an instance to service, with the limits that its server reports, and serves it. Requests
// that no instance could serve are placed again.
func (p *Policy) handleRecovery(now time.Duration, ev *policy.Event, out *policy.Actions) {
	q := p.fleet.instanceOf[ev.Device]
	if q < 0 {
		return
	}
	in := &p.fleet.instances[q]
	in.deviceLost, in.loadFailed = false, false
	if r := p.fleet.tables.Resident[ev.Device]; len(r) > 0 && len(in.runningBatches) == 0 && in.loadingNetwork < 0 {
		in.loadedNetwork = r[0]
	}
	if ev.Value > 0 {
		in.maxSequences = ev.Value
	}
	if ev.Limit > 0 {
		in.kvTokens = int64(ev.Limit)
	}
	p.groups.instanceChanges++
	p.replanner.syncProblem(now)
	p.requeueUnplaced()
	p.server.serveQueue(now, q, out)
}

// requeueUnplaced tries again to place all requests that no instance could serve, after an instance has come back
// or was added. Those that still fit nowhere stay unplaced.
func (p *Policy) requeueUnplaced() {
	unplaced := p.requests.unplaced
	p.requests.unplaced = nil
	for _, req := range unplaced {
		p.requests.bySlot[req].unplaced = false
		p.enqueue(req, -1)
	}
}

// serveAll serves every queue.
func (p *Policy) serveAll(now time.Duration, out *policy.Actions) {
	for i := range p.fleet.instances {
		p.server.serveQueue(now, int32(i), out)
	}
}

// handleTick is called by the periodic timer, each second or less often while nothing happens. It drops late
// requests, updates estimators and the problem, serves all queues, and asks for a re-plan (a search for a better
// order). Without open requests it stops the ticks.
func (p *Policy) handleTick(now time.Duration, out *policy.Actions) {
	p.dropLate(now, out)
	instancesAdded := p.scaler != nil && p.scaler.Tick(now, p.violationLikely(now))
	if p.ticks.pending = p.requests.openRequests > 0 || p.scaler != nil && p.scaler.NeedsTicks(); !p.ticks.pending {
		return
	}

	// Update estimators and the problem.
	p.calibrator.updateEstimators(now)
	p.replanner.syncProblem(now)
	if instancesAdded {
		p.groups.instanceChanges++
		p.requeueUnplaced()
	}
	if p.dispatcher != nil {
		p.dispatcher.Tick(now)
	}

	// Serve all queues, also of instances that failed or refused.
	for i := range p.fleet.instances {
		p.fleet.instances[i].loadFailed, p.fleet.instances[i].refusedAt = false, 0
		p.server.serveQueue(now, int32(i), out)
	}

	// Schedule the next tick and a re-plan.
	p.ticks.scheduleNext(now, p.dispatcher == nil && p.scaler == nil && len(p.requests.unplaced) == 0, out)
	if p.groups.options.Rule == VirtualQueues && !p.groups.options.NoReplan && (!p.groups.options.ReplanOnViolation || p.replanner.violationLikely()) && p.replanner.grantReplan() {
		out.List = append(out.List, policy.Action{Kind: policy.Replan})
	}
}

// violationLikely reports whether some request is likely to be late.
func (p *Policy) violationLikely(now time.Duration) bool {
	return len(p.requests.unplaced) > 0 || p.replanner.violationLikely() || p.dispatcher != nil && p.dispatcher.ViolationExpected(now)
}

// dropLate is called at every tick. It drops requests past their deadlines that no instance can serve, unless an
// answer was promised, and, with the option DropLate, all late ones that wait.
func (p *Policy) dropLate(now time.Duration, out *policy.Actions) {
	for i := len(p.requests.unplaced) - 1; i >= 0; i-- {
		if r := &p.requests.bySlot[p.requests.unplaced[i]]; r.deadline <= now && !r.answerPromised {
			p.dropRequest(p.requests.unplaced[i], policy.ReasonWorkerLost, out)
		}
	}
	for req := p.stuckRequest(now); req >= 0; req = p.stuckRequest(now) {
		p.dropRequest(req, policy.ReasonWorkerLost, out)
	}
	if !p.groups.options.DropLate {
		return
	}
	for i := range p.requests.bySlot {
		if r := &p.requests.bySlot[i]; r.open && r.batch < 0 && r.deadline <= now {
			p.dropRequest(int32(i), policy.ReasonDeadline, out)
		}
	}
}

// stuckRequest returns a request of the dispatcher that is past its deadline and that no instance which is up can
// serve. If there is none, it returns -1.
func (p *Policy) stuckRequest(now time.Duration) int32 {
	if p.dispatcher == nil {
		return -1
	}
	return p.dispatcher.StuckRequest(now)
}

// toSeconds converts a time to the seconds of the problem.
func toSeconds(t time.Duration) float64 { return float64(t) / float64(time.Second) }

// infiniteCost is a cost that rules a choice out.
var infiniteCost = math.Inf(1)
