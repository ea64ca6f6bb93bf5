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
// Its parts share the instances, requests and groups.
type Policy struct {
	fleet      *instanceFleet
	requests   *requestTable
	groups     *groupTable
	placer     placer       // finds the queue of a request
	server     *queueServer // carries out the order of the queues
	replanner  replanner    // searches for better orders
	calibrator calibrator   // corrects the estimators
	dispatcher Dispatcher   // rule of a baseline with one list for all instances; nil if requests wait in queues
	scaler     Scaler       // switches instances on and off; nil if all are always on
	ticks      tickSchedule
}

// New returns the policy of a plan, over the tables of that. If the plan has no estimators or asks for something that the policy cannot do,
// it returns an error.
func New(planTables *policy.Tables, opt Options) (*Policy, error) {
	queueTables := TablesOf(planTables)
	if queueTables == nil {
		return nil, &document.Error{Path: "queue.estimates", Found: "none", Expected: "one for each model of an instance on its device", Hint: "policy balance needs none"}
	}
	if err := queueTables.validate(planTables); err != nil {
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
	groups := newGroupTable(newInstanceFleet(planTables, queueTables, newServingOperations(&opt)), opt)
	newPolicy := &Policy{fleet: groups.fleet, requests: groups.requests, groups: groups, ticks: tickSchedule{interval: opt.ReplanInterval}}
	newPolicy.server = newQueueServer(groups)
	newPolicy.placer, newPolicy.replanner = newPlacer(groups), newReplanner(groups)
	newPolicy.calibrator = newCalibrator(groups)
	if opt.NewDispatcher != nil {
		newPolicy.dispatcher = opt.NewDispatcher(&InstanceControl{newPolicy.fleet, newPolicy.server})
	}
	if opt.NewScaler != nil {
		newPolicy.scaler = opt.NewScaler(&InstanceControl{newPolicy.fleet, newPolicy.server})
	}
	newPolicy.replanner.syncProblem(0)
	return newPolicy, nil
}

// Handle handles an event of the run, such as an arrival or the end of a request, and appends the actions that it
// decides on. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, event *policy.Event, actions *policy.Actions) {
	// Events of instances make the next tick come soon.
	firstAction := len(actions.List)
	switch event.Kind {
	case policy.Arrival, policy.Cancel, policy.ReplanResult, policy.Timer:
	default:
		p.ticks.noteActivity(now, actions)
	}
	switch event.Kind {
	case policy.Arrival:
		p.handleArrival(now, event, actions)
	case policy.BatchFinished:
		p.handleFinish(now, event, actions)
	case policy.BatchReturned:
		p.handleReturn(now, event, actions)
	case policy.TokenProgress:
		if queueIndex := p.fleet.instanceOf[event.Device]; queueIndex >= 0 {
			p.calibrator.observeTokens(queueIndex, p.requests.requestOfBatch[event.Batch], event.Tokens)
		}
	case policy.NetworkLoaded:
		p.handleLoaded(now, event, actions)
	case policy.WorkerLost:
		p.handleLoss(now, event.Device, actions)
	case policy.WorkerBack:
		p.handleRecovery(now, event, actions)
	case policy.ReplanResult:
		if p.replanner.handleResult(event.List) {
			p.serveAll(now, actions)
		}
	case policy.Cancel:
		if p.requests.byNumber[event.Req].isOpen {
			p.dropRequest(event.Req, policy.ReasonCancelled, actions)
		}
	case policy.Timer:
		p.handleTick(now, actions)
	}

	// A dispatcher decides after every event. The calibrator observes the starts.
	if p.dispatcher != nil {
		p.dispatcher.AssignRequests(now, actions)
	}
	p.calibrator.observeStarts(now, actions, firstAction)
}

// Search returns a search for a better order of the queues, which the caller runs beside the event loop; its result comes back as an event.
// It implements policy.Searcher.
func (p *Policy) Search(time.Duration, int32) func(ctx context.Context, work int64, dst []int32) ([]int32, int64) {
	return p.replanner.newSearch().run
}

// handleArrival adds an arriving request to a queue, unless too many requests wait, and serves that.
// Value 1 of the event means that an answer was promised already, so the request is not refused. The first request starts the ticks.
func (p *Policy) handleArrival(now time.Duration, event *policy.Event, actions *policy.Actions) {
	p.requests.addRequest(event, p.fleet.classes[event.Model].dueAt(event))
	if !p.ticks.pending {
		p.replanner.syncProblem(now)
		p.ticks.startTicks(now, actions)
	}
	if event.Value != 1 && p.queueFull() {
		p.dropRequest(event.Req, policy.ReasonQueueFull, actions)
		return
	}

	// Add it to a queue; no instance has state of it. Serve its instance, then instances with an empty queue, which may borrow it.
	queueIndex := p.enqueue(event.Req, noQueue)
	if queueIndex < 0 {
		return // no instance can serve it now, or a dispatcher (the rule of a baseline) decides about it
	}
	p.server.serveQueue(now, queueIndex, actions)
	for i := range p.fleet.instances {
		if p.requests.byNumber[event.Req].batchNumber < 0 && p.groups.assignment.Head(int32(i)) < 0 {
			p.server.serveQueue(now, int32(i), actions)
		}
	}
}

