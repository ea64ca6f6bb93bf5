package workflow

import (
	"slices"

	"inferplan/policy"
	"inferplan/policy/predict"
)

// placer gives revealed and expected tasks their devices. Expected tasks are predicted to follow; they only cause networks to be loaded.
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
	job            job     // the tasks to be placed, as the input of the search
	placedCount    int64   // number of tasks placed so far: the order key of the next one
	tasksToPlace   []int32 // IDs of the tasks to be placed
	jobIndex       []int32 // by task ID: its index in the job; -1 if it is not in it
	predictedKinds []int32 // scratch: kinds of the tasks that are predicted next
	inputIndexes   []int32 // scratch: inputs of a task, as indexes in the job
}

// newPlacer returns a placer, which gives tasks their devices, over the cluster of a batch runner. Its prediction has learnt nothing yet.
func newPlacer(runner *batchRunner) *placer {
	cluster := runner.cluster
	placer := &placer{cluster: cluster, registry: runner.registry, tables: runner.tables, states: runner.states, runner: runner, planner: newDevicePlanner(cluster, runner.states), predictions: predict.New(cluster.options.Prediction)}
	placer.scheduler = newScheduler(cluster.tables, &placer.planner.endTable)
	placer.search = search{cluster: cluster, tables: cluster.tables, planner: placer.planner, scheduler: placer.scheduler, width: cluster.options.SearchWidth, maxSteps: maxSearchSteps}
	return placer
}

// placeRevealed gives devices to the tasks of a request after a segment (tasks revealed together) has become known.
// If the prediction expected just these tasks, they take the devices of the expected ones. With Options.ReplaceOnReveal, or a wrong prediction, the
// expected tasks are forgotten, and the waiting tasks are placed together with newly expected ones.
// It returns false if no device can run one of the tasks.
func (p *placer) placeRevealed(now int64, requestNumber int32, actions *policy.Actions) bool {
	request := &p.registry.requests[requestNumber]
	if !p.cluster.options.ReplaceOnReveal && p.adoptExpected(now, request, actions) {
		return true
	}

	// Otherwise list the tasks that are to be placed. Tasks that wait in a queue keep their places there, unless ReplaceOnReveal takes them out to
	// place them anew by what is now known.
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

	// Add the tasks that are expected to follow. The option PriceDeviceTime, which weighs what a task costs others, expects none while devices
	// are booked far ahead: tasks then wait longer than loads take, for which they would be expected.
	if p.cluster.options.ExpectTasks {
		isBookedAhead := p.cluster.options.PriceDeviceTime && p.cluster.meanBacklog(now) >= maxExpectBacklog
		if !isBookedAhead {
			p.addExpected(request)
		}
	}
	return p.assignDevices(now, actions)
}

// placeUnplaced gives devices to the tasks of a request that have none, after they have lost their device or a device came back.
// It returns false if no device can run one of them.
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

// adoptExpected gives the tasks of a request's latest segment (tasks revealed together) the devices and queue positions of the tasks that
// were expected in their stead. It returns false, and changes nothing, if fewer tasks or tasks of other kinds were expected, or one of the
// expected tasks waits in no queue. It is called when a segment is complete, unless Options.ReplaceOnReveal is set.
func (p *placer) adoptExpected(now int64, request *request, actions *policy.Actions) bool {
	newCount := int(request.segmentTasks)
	if newCount > len(request.expectedTasks) {
		return false
	}

	// Compare the segment with what was expected. Its tasks are the last of the revealed ones.
	newTasks := request.revealedTasks[len(request.revealedTasks)-newCount:]
	for i, taskID := range newTasks {
		expectedTask := &p.registry.tasks[request.expectedTasks[i]]
		if p.registry.tasks[taskID].kindNumber != expectedTask.kindNumber || expectedTask.progress != taskQueued {
			return false
		}
	}

	// Take over the device of each expected task. The tasks expected behind it may read it, and then read the revealed task instead. Once all
	// have a device, have their inputs brought there.
	for i, taskID := range newTasks {
		laterTasks := request.expectedTasks[i+1:]
		p.replaceExpected(taskID, request.expectedTasks[i], laterTasks)
	}
	for _, taskID := range newTasks {
		p.runner.gatherInputs(now, taskID, actions)
	}
	request.expectedTasks = slices.Delete(request.expectedTasks, 0, newCount)
	return true
}

