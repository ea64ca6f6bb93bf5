package workflow

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// HandledEvents is the set of events that the policy handles, as bits.
const HandledEvents uint32 = 1<<policy.BatchFinished | 1<<policy.BatchReturned | 1<<policy.TransferFinished | 1<<policy.NetworkLoaded | 1<<policy.NetworkUnloaded |
	1<<policy.WorkerLost | 1<<policy.WorkerBack | 1<<policy.ControlRevealed | 1<<policy.TaskRevealed | 1<<policy.Arrival | 1<<policy.Cancel | 1<<policy.Timer

// Policy serves dynamic workflows.
type Policy struct {
	cluster   *cluster
	book      *taskTable
	tables    *deviceTables
	states    *stateStore
	sequences *sequenceRunner
	loader    *networkLoader
	runner    *batchRunner
	placer    *placer
	admission *admission

	revealedEarly []int32 // requests whose tasks were revealed before the end of their batch
	toReplan      []int32 // requests to be planned anew
	offsets       []int32 // scratch: inputs of a task, as offsets back
}

// New returns a policy over the tables of a plan of workflows, with its parts, which share one cluster. It has
// learnt the recorded paths of the tables. By default a request has at most 16 tasks, revealed and predicted ones,
// in queues.
func New(t *policy.Tables, opt Options) *Policy {
	if opt.MaxTasks == 0 {
		opt.MaxTasks = 16
	}
	c := newCluster(t, opt)
	p := &Policy{cluster: c, book: c.book, tables: c.tables}
	if opt.NewRouting != nil {
		c.routing = opt.NewRouting(DeviceView{c}, opt.Seed)
	}
	p.states = &stateStore{cluster: c, book: c.book, tables: c.tables, returns: make([]returnStats, len(t.Services))}
	p.sequences = &sequenceRunner{cluster: c, book: c.book, tables: c.tables, states: p.states}
	p.loader = &networkLoader{cluster: c, book: c.book, tables: c.tables, states: p.states}
	p.admission = newAdmission(c)
	p.runner = &batchRunner{cluster: c, book: c.book, tables: c.tables, states: p.states, sequences: p.sequences, loader: p.loader, admission: p.admission, fullBatch: newFullBatchFinder(len(t.Services))}
	p.placer = newPlacer(p.runner)
	p.admission.predictions = p.placer.predictions
	p.learnPriors()
	return p
}

// Table returns the prediction table.
func (p *Policy) Table() *predict.TransitionTable { return p.placer.predictions }

// Handle handles an event of the run: it takes in what has changed, and then starts batches and loads on the
// devices that are concerned. It implements policy.Policy.
func (p *Policy) Handle(at time.Duration, ev *policy.Event, out *policy.Actions) {
	now := int64(at)
	switch ev.Kind {
	case policy.ControlRevealed:
		p.handleControl(now, ev)
	case policy.TaskRevealed:
		p.revealTask(now, ev, out)
	case policy.BatchFinished:
		p.runner.finishBatch(p.tables.placeOf[ev.Device], ev.Batch, now, out)
		p.planRevealedEarly(now, out)
	default:
		p.planRevealedEarly(now, out)
		p.handleOther(now, ev, out)
	}
	p.runner.startTouched(now, out)
}

// handleOther handles the events that reveal nothing and end no batch: arrivals, loads, losses, timers and the
// like. Requests that were revealed early have been planned before.
func (p *Policy) handleOther(now int64, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		// Open the request, and let admission decide.
		q := p.book.openRequest(ev.Req)
		q.app, q.arrivedAt, q.deadline = ev.Model, int64(ev.ArrivedAt), int64(ev.Deadline)
		if ev.Key > 0 {
			q.feature = int32(ev.Key)
		}
		q.cursor = p.placer.predictions.CursorAtStart(q.app, q.feature)
		if p.cluster.routing != nil {
			p.cluster.routing.RequestArrived(now, out)
		}
		if admitted, retryAt := p.admission.admit(now, ev.Req); !admitted {
			p.dropRequest(now, ev.Req, policy.ReasonDeadline, out)
			out.List[len(out.List)-1].At = time.Duration(retryAt)
		}
	case policy.TransferFinished:
		p.runner.markInputsArrived(ev)
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		p.loader.handleNetworkEvent(now, ev)
	case policy.Cancel:
		if int(ev.Req) < len(p.book.requests) && p.book.requests[ev.Req].isOpen {
			p.dropRequest(now, ev.Req, policy.ReasonCancelled, out)
		}
	case policy.BatchReturned:
		p.handleBatchReturned(now, ev, out)
	case policy.WorkerLost:
		p.handleWorkerLost(now, p.tables.placeOf[ev.Device], out)
	case policy.WorkerBack:
		p.handleWorkerBack(now, p.tables.placeOf[ev.Device], out)
	case policy.Timer:
		if ev.Value == strandedTag {
			p.awaitDevice(now, out)
		} else if p.cluster.routing != nil {
			p.cluster.routing.TimerFired(now, out)
		}
	}
}