// queueFull reports whether more requests wait than Options.QueueLimit allows, the new one included.
func (p *Policy) queueFull() bool {
	return p.groups.options.QueueLimit > 0 && p.requests.waitingRequests() > p.groups.options.QueueLimit
}

// noQueue stands for no queue: no instance has KV state of a request.
const noQueue = int32(-1)

// enqueue adds a waiting request, given by its number, to a queue and returns the index of that, or -1 if no instance can serve the
// request, see placer.placeRequest. stateQueue is the queue of the instance that has its KV state, or noQueue.
// With a dispatcher (the rule of a baseline), the request is added to the dispatcher's list instead.
func (p *Policy) enqueue(requestNumber, stateQueue int32) int32 {
	if p.dispatcher != nil {
		p.dispatcher.AddWaiting(requestNumber)
		return -1
	}
	return p.placer.placeRequest(requestNumber, stateQueue)
}

// dropRequest drops a request, given by its number, that waits or that no instance can serve, for a reason that the client is told.
// A running request is not dropped this way.
func (p *Policy) dropRequest(requestNumber int32, reason policy.DropReason, actions *policy.Actions) {
	p.groups.leaveGroup(requestNumber)
	if p.dispatcher != nil {
		p.dispatcher.RemoveWaiting(requestNumber)
	}
	p.requests.unmarkUnplaced(requestNumber)
	p.requests.closeRequest(requestNumber)
	actions.List = append(actions.List, policy.Action{Kind: policy.Drop, Req: requestNumber, Reason: reason})
}

// handleFinish closes the request whose answer a batch has brought, and serves the queue of its instance, which can take another request now.
func (p *Policy) handleFinish(now time.Duration, event *policy.Event, actions *policy.Actions) {
	requestNumber, queueIndex := p.server.removeBatch(event.Batch)
	if p.dispatcher != nil {
		p.dispatcher.RequestEnded(now, requestNumber)
	}

	// The estimators learn from the answer. The instance may be full again after it has been served, which observeLoad notes.
	p.calibrator.observeAnswer(queueIndex, requestNumber, event.Tokens)
	p.groups.sessions.noteAnswer(requestNumber, &p.requests.byNumber[requestNumber], event.Tokens)
	p.requests.closeRequest(requestNumber)
	p.server.serveQueue(now, queueIndex, actions)
	p.calibrator.observeLoad(now, queueIndex)
}

// handleReturn handles a request that comes back from its instance without an answer, because it was evicted, refused, or failed.
// It waits again, in the queue of that instance, where its state may be. A queue and its instance have the same index.
func (p *Policy) handleReturn(now time.Duration, event *policy.Event, actions *policy.Actions) {
	requestNumber, queueIndex := p.server.removeBatch(event.Batch)
	instance, request := &p.fleet.instances[queueIndex], &p.requests.byNumber[requestNumber]
	if len(event.List) > 0 { // the event lists how many tokens of the answer each request of the batch has; a batch is one request
		request.producedTokens = event.List[0]
	}

	// Note why it came back.
	switch policy.ReturnReason(event.Value) {
	case policy.ReturnEvicted:
		request.evictionCount++
	case policy.ReturnFull: // the instance takes no further request while as many run, until the next tick
		instance.refusalBatchCount = int32(len(instance.RunningBatches))
	case policy.ReturnNotLoaded:
		instance.LoadedNetwork = -1
		instance.memoryEpoch++
		p.groups.instanceChanges++ // so that the next search is not skipped as one that would see nothing new
	}

	// Let it wait again, unless it was dropped meanwhile. After an eviction the instance can serve the request for which it was ordered. One that
	// refused or failed would do the same again, so it is asked at the next event or tick.
	if request.isOpen {
		p.enqueue(requestNumber, queueIndex)
	}
	if policy.ReturnReason(event.Value) == policy.ReturnEvicted {
		p.server.serveQueue(now, queueIndex, actions)
	}
	p.calibrator.observeLoad(now, queueIndex) // the instance may be saturated now, or no longer
}

