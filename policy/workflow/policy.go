package workflow

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// HandledEvents is the set of events that the policy handles, as bits.
const HandledEvents uint32 = 1<<policy.BatchFinished | 1<<policy.BatchReturned | 1<<policy.TransferFinished | 1<<policy.NetworkLoaded | 1<<policy.NetworkUnloaded |
	1<<policy.WorkerLost | 1<<policy.WorkerBack | 1<<policy.ControlRevealed | 1<<policy.TaskRevealed | 1<<policy.Arrival | 1<<policy.Cancel | 1<<policy.Timer

// Policy serves requests whose tasks become known as they run. It consists of parts that share one cluster.
type Policy struct {
	cluster   *cluster
	registry  *registry       // requests and tasks
	tables    *deviceTables   // times of services and transfers
	states    *stateStore     // session states on devices
	sequences *sequenceRunner // tasks of language models
	loader    *networkLoader  // loads and evictions of networks
	runner    *batchRunner    // batches of placed tasks
	placer    *placer         // devices of tasks
	admission *admission      // requests that are admitted

	postponedRequests []int32 // numbers of requests whose next tasks are placed only when a running batch of theirs has ended
	toReplan          []int32 // scratch: numbers of requests with tasks that have lost their device
	offsets           []int32 // scratch: inputs of a task, as numbers of tasks back from it
}

// New returns a policy over the tables of a plan of workflows. It has learnt the recorded paths of the tables for its prediction.
// If Options.MaxTasks is 0, at most 16 tasks of a request, revealed and predicted ones together, are placed.
func New(planTables *policy.Tables, opt Options) *Policy {
	if opt.MaxTasks == 0 {
		opt.MaxTasks = 16
	}
	cluster := newCluster(planTables, opt)
	p := &Policy{cluster: cluster, registry: cluster.registry, tables: cluster.tables}
	if opt.NewRouting != nil {
		cluster.routing = opt.NewRouting(DeviceView{cluster}, opt.Seed)
	}

	// Make the parts. The prediction belongs to the placer, and admission uses it, too.
	p.states = &stateStore{cluster: cluster, registry: cluster.registry, tables: cluster.tables, returns: make([]returnStats, len(planTables.Services))}
	p.sequences = &sequenceRunner{cluster: cluster, registry: cluster.registry, tables: cluster.tables, states: p.states}
	p.loader = &networkLoader{cluster: cluster, registry: cluster.registry, tables: cluster.tables, states: p.states}
	p.admission = newAdmission(cluster)
	p.runner = &batchRunner{cluster: cluster, registry: cluster.registry, tables: cluster.tables, states: p.states, sequences: p.sequences, loader: p.loader, admission: p.admission, fullBatch: newFullBatchFinder(len(planTables.Services))}
	p.placer = newPlacer(p.runner)
	p.admission.predictions = p.placer.predictions
	p.learnPriors()
	return p
}

// Table returns the prediction table, from which the policy predicts the next tasks of a request.
func (p *Policy) Table() *predict.TransitionTable { return p.placer.predictions }

// Handle takes in an event at a time, counted from the start of the run, and appends the policy's decisions to actions.
// After that it starts batches and loads on the devices that the event has changed. It implements policy.Policy.
// What a batch reveals is told before its end (policy.BatchFinished). So events of reveals come first and postpone the placing of the new
// tasks, if their batch is about to end; it is done when the end has freed the device, or at the latest before any other event.
func (p *Policy) Handle(at time.Duration, event *policy.Event, actions *policy.Actions) {
	now := int64(at)
	switch event.Kind {
	case policy.ControlRevealed:
		p.handleControl(now, event)
	case policy.TaskRevealed:
		p.revealTask(now, event, actions)
	case policy.BatchFinished:
		p.runner.finishBatch(p.tables.deviceIndexOf[event.Device], event.Batch, now, actions)
		p.planPostponed(now, actions)
	default:
		p.planPostponed(now, actions)
		p.handleOther(now, event, actions)
	}
	p.runner.startTouched(now, actions)
}

