package workflow

import (
	"inferplan/policy"
	"inferplan/policy/predict"
)

// placer gives revealed and expected tasks their devices.
type placer struct {
	cluster      *cluster
	book         *taskTable
	tables       *deviceTables
	states       *stateStore
	planner      *devicePlanner
	runner       *batchRunner
	predictions  *predict.TransitionTable
	scheduler    *scheduler
	search       search
	job          job
	placedCount  int64   // tasks placed so far: the order key of the next one
	toPlace      []int32 // tasks to be placed
	jobIndex     []int32 // by task: its index in the job; -1 if it is not in it
	tokens       []int32 // scratch: predicted tokens
	inputIndexes []int32 // scratch: inputs of a task, as indexes in the job
}

// newPlacer returns a placer, which gives tasks their devices, over the cluster of a batch runner, with its search
// and its predictions.
func newPlacer(b *batchRunner) *placer {
	c := b.cluster
	p := &placer{cluster: c, book: b.book, tables: b.tables, states: b.states, runner: b, planner: newDevicePlanner(c, b.states), predictions: predict.New(c.options.Prediction)}
	p.scheduler = newScheduler(c.tables, &p.planner.endTable)
	p.search = search{cluster: c, tables: c.tables, planner: p.planner, scheduler: p.scheduler, width: c.options.SearchWidth, maxSteps: maxSearchSteps}
	return p
}

// placeRevealed places the tasks of a request after a segment was revealed. If the segment was expected, its tasks take
// over the places of the expected ones, unless the options place all waiting tasks anew. It returns false if no device
// can take them.
func (p *placer) placeRevealed(now int64, req int32, out *policy.Actions) bool {
	q := &p.book.requests[req]
	if !p.cluster.options.ReplaceOnReveal && p.adoptExpected(now, q, out) {
		return true
	}
	p.forgetExpected(q)
	p.toPlace = p.toPlace[:0]
	for _, id := range q.revealedTasks {
		if k := &p.book.tasks[id]; k.state == taskQueued && p.cluster.options.ReplaceOnReveal {
			p.cluster.unqueueTask(id)
		}
		if p.book.tasks[id].state == taskUnplaced {
			p.toPlace = append(p.toPlace, id)
		}
	}
	if p.cluster.options.ExpectTasks && (!p.cluster.options.PriceDeviceTime || p.cluster.meanBacklog(now) < maxExpectBacklog) {
		p.addExpected(q)
	}
	return p.placeListed(now, out)
}

// placeUnplaced places the unplaced tasks of a request. It returns false if no device can take them.
func (p *placer) placeUnplaced(now int64, q *request, out *policy.Actions) bool {
	p.forgetExpected(q)
	p.toPlace = p.toPlace[:0]
	for _, id := range q.revealedTasks {
		if p.book.tasks[id].state == taskUnplaced {
			p.toPlace = append(p.toPlace, id)
		}
	}
	return p.placeListed(now, out)
}

// adoptExpected gives the tasks of the latest segment (tasks revealed together) the places of the tasks that were
// expected in their stead, if the prediction was right. It returns false, and changes nothing, if other tasks were
// expected or not all of these wait in a queue.
func (p *placer) adoptExpected(now int64, q *request, out *policy.Actions) bool {
	n := int(q.segmentTasks)
	if n > len(q.expectedTasks) {
		return false
	}

	// Compare the segment with what was expected.
	newTasks := q.revealedTasks[len(q.revealedTasks)-n:]
	for i, id := range newTasks {
		if p.book.tasks[id].token != p.book.tasks[q.expectedTasks[i]].token || p.book.tasks[q.expectedTasks[i]].state != taskQueued {
			return false
		}
	}

	// Take over the place of each expected task.
	for i, id := range newTasks {
		p.replaceExpected(id, q.expectedTasks[i], q.expectedTasks[i+1:])
	}
	for _, id := range newTasks {
		p.runner.gatherInputs(now, id, out)
	}
	q.expectedTasks = q.expectedTasks[:copy(q.expectedTasks, q.expectedTasks[n:])]
	return true
}

// replaceExpected puts a revealed task in the stead of an expected one that was predicted for it: in its place, its
// position in the queue, and among the inputs of its readers, which are tasks expected later. The expected task is
// released.
func (p *placer) replaceExpected(id, expectedTask int32, laterTasks []int32) {
	k, expected := &p.book.tasks[id], &p.book.tasks[expectedTask]
	k.place, k.state, k.orderKey, k.endsAt = expected.place, taskQueued, expected.orderKey, expected.endsAt
	d := &p.cluster.devices[k.place]
	d.queue[lastIndex(d.queue, expectedTask)] = id
	d.dirty = true
	for _, laterTask := range laterTasks {
		reader := &p.book.tasks[laterTask]
		if reader.stateFrom == expectedTask {
			reader.stateFrom = id
		}
		for j, in := range reader.inputs {
			if in == expectedTask {
				reader.inputs[j] = id
			}
		}
	}
	expected.state = taskUnplaced
	p.book.releaseTask(expectedTask)
	p.cluster.touchDevice(k.place)
}

// forgetExpected removes the expected tasks of a request from the queues. Loads that they have caused go on.
func (p *placer) forgetExpected(q *request) {
	for _, id := range q.expectedTasks {
		if p.book.tasks[id].state == taskQueued {
			p.cluster.unqueueTask(id)
		}
		p.book.releaseTask(id)
	}
	q.expectedTasks = q.expectedTasks[:0]
}