// handleLoaded handles the event that a network is loaded on an instance, whose queue is then served, or that the load failed: then it is
// tried again at the next tick. Loads that were not ordered last are ignored.
func (p *Policy) handleLoaded(now time.Duration, event *policy.Event, actions *policy.Actions) {
	queueIndex := p.fleet.instanceOf[event.Device]
	if queueIndex < 0 || p.fleet.instances[queueIndex].LoadingNetwork != event.Network {
		return // the device has no instance, or its load was not ordered last
	}
	instance := &p.fleet.instances[queueIndex]
	instance.LoadingNetwork = -1
	p.groups.instanceChanges++
	if event.Value != 0 {
		instance.LoadFailed = true
		return
	}
	instance.LoadedNetwork = event.Network
	p.server.serveQueue(now, queueIndex, actions)
	p.calibrator.observeLoad(now, queueIndex)
}

// handleLoss handles the loss of an instance: the requests of its batches and of its queue go to other queues.
// The tokens that their answers had so far are lost with it.
func (p *Policy) handleLoss(now time.Duration, device int32, actions *policy.Actions) {
	queueIndex := p.fleet.instanceOf[device]
	if queueIndex < 0 {
		return
	}
	instance := &p.fleet.instances[queueIndex]
	instance.isDeviceLost, instance.LoadedNetwork, instance.LoadingNetwork, instance.refusalBatchCount = true, -1, -1, 0 // it has refused nothing since
	instance.memoryEpoch++

	// Update the problem first: the lost instance then accepts no group, so that its requests join other queues.
	p.groups.instanceChanges++
	p.replanner.syncProblem(now)

	// Abort its batches, and let their requests start anew elsewhere: no other instance has state of them.
	for len(instance.RunningBatches) > 0 {
		batchNumber := instance.RunningBatches[len(instance.RunningBatches)-1]
		actions.List = append(actions.List, policy.Action{Kind: policy.Abort, Batch: batchNumber})
		requestNumber, _ := p.server.removeBatch(batchNumber)
		p.requests.byNumber[requestNumber].producedTokens = 0
		if p.requests.byNumber[requestNumber].isOpen {
			p.enqueue(requestNumber, noQueue)
		}
	}

	// Redistribute its queue, end the measurement of its throughput, and serve the others.
	p.redistributeQueue(queueIndex)
	p.calibrator.observeLoad(now, queueIndex)
	p.serveAll(now, actions)
}

// redistributeQueue moves the requests that wait in the queue of a lost instance to other queues.
// All leave before the first is added to another queue, because the costs of the groups change with their members.
func (p *Policy) redistributeQueue(queueIndex int32) {
	// List the members of its groups, in order: each request names the next one of its group.
	var queued []int32
	for _, entry := range p.groups.assignment.queues[queueIndex].entries {
		for requestNumber := p.groups.members[entry.group].requests.First; requestNumber >= 0; requestNumber = p.requests.groupLinks[requestNumber].Next {
			queued = append(queued, requestNumber)
		}
	}
	for _, requestNumber := range queued {
		p.groups.leaveGroup(requestNumber)
	}
	for _, requestNumber := range queued {
		p.enqueue(requestNumber, noQueue)
	}
}

// handleRecovery returns a lost instance to service, with the limits that its server reports, and serves its queue.
// Requests that no instance could serve are given a queue again.
func (p *Policy) handleRecovery(now time.Duration, event *policy.Event, actions *policy.Actions) {
	queueIndex := p.fleet.instanceOf[event.Device]
	if queueIndex < 0 {
		return
	}
	instance := &p.fleet.instances[queueIndex]
	instance.isDeviceLost, instance.LoadFailed = false, false
	// A server that starts anew holds its resident network: the plan lists at most one for an instance.
	if residentNetworks := p.fleet.tables.Resident[event.Device]; len(residentNetworks) > 0 && len(instance.RunningBatches) == 0 && instance.LoadingNetwork < 0 {
		instance.LoadedNetwork = residentNetworks[0]
	}

	// Take over the limits that the server reports: sequences at once, and tokens of KV memory.
	if event.Value > 0 {
		instance.maxSequences = event.Value
	}
	if event.Limit > 0 {
		instance.kvTokens = int64(event.Limit)
	}

	// Find queues for waiting requests, and serve.
	p.groups.instanceChanges++
	p.replanner.syncProblem(now)
	p.requeueUnplaced()
	p.server.serveQueue(now, queueIndex, actions)
}

// requeueUnplaced tries again to find queues for all requests that no instance could serve, after an instance has come back or was added.
// Those that still have none stay unplaced.
func (p *Policy) requeueUnplaced() {
	unplaced := p.requests.unplaced
	p.requests.unplaced = nil
	for _, requestNumber := range unplaced {
		p.requests.byNumber[requestNumber].isUnplaced = false
		p.enqueue(requestNumber, noQueue)
	}
}