// replaceExpected puts a revealed task in the stead of the expected task that was predicted for it: on its device, at its queue position,
// and among the inputs of laterTasks, the tasks that are expected behind it. The expected task is released.
func (p *placer) replaceExpected(taskID, expectedTask int32, laterTasks []int32) {
	task, expected := &p.registry.tasks[taskID], &p.registry.tasks[expectedTask]
	task.deviceIndex, task.progress, task.orderKey, task.endsAt = expected.deviceIndex, taskQueued, expected.orderKey, expected.endsAt
	device := &p.cluster.devices[task.deviceIndex]
	device.queue[lastIndex(device.queue, expectedTask)] = taskID
	device.planOutdated = true

	// Tasks expected behind it read the revealed task instead.
	for _, laterTask := range laterTasks {
		reader := &p.registry.tasks[laterTask]
		if reader.stateSource == expectedTask {
			reader.stateSource = taskID
		}
		for inputIndex, input := range reader.inputs {
			if input == expectedTask {
				reader.inputs[inputIndex] = taskID
			}
		}
	}

	// The expected task is in no queue any more, and its entry is free.
	expected.progress = taskUnplaced
	p.registry.releaseTask(expectedTask)
	p.cluster.touchDevice(task.deviceIndex)
}

// forgetExpected removes the expected (predicted) tasks of a request from the queues and releases them.
// Loads of networks that they have caused go on.
func (p *placer) forgetExpected(request *request) {
	for _, taskID := range request.expectedTasks {
		if p.registry.tasks[taskID].progress == taskQueued {
			p.cluster.unqueueTask(taskID)
		}
		p.registry.releaseTask(taskID)
	}
	request.expectedTasks = request.expectedTasks[:0]
}

// addExpected predicts the tasks that follow the revealed ones of a request, and adds them to its expected tasks and to the tasks to be placed.
// Revealed and expected tasks together are at most Options.MaxTasks. Expected tasks have no task number, because nobody has asked for them: they only
// cause networks to be loaded. The prediction table calls the kinds of tasks tokens, and names an input by how many tasks back it is.
func (p *placer) addExpected(request *request) {
	p.predictedKinds = p.predictions.PredictTokens(request.cursor, p.cluster.options.MaxTasks-len(request.revealedTasks), p.predictedKinds[:0])
	for _, kindNumber := range p.predictedKinds {
		taskKind := p.predictions.Token(kindNumber)
		taskID := p.registry.newTask(-1, -1, taskKind.Service, factorFromMillionths(taskKind.Work))
		task := &p.registry.tasks[taskID]
		task.kindNumber = kindNumber

		// Its inputs are revealed tasks, or ones expected before it.
		for _, offset := range taskKind.Inputs {
			input := int32(-1)
			if position := len(request.revealedTasks) + len(request.expectedTasks) - int(offset); offset > 0 && position >= 0 {
				input = p.taskAt(request, position)
				if p.registry.tasks[input].progress != taskEnded {
					task.pendingInputs++
				}
			}
			task.inputs = append(task.inputs, input)
		}

		// Link its session state, and list it.
		p.states.linkState(taskID, taskKind.Work)
		request.expectedTasks = append(request.expectedTasks, taskID)
		p.tasksToPlace = append(p.tasksToPlace, taskID)
	}
}

// taskAt returns the ID of the i-th task of a request, where the expected tasks follow the revealed ones.
func (p *placer) taskAt(request *request, i int) int32 {
	if i < len(request.revealedTasks) {
		return request.revealedTasks[i]
	}
	return request.expectedTasks[i-len(request.revealedTasks)]
}

