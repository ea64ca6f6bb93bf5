package workflow

import (
	"inferplan/policy"
	"inferplan/policy/predict"
)

// placer gives revealed and expected tasks their devices.
type placer struct {
	cluster        *cluster
	registry       *registry
	tables         *deviceTables
	states         *stateStore
	planner        *devicePlanner
	runner         *batchRunner
	predictions    *predict.TransitionTable
	scheduler      *scheduler
	search         search
	job            job
	placedCount    int64   // tasks placed so far: the order key of the next one
	tasksToPlace   []int32 // tasks to be placed
	jobIndex       []int32 // by task: its index in the job; -1 if it is not in it
	predictedKinds []int32 // scratch: predicted tokens
	inputIndexes   []int32 // scratch: inputs of a task, as indexes in the job
}

// newPlacer returns a placer, which gives tasks their devices, over the cluster of a batch runner, with its search
// and its predictions.
func newPlacer(b *batchRunner) *placer {
	c := b.cluster
	p := &placer{cluster: c, registry: b.registry, tables: b.tables, states: b.states, runner: b, planner: newDevicePlanner(c, b.states), predictions: predict.New(c.options.Prediction)}
	p.scheduler = newScheduler(c.tables, &p.planner.endTable)
	p.search = search{cluster: c, tables: c.tables, planner: p.planner, scheduler: p.scheduler, width: c.options.SearchWidth, maxSteps: maxSearchSteps}
	return p
}

// placeRevealed places the tasks of a request after a segment was revealed. If the segment was expected, its tasks take
// over the places of the expected ones, unless the options place all waiting tasks anew. It returns false if no device
// can take them.
func (p *placer) placeRevealed(now int64, requestNumber int32, actions *policy.Actions) bool {
	request := &p.registry.requests[requestNumber]
	if !p.cluster.options.ReplaceOnReveal && p.adoptExpected(now, request, actions) {
		return true
	}
	p.forgetExpected(request)
	p.tasksToPlace = p.tasksToPlace[:0]
	for _, taskID := range request.revealedTasks {
		if task := &p.registry.tasks[taskID]; task.progress == taskQueued && p.cluster.options.ReplaceOnReveal {
			p.cluster.unqueueTask(taskID)
		}
		if p.registry.tasks[taskID].progress == taskUnplaced {
			p.tasksToPlace = append(p.tasksToPlace, taskID)
		}
	}
	if p.cluster.options.ExpectTasks && (!p.cluster.options.PriceDeviceTime || p.cluster.meanBacklog(now) < maxExpectBacklog) {
		p.addExpected(request)
	}
	return p.assignDevices(now, actions)
}

// placeUnplaced places the unplaced tasks of a request. It returns false if no device can take them.
func (p *placer) placeUnplaced(now int64, request *request, actions *policy.Actions) bool {
	p.forgetExpected(request)
	p.tasksToPlace = p.tasksToPlace[:0]
	for _, taskID := range request.revealedTasks {
		if p.registry.tasks[taskID].progress == taskUnplaced {
			p.tasksToPlace = append(p.tasksToPlace, taskID)
		}
	}
	return p.assignDevices(now, actions)
}

// adoptExpected gives the tasks of the latest segment (tasks revealed together) the places of the tasks that were
// expected in their stead, if the prediction was right. It returns false, and changes nothing, if other tasks were
// expected or not all of these wait in a queue.
func (p *placer) adoptExpected(now int64, request *request, actions *policy.Actions) bool {
	n := int(request.segmentTasks)
	if n > len(request.expectedTasks) {
		return false
	}

	// Compare the segment with what was expected.
	newTasks := request.revealedTasks[len(request.revealedTasks)-n:]
	for i, taskID := range newTasks {
		if p.registry.tasks[taskID].kindNumber != p.registry.tasks[request.expectedTasks[i]].kindNumber || p.registry.tasks[request.expectedTasks[i]].progress != taskQueued {
			return false
		}
	}

	// Take over the place of each expected task.
	for i, taskID := range newTasks {
		p.replaceExpected(taskID, request.expectedTasks[i], request.expectedTasks[i+1:])
	}
	for _, taskID := range newTasks {
		p.runner.gatherInputs(now, taskID, actions)
	}
	request.expectedTasks = request.expectedTasks[:copy(request.expectedTasks, request.expectedTasks[n:])]
	return true
}