// handleControl handles word of a request's course: with a positive Value that many tasks will be revealed next,
// with 0 the request has been answered. Then the prediction and the admission learn from its tasks.
func (p *Policy) handleControl(now int64, ev *policy.Event) {
	q := &p.book.requests[ev.Req]
	if !q.isOpen {
		return
	}
	if ev.Value > 0 {
		q.unrevealedTasks, q.segmentTasks, q.betweenBatches = int32(ev.Value), 0, ev.Key != 0
		return
	}
	if p.cluster.options.ExpectTasks {
		p.placer.predictions.Learn(q.app, q.feature, q.tokens, int(q.firstSegmentTasks))
	}
	p.admission.recordAnswer(now, ev.Req)
	p.closeRequest(now, ev.Req)
}

// closeRequest ends a request that was answered or dropped: it leaves the admitted ones, and its tasks leave their
// queues and are released with their session states.
func (p *Policy) closeRequest(now int64, req int32) {
	q := &p.book.requests[req]
	p.admission.removeRequest(req)
	p.placer.forgetExpected(q)
	for _, id := range q.revealedTasks {
		if p.book.tasks[id].state == taskQueued {
			p.cluster.unqueueTask(id)
		}
		if s := p.book.tasks[id].state; s == taskUnplaced || s == taskQueued || s == taskRunning {
			p.cluster.countTask(now, p.book.tasks[id].service, -1)
		}
		p.states.forgetState(id)
		p.book.releaseTask(id)
	}
	q.isOpen, q.revealedTasks = false, q.revealedTasks[:0]
}

// revealTask adds a revealed task to its request: its inputs, the session state that it continues, and its token
// (the number of its kind of task, by which the next tasks are predicted). After the last task of a segment the
// request is planned, or, while tasks of it still run, when their batch ends.
func (p *Policy) revealTask(now int64, ev *policy.Event, out *policy.Actions) {
	q := &p.book.requests[ev.Req]
	if !q.isOpen {
		return
	}

	// Add the task with its inputs.
	id := p.book.newTask(ev.Req, ev.Task, ev.Service, workFromMillionths(ev.Value))
	p.book.assignSlot(ev.Task, id)
	k := &p.book.tasks[id]
	p.offsets = p.offsets[:0]
	for _, slot := range ev.List {
		in, offset := int32(-1), int32(0)
		if slot >= 0 {
			in = p.book.taskInSlot[slot]
			offset = int32(len(q.revealedTasks)) - lastIndex(q.revealedTasks, in)
			if p.book.tasks[in].state != taskEnded {
				k.pendingInputs++
			}
		}
		k.inputs, p.offsets = append(k.inputs, in), append(p.offsets, offset)
	}

	// Link its session state, and advance the prediction.
	p.states.linkState(id, ev.Value)
	p.states.countReturn(now, k)
	k.token = p.placer.predictions.TokenNumber(ev.Service, ev.Value, p.offsets)
	p.placer.predictions.Advance(&q.cursor, k.token)
	q.revealedTasks, q.tokens = append(q.revealedTasks, id), append(q.tokens, k.token)
	p.cluster.countTask(now, ev.Service, 1)
	p.cluster.countDemand(now, ev.Service)

	// Plan the request once the segment is complete.
	q.segmentTasks++
	if q.unrevealedTasks--; q.unrevealedTasks > 0 {
		return
	}
	if q.firstSegmentTasks == 0 {
		q.firstSegmentTasks = q.segmentTasks
	}
	p.admission.updateOwedTime(q)
	for _, id := range q.revealedTasks {
		if p.book.tasks[id].state == taskRunning && !q.betweenBatches {
			p.revealedEarly = append(p.revealedEarly, ev.Req) // its batch is about to end
			return
		}
	}
	p.planRequest(now, ev.Req, out)
}

// lastIndex returns the index of a task's last occurrence in a list. If it is not in the list, it returns -1.
func lastIndex(list []int32, id int32) int32 {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == id {
			return int32(i)
		}
	}
	return -1
}

// planRequest places what was revealed of a request. If no device can take it, the request waits for one; if its
// deadline can no longer be met, it is dropped, as far as the options give up requests.
func (p *Policy) planRequest(now int64, req int32, out *policy.Actions) {
	switch {
	case !p.placer.placeRevealed(now, req, out):
		p.awaitDevice(now, out)
	case p.placer.givesUp(now, &p.book.requests[req]):
		p.dropRequest(now, req, policy.ReasonDeadline, out)
	}
}

// planRevealedEarly plans the requests whose tasks were revealed while their batch was still about to end. It is
// called at the next event, when the device is free.
func (p *Policy) planRevealedEarly(now int64, out *policy.Actions) {
	for _, req := range p.revealedEarly {
		if p.book.requests[req].isOpen {
			p.planRequest(now, req, out)
		}
	}
	p.revealedEarly = p.revealedEarly[:0]
}