// assignDevices gives the tasks in tasksToPlace their devices: one by one if a routing (a rule of a baseline) decides, and otherwise all
// together by the search. It returns false if no device can run one of them.
func (p *placer) assignDevices(now int64, actions *policy.Actions) bool {
	if len(p.tasksToPlace) == 0 {
		return true
	}

	// A routing decides task by task.
	if p.cluster.routing != nil {
		for _, taskID := range p.tasksToPlace {
			deviceIndex := p.cluster.routing.NextDevice(p.registry.tasks[taskID].service)
			if deviceIndex < 0 {
				return false
			}
			// A routing knows neither the end of the task nor what remains of its request.
			p.assignDevice(now, taskID, deviceIndex, now, 0, actions)
		}
		return true
	}

	// Otherwise the search places them together, as a job.
	p.planner.refreshPlans(now)
	p.makeJob(now)
	search := &p.search
	search.findDevices(now, &p.job)
	if search.bestLastCost >= farFuture {
		return false // some task can run nowhere
	}
	for _, taskID := range p.tasksToPlace {
		i := p.jobIndex[taskID]
		p.assignDevice(now, taskID, search.bestDevice[i], search.bestEnd[i], search.minRemaining[i], actions)
	}
	return true
}

// makeJob writes the job, which is the input of the search: the tasks to be placed, each behind the tasks that it reads.
// Tasks with a device that are read by them are part of the job, too. jobIndex then gives the index of a task in the job.
func (p *placer) makeJob(now int64) {
	// No task is in the job yet. Entries of jobIndex are left from earlier jobs, so those that this job may read are cleared.
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
		p.jobIndex[taskID] = p.job.addUnplaced(task.service, task.workFactor, p.inputIndexes...)
		if task.stateSource >= 0 {
			p.setJobState(now, task, &p.job.tasks[p.jobIndex[taskID]])
		}
	}
}

// setJobState writes into a task of the job from where its session state (what its service keeps of the request) comes: from another task
// of the job that has no device yet, or from a device that has the state at stateReadyAt.
func (p *placer) setJobState(now int64, task *task, jobTask *jobTask) {
	source := &p.registry.tasks[task.stateSource]
	jobTask.recomputeTime = source.sessionState.recomputeTime

	// If the task that leaves the state has no device yet, the state will be where the search places that task.
	isUnplaced := source.progress == taskUnplaced
	if isUnplaced && p.cluster.options.KeepStates != KeepNone {
		jobTask.stateSource = p.jobIndex[task.stateSource]
		return
	}

	// Otherwise a device has the state, or will have it when that task ends. If states are not kept (KeepNone), deviceOfState is -1, and the
	// state is recomputed on any device.
	jobTask.stateDevice, jobTask.stateReadyAt = p.states.deviceOfState(task), now
	if source.progress != taskEnded {
		jobTask.stateReadyAt = max(now, source.endsAt)
	}
}

// assignDevice puts a task into the queue of a device. `end` is its expected end, and minRemaining the least time from its end to that of
// its request, in ns. The order in the queue is that in which tasks were placed or, with Options.ByDeadline, that of the latest end with
// which the request is still in time. By that rule expected tasks, which belong to no request yet, come last.
// The inputs of a revealed task are then brought to the device.
func (p *placer) assignDevice(now int64, taskID, deviceIndex int32, end, minRemaining int64, actions *policy.Actions) {
	task := &p.registry.tasks[taskID]
	task.deviceIndex, task.endsAt, task.progress, task.stateInTransit = deviceIndex, end, taskQueued, false
	p.placedCount++

	// The key decides its order in the queue. An expected task has no request (-1), and so no deadline.
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

	// Queue it, and bring its inputs to the device.
	p.cluster.devices[deviceIndex].enqueue(p.registry.tasks, taskID)
	p.cluster.touchDevice(deviceIndex)
	if task.isRevealed() {
		p.runner.gatherInputs(now, taskID, actions)
	}
}