// replaceExpected puts a revealed task in the stead of an expected one that was predicted for it: in its place, its
// position in the queue, and among the inputs of its readers, which are tasks expected later. The expected task is
// released.
func (p *placer) replaceExpected(taskID, expectedTask int32, laterTasks []int32) {
	task, expected := &p.registry.tasks[taskID], &p.registry.tasks[expectedTask]
	task.deviceIndex, task.progress, task.orderKey, task.endsAt = expected.deviceIndex, taskQueued, expected.orderKey, expected.endsAt
	device := &p.cluster.devices[task.deviceIndex]
	device.queue[lastIndex(device.queue, expectedTask)] = taskID
	device.planOutdated = true
	for _, laterTask := range laterTasks {
		reader := &p.registry.tasks[laterTask]
		if reader.stateSource == expectedTask {
			reader.stateSource = taskID
		}
		for j, input := range reader.inputs {
			if input == expectedTask {
				reader.inputs[j] = taskID
			}
		}
	}
	expected.progress = taskUnplaced
	p.registry.releaseTask(expectedTask)
	p.cluster.touchDevice(task.deviceIndex)
}

// forgetExpected removes the expected tasks of a request from the queues. Loads that they have caused go on.
func (p *placer) forgetExpected(request *request) {
	for _, taskID := range request.expectedTasks {
		if p.registry.tasks[taskID].progress == taskQueued {
			p.cluster.unqueueTask(taskID)
		}
		p.registry.releaseTask(taskID)
	}
	request.expectedTasks = request.expectedTasks[:0]
}

// addExpected adds the tasks that the prediction expects next to a request, and to the tasks to be placed, up to
// MaxTasks with the revealed ones. They have no slot, because nobody has asked for them: they only cause networks
// to be loaded. Inputs are named by how many tasks back they are.
func (p *placer) addExpected(request *request) {
	p.predictedKinds = p.predictions.PredictTokens(request.cursor, p.cluster.options.MaxTasks-len(request.revealedTasks), p.predictedKinds[:0])
	for _, token := range p.predictedKinds {
		t := p.predictions.Token(token)
		taskID := p.registry.newTask(-1, -1, t.Service, workFromMillionths(t.Work))
		task := &p.registry.tasks[taskID]
		task.kindNumber = token
		for _, offset := range t.Inputs {
			input := int32(-1)
			if position := len(request.revealedTasks) + len(request.expectedTasks) - int(offset); offset > 0 && position >= 0 {
				if input = p.taskAt(request, position); p.registry.tasks[input].progress != taskEnded {
					task.pendingInputs++
				}
			}
			task.inputs = append(task.inputs, input)
		}
		p.states.linkState(taskID, t.Work)
		request.expectedTasks = append(request.expectedTasks, taskID)
		p.tasksToPlace = append(p.tasksToPlace, taskID)
	}
}

// taskAt returns the i-th of the revealed and expected tasks of a request.
func (p *placer) taskAt(request *request, i int) int32 {
	if i < len(request.revealedTasks) {
		return request.revealedTasks[i]
	}
	return request.expectedTasks[i-len(request.revealedTasks)]
}

// assignDevices gives the tasks in tasksToPlace their devices: one by one if a routing (a fixed rule) decides, otherwise
// all together by the search. It returns false if no device can take one of them.
func (p *placer) assignDevices(now int64, actions *policy.Actions) bool {
	if len(p.tasksToPlace) == 0 {
		return true
	}

	// A routing decides task by task.
	if p.cluster.routing != nil {
		for _, taskID := range p.tasksToPlace {
			chosenDevice := p.cluster.routing.PlaceOf(p.registry.tasks[taskID].service)
			if chosenDevice < 0 {
				return false
			}
			p.assignDevice(now, taskID, chosenDevice, now, 0, actions)
		}
		return true
	}

	// Otherwise the search places them together, as a job.
	p.planner.refreshPlans(now)
	p.makeJob(now)
	search := &p.search
	search.findDevices(now, &p.job)
	if search.bestLastEnd >= farFuture {
		return false
	}
	for _, taskID := range p.tasksToPlace {
		i := p.jobIndex[taskID]
		p.assignDevice(now, taskID, search.bestDevice[i], search.bestEnd[i], search.minRemaining[i], actions)
	}
	return true
}