// addExpected adds the tasks that the prediction expects next to a request, and to the tasks to be placed, up to
// MaxTasks with the revealed ones. They have no slot, because nobody has asked for them: they only cause networks
// to be loaded. Inputs are named by how many tasks back they are.
func (p *placer) addExpected(q *request) {
	p.tokens = p.predictions.PredictTokens(q.cursor, p.cluster.options.MaxTasks-len(q.revealedTasks), p.tokens[:0])
	for _, token := range p.tokens {
		t := p.predictions.Token(token)
		id := p.book.newTask(-1, -1, t.Service, workFromMillionths(t.Work))
		k := &p.book.tasks[id]
		k.token = token
		for _, offset := range t.Inputs {
			in := int32(-1)
			if position := len(q.revealedTasks) + len(q.expectedTasks) - int(offset); offset > 0 && position >= 0 {
				if in = p.taskAt(q, position); p.book.tasks[in].state != taskEnded {
					k.pendingInputs++
				}
			}
			k.inputs = append(k.inputs, in)
		}
		p.states.linkState(id, t.Work)
		q.expectedTasks = append(q.expectedTasks, id)
		p.toPlace = append(p.toPlace, id)
	}
}

// taskAt returns the i-th of the revealed and expected tasks of a request.
func (p *placer) taskAt(q *request, i int) int32 {
	if i < len(q.revealedTasks) {
		return q.revealedTasks[i]
	}
	return q.expectedTasks[i-len(q.revealedTasks)]
}

// placeListed gives the tasks in toPlace their devices: one by one if a routing (a fixed rule) decides, otherwise
// all together by the search. It returns false if no device can take one of them.
func (p *placer) placeListed(now int64, out *policy.Actions) bool {
	if len(p.toPlace) == 0 {
		return true
	}

	// A routing decides task by task.
	if p.cluster.routing != nil {
		for _, id := range p.toPlace {
			chosenPlace := p.cluster.routing.PlaceOf(p.book.tasks[id].service)
			if chosenPlace < 0 {
				return false
			}
			p.assignPlace(now, id, chosenPlace, now, 0, out)
		}
		return true
	}

	// Otherwise the search places them together, as a job.
	p.planner.refreshPlans(now)
	p.makeJob(now)
	search := &p.search
	search.findPlaces(now, &p.job)
	if search.bestLastEnd >= farFuture {
		return false
	}
	for _, id := range p.toPlace {
		i := p.jobIndex[id]
		p.assignPlace(now, id, search.bestPlace[i], search.bestEnd[i], search.minRemaining[i], out)
	}
	return true
}

// makeJob writes the tasks to be placed into the job, the input of the search, together with the placed tasks that
// they read. jobIndex gives the index of a task in the job, -1 for a task that is not in it.
func (p *placer) makeJob(now int64) {
	// No task is in the job yet.
	p.job.reset()
	for len(p.jobIndex) < len(p.book.tasks) {
		p.jobIndex = append(p.jobIndex, -1)
	}
	for _, id := range p.toPlace {
		p.jobIndex[id] = -1
		for _, in := range p.book.tasks[id].inputs {
			if in >= 0 {
				p.jobIndex[in] = -1
			}
		}
	}

	// Add each task after its inputs.
	for _, id := range p.toPlace {
		// Placed tasks that it reads come first.
		for _, in := range p.book.tasks[id].inputs {
			if in < 0 || p.jobIndex[in] >= 0 {
				continue
			}
			if inputTask := &p.book.tasks[in]; inputTask.place >= 0 && inputTask.state != taskUnplaced {
				p.jobIndex[in] = p.job.addPlaced(inputTask.service, inputTask.place, inputTask.endsAt)
			}
		}

		// Then the task itself, with its inputs as indexes in the job.
		k := &p.book.tasks[id]
		p.inputIndexes = p.inputIndexes[:0]
		for _, in := range k.inputs {
			jobInput := int32(-1)
			if in >= 0 {
				jobInput = p.jobIndex[in]
			}
			p.inputIndexes = append(p.inputIndexes, jobInput)
		}
		p.jobIndex[id] = p.job.addUnplaced(k.service, k.work, p.inputIndexes...)
		if k.stateFrom >= 0 {
			p.setJobState(now, k, &p.job.tasks[p.jobIndex[id]])
		}
	}
}

// setJobState writes into a task of the job where the session state is that it continues: at another task of the
// job, if that has no place yet, or at a device from some time on.
func (p *placer) setJobState(now int64, k *task, j *jobTask) {
	u := &p.book.tasks[k.stateFrom]
	if j.recomputeTime = u.session.recomputeTime; u.state == taskUnplaced && p.cluster.options.KeepStates != KeepNone {
		j.stateFrom = p.jobIndex[k.stateFrom]
		return
	}
	j.stateHome, j.stateHomeAt = p.states.stateHome(k), now
	if u.state != taskEnded {
		j.stateHomeAt = max(now, u.endsAt)
	}
}

// assignPlace puts a task into the queue of a place (device), in the order of its key: by the options the order of
// placing, or the latest end that still lets its request be in time. minRemaining is the least time in ns from its
// end to that of its request. Expected tasks (req below 0) come last.
func (p *placer) assignPlace(now int64, id, place int32, end, minRemaining int64, out *policy.Actions) {
	k := &p.book.tasks[id]
	k.place, k.endsAt, k.state, k.stateInTransit = place, end, taskQueued, false
	p.placedCount++
	switch {
	case p.cluster.options.OrderKey != nil:
		k.orderKey = p.cluster.options.OrderKey(p.rankedTask(now, k, minRemaining))
	case !p.cluster.options.ByDeadline:
		k.orderKey = p.placedCount
	case k.req < 0:
		k.orderKey = farFuture
	default:
		k.orderKey = p.book.requests[k.req].deadline - minRemaining
	}
	p.cluster.devices[place].enqueue(p.book.tasks, id)
	p.cluster.touchDevice(place)
	if k.slot >= 0 {
		p.runner.gatherInputs(now, id, out)
	}
}