// handleOther handles the events that reveal no tasks and end no batch: arrivals, transfers, loads, cancellations, lost devices and timers.
// Requests whose placing was postponed have been planned before.
func (p *Policy) handleOther(now int64, event *policy.Event, actions *policy.Actions) {
	switch event.Kind {
	case policy.Arrival:
		// Open the request, and let admission decide.
		request := p.registry.openRequest(event.Req)
		request.app, request.arrivedAt, request.deadline = event.Model, int64(event.ArrivedAt), int64(event.Deadline)
		if event.Key > 0 {
			request.feature = int32(event.Key)
		}
		request.cursor = p.placer.predictions.CursorAtStart(request.app, request.feature)
		if p.cluster.routing != nil {
			p.cluster.routing.RequestArrived(now, actions)
		}
		if admitted, retryAt := p.admission.admit(now, event.Req); !admitted {
			// The drop is the latest action. Its time says when the client may try again.
			p.dropRequest(now, event.Req, policy.ReasonDeadline, actions)
			actions.List[len(actions.List)-1].At = time.Duration(retryAt)
		}
	case policy.TransferFinished:
		p.runner.markInputsArrived(event)
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		p.loader.handleNetworkEvent(now, event)
	case policy.Cancel:
		if int(event.Req) < len(p.registry.requests) && p.registry.requests[event.Req].isOpen {
			p.dropRequest(now, event.Req, policy.ReasonCancelled, actions)
		}
	case policy.BatchReturned:
		p.handleBatchReturned(now, event, actions)
	case policy.WorkerLost:
		p.handleWorkerLost(now, p.tables.deviceIndexOf[event.Device], actions)
	case policy.WorkerBack:
		p.handleWorkerBack(now, p.tables.deviceIndexOf[event.Device], actions)
	case policy.Timer:
		if event.Value == strandedTag {
			p.awaitDevice(now, actions)
		} else if p.cluster.routing != nil {
			p.cluster.routing.TimerFired(now, actions)
		}
	}
}

// handleControl handles a report of a request's course. A positive Value is the number of tasks that will be revealed next.
// With Value 0 the request has been answered: prediction and admission learn from its tasks, and it is closed.
func (p *Policy) handleControl(now int64, event *policy.Event) {
	request := &p.registry.requests[event.Req]
	if !request.isOpen {
		return
	}

	// A new segment: tasks that are revealed together. If a task of the request runs then, the end of its batch has revealed the segment, and
	// revealTask waits for the event of that end, which follows. But a Key other than 0 says that a program asked for the tasks while no batch
	// ended (betweenBatches), so that there is nothing to wait for.
	if event.Value > 0 {
		request.unrevealedTasks, request.segmentTasks, request.betweenBatches = int32(event.Value), 0, event.Key != 0
		return
	}

	// The answer.
	if p.cluster.options.ExpectTasks {
		p.placer.predictions.Learn(request.app, request.feature, request.taskKinds, int(request.firstSegmentTasks))
	}
	p.admission.recordAnswer(now, event.Req)
	p.closeRequest(now, event.Req)
}

// closeRequest ends a request that was answered or dropped. Its tasks leave the queues and are released, with the session states that they have left
// on devices. Tasks that run are only detached from it, and released when their batches end.
func (p *Policy) closeRequest(now int64, requestNumber int32) {
	request := &p.registry.requests[requestNumber]
	p.admission.removeRequest(requestNumber)
	p.placer.forgetExpected(request)
	for _, taskID := range request.revealedTasks {
		if p.registry.tasks[taskID].progress == taskQueued {
			p.cluster.unqueueTask(taskID) // it is unplaced then
		}
		// Tell the routing that the task is over, unless it has ended: endTask has told that.
		if progress := p.registry.tasks[taskID].progress; progress == taskUnplaced || progress == taskRunning {
			p.cluster.countTask(now, p.registry.tasks[taskID].service, -1)
		}
		p.states.forgetState(taskID)
		p.registry.releaseTask(taskID) // detaches a task that runs from the request
	}
	request.isOpen, request.revealedTasks = false, request.revealedTasks[:0]
}