// makeJob writes the tasks to be placed into the job, the input of the search, together with the placed tasks that
// they read. jobIndex gives the index of a task in the job, -1 for a task that is not in it.
func (p *placer) makeJob(now int64) {
	// No task is in the job yet.
	p.job.reset()
	for len(p.jobIndex) < len(p.registry.tasks) {
		p.jobIndex = append(p.jobIndex, -1)
	}
	for _, taskID := range p.tasksToPlace {
		p.jobIndex[taskID] = -1
		for _, input := range p.registry.tasks[taskID].inputs {
			if input >= 0 {
				p.jobIndex[input] = -1
			}
		}
	}

	// Add each task after its inputs.
	for _, taskID := range p.tasksToPlace {
		// Placed tasks that it reads come first.
		for _, input := range p.registry.tasks[taskID].inputs {
			if input < 0 || p.jobIndex[input] >= 0 {
				continue
			}
			if inputTask := &p.registry.tasks[input]; inputTask.deviceIndex >= 0 && inputTask.progress != taskUnplaced {
				p.jobIndex[input] = p.job.addPlaced(inputTask.service, inputTask.deviceIndex, inputTask.endsAt)
			}
		}

		// Then the task itself, with its inputs as indexes in the job.
		task := &p.registry.tasks[taskID]
		p.inputIndexes = p.inputIndexes[:0]
		for _, input := range task.inputs {
			jobInput := int32(-1)
			if input >= 0 {
				jobInput = p.jobIndex[input]
			}
			p.inputIndexes = append(p.inputIndexes, jobInput)
		}
		p.jobIndex[taskID] = p.job.addUnplaced(task.service, task.relativeWork, p.inputIndexes...)
		if task.stateSource >= 0 {
			p.setJobState(now, task, &p.job.tasks[p.jobIndex[taskID]])
		}
	}
}

// setJobState writes into a task of the job where the session state is that it continues: at another task of the
// job, if that has no place yet, or at a device from some time on.
func (p *placer) setJobState(now int64, task *task, jobTask *jobTask) {
	source := &p.registry.tasks[task.stateSource]
	if jobTask.recomputeTime = source.state.recomputeTime; source.progress == taskUnplaced && p.cluster.options.KeepStates != KeepNone {
		jobTask.stateSource = p.jobIndex[task.stateSource]
		return
	}
	jobTask.stateDevice, jobTask.stateReadyAt = p.states.deviceOfState(task), now
	if source.progress != taskEnded {
		jobTask.stateReadyAt = max(now, source.endsAt)
	}
}

// assignDevice puts a task into the queue of a place (device), in the order of its key: by the options the order of
// placing, or the latest end that still lets its request be in time. minRemaining is the least time in ns from its
// end to that of its request. Expected tasks (req below 0) come last.
func (p *placer) assignDevice(now int64, taskID, deviceIndex int32, end, minRemaining int64, actions *policy.Actions) {
	task := &p.registry.tasks[taskID]
	task.deviceIndex, task.endsAt, task.progress, task.stateInTransit = deviceIndex, end, taskQueued, false
	p.placedCount++
	switch {
	case p.cluster.options.OrderKey != nil:
		task.orderKey = p.cluster.options.OrderKey(p.rankedTask(now, task, minRemaining))
	case !p.cluster.options.ByDeadline:
		task.orderKey = p.placedCount
	case task.requestNumber < 0:
		task.orderKey = farFuture
	default:
		task.orderKey = p.registry.requests[task.requestNumber].deadline - minRemaining
	}
	p.cluster.devices[deviceIndex].enqueue(p.registry.tasks, taskID)
	p.cluster.touchDevice(deviceIndex)
	if task.taskNumber >= 0 {
		p.runner.gatherInputs(now, taskID, actions)
	}
}