// serveAll lets every instance do what its queue says.
func (p *Policy) serveAll(now time.Duration, actions *policy.Actions) {
	for i := range p.fleet.instances {
		p.server.serveQueue(now, int32(i), actions)
	}
}

// handleTick is called by the periodic timer, each second or less often while nothing happens. It drops late
// requests, updates estimators and the problem, serves all queues, and asks for a re-plan (a search for a better
// order). Without open requests it stops the ticks. The scaler (which switches instances on and off) and the
// dispatcher (the rule of a baseline, with one list for all instances) act at ticks, too, if there are any.
func (p *Policy) handleTick(now time.Duration, actions *policy.Actions) {
	p.dropLate(now, actions)
	instancesAdded := p.scaler != nil && p.scaler.Tick(now, p.violationLikely(now))
	p.ticks.pending = p.requests.openRequests > 0 || p.scaler != nil && p.scaler.NeedsTicks()
	if !p.ticks.pending {
		return
	}

	// Update estimators and the problem.
	p.calibrator.updateEstimators(now)
	p.replanner.syncProblem(now)
	if instancesAdded {
		p.groups.instanceChanges++ // so that grantReplan does not skip the search as one that would see nothing new
		p.requeueUnplaced()
	}
	if p.dispatcher != nil {
		p.dispatcher.Tick(now)
	}

	// Serve all queues. Instances whose last load failed, or that refused a request (refusalBatchCount), are asked again.
	for i := range p.fleet.instances {
		p.fleet.instances[i].LoadFailed, p.fleet.instances[i].refusalBatchCount = false, 0
		p.server.serveQueue(now, int32(i), actions)
	}

	// Schedule the next tick. Ticks may become rarer while instances do nothing, unless a dispatcher or a scaler acts at them or an unplaced
	// request waits to be dropped at one.
	mayRest := p.dispatcher == nil && p.scaler == nil && len(p.requests.unplaced) == 0
	p.ticks.scheduleNext(now, mayRest, actions)

	// Ask for a re-plan, with ReplanOnViolation only if a group in the queues is likely to be late, and if it is worthwhile.
	// violationLikely computes stale costs, so it is asked only where the search may run.
	usesSearch := p.groups.options.Rule == VirtualQueues && !p.groups.options.NoReplan
	if usesSearch && (!p.groups.options.ReplanOnViolation || p.replanner.violationLikely()) && p.replanner.grantReplan() {
		actions.List = append(actions.List, policy.Action{Kind: policy.Replan})
	}
}

// violationLikely reports whether some request is likely to be late. The scaler, which switches instances on and off, decides by it.
func (p *Policy) violationLikely(now time.Duration) bool {
	return len(p.requests.unplaced) > 0 || p.replanner.violationLikely() || p.dispatcher != nil && p.dispatcher.ViolationExpected(now)
}

// dropLate is called at every tick. It drops requests past their deadlines that no instance can serve, unless an answer was promised, and,
// with Options.DropLate, all late ones that wait.
func (p *Policy) dropLate(now time.Duration, actions *policy.Actions) {
	// Go backwards, because a drop removes the request from the list.
	for i := len(p.requests.unplaced) - 1; i >= 0; i-- {
		if request := &p.requests.byNumber[p.requests.unplaced[i]]; request.Deadline <= now && !request.AnswerPromised {
			p.dropRequest(p.requests.unplaced[i], policy.ReasonWorkerLost, actions)
		}
	}
	for requestNumber := p.stuckRequest(now); requestNumber >= 0; requestNumber = p.stuckRequest(now) {
		p.dropRequest(requestNumber, policy.ReasonWorkerLost, actions)
	}
	if !p.groups.options.DropLate {
		return
	}
	for i := range p.requests.byNumber {
		if request := &p.requests.byNumber[i]; request.isOpen && request.batchNumber < 0 && request.Deadline <= now {
			p.dropRequest(int32(i), policy.ReasonDeadline, actions)
		}
	}
}

// stuckRequest returns the number of a request in the dispatcher's list that is past its deadline and that no instance which is up can
// serve. If there is none, it returns -1.
func (p *Policy) stuckRequest(now time.Duration) int32 {
	if p.dispatcher == nil {
		return -1
	}
	return p.dispatcher.StuckRequest(now)
}

// toSeconds converts a duration to seconds, the unit of the search's problem.
func toSeconds(duration time.Duration) float64 { return float64(duration) / float64(time.Second) }

// infiniteCost is a cost that rules a choice out.
var infiniteCost = math.Inf(1)