// revealTask adds a task that becomes known to its request: its inputs, the session state that it continues, and its kind, by which the
// next tasks are predicted. When the last task of a segment (tasks revealed together) is known, the request's tasks are given devices.
// If the end of a batch of the request reveals the segment, that is postponed to that end, because the device is free only then.
func (p *Policy) revealTask(now int64, event *policy.Event, actions *policy.Actions) {
	request := &p.registry.requests[event.Req]
	if !request.isOpen {
		return
	}

	// Add the task with its inputs. The prediction names an input by its offset: how many tasks back it is, 0 for the client's input (-1).
	workMillionths := event.Value // work of the task in millionths of a usual one
	taskID := p.registry.newTask(event.Req, event.Task, event.Service, factorFromMillionths(workMillionths))
	p.registry.assignNumber(event.Task, taskID)
	task := &p.registry.tasks[taskID]
	p.offsets = p.offsets[:0]
	for _, inputNumber := range event.List {
		input, offset := int32(-1), int32(0)
		if inputNumber >= 0 {
			input = p.registry.taskByNumber[inputNumber]
			offset = int32(len(request.revealedTasks)) - lastIndex(request.revealedTasks, input)
			if p.registry.tasks[input].progress != taskEnded {
				task.pendingInputs++
			}
		}
		task.inputs, p.offsets = append(task.inputs, input), append(p.offsets, offset)
	}

	// Link the session state (KV cache of an earlier task) that it continues. Advance the prediction by the task's kind (service, work and
	// inputs), whose number in the prediction table is that of a token.
	p.states.linkState(taskID, workMillionths)
	p.states.countReturn(now, task)
	task.kindNumber = p.placer.predictions.TokenNumber(event.Service, workMillionths, p.offsets)
	p.placer.predictions.Advance(&request.cursor, task.kindNumber)
	request.revealedTasks, request.taskKinds = append(request.revealedTasks, taskID), append(request.taskKinds, task.kindNumber)
	p.cluster.countTask(now, event.Service, 1)
	p.cluster.countDemand(now, event.Service)

	// Plan the request once the segment is complete. handleControl has set the number of tasks that are still to come (unrevealedTasks).
	request.segmentTasks++
	request.unrevealedTasks--
	if request.unrevealedTasks > 0 {
		return
	}
	if request.firstSegmentTasks == 0 { // the prediction learns how many tasks of a request were known at first
		request.firstSegmentTasks = request.segmentTasks
	}
	p.admission.updateNeededTime(request)

	// If a task of the request still runs, the end of its batch has revealed the segment and is reported next; unless a program has revealed it
	// (betweenBatches).
	for _, taskID := range request.revealedTasks {
		if p.registry.tasks[taskID].progress == taskRunning && !request.betweenBatches {
			p.postponedRequests = append(p.postponedRequests, event.Req)
			return
		}
	}
	p.planRequest(now, event.Req, actions)
}

// lastIndex returns the index of the last occurrence of a task ID in a list. If the list does not have it, it returns -1.
func lastIndex(list []int32, taskID int32) int32 {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == taskID {
			return int32(i)
		}
	}
	return -1
}

// planRequest gives the revealed tasks of a request their devices.
// If no device can run one of them, the request waits until a lost device comes back.
// If the request can no longer meet its deadline, by the rule of Options.GiveUp, it is dropped.
func (p *Policy) planRequest(now int64, requestNumber int32, actions *policy.Actions) {
	switch {
	case !p.placer.placeRevealed(now, requestNumber, actions):
		p.awaitDevice(now, actions)
	case p.placer.givesUp(now, &p.registry.requests[requestNumber]):
		p.dropRequest(now, requestNumber, policy.ReasonDeadline, actions)
	}
}

// planPostponed places the tasks of requests whose placing was postponed (revealTask), because a batch of theirs was about to end. It is
// called at the next event that reveals nothing, usually the end of that batch, when its device is free.
func (p *Policy) planPostponed(now int64, actions *policy.Actions) {
	for _, requestNumber := range p.postponedRequests {
		if p.registry.requests[requestNumber].isOpen {
			p.planRequest(now, requestNumber, actions)
		}
	}
	p.postponedRequests = p.postponedRequests[:0]
}
