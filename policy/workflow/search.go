package workflow

import "time"

// search gives the tasks of a job their devices, depth first: one task after the other, and back.
// Unlike in the scheduler, tasks of the job wait for each other and share batches. It tries the devices of a task in the order of their
// costs, prunes what cannot beat the best schedule, and stops when a schedule reaches the scheduler's bound, or after a number of steps.
//
// It minimises the cost of the last task, and then the sum of all costs. The cost of a task is its end, plus what its device time costs other
// tasks (setPrices). Times and costs are in ns.
type search struct {
	cluster   *cluster
	tables    *deviceTables
	planner   *devicePlanner
	scheduler *scheduler
	width     int // number of devices tried per task; 0 tries only the best one of all
	maxSteps  int // bound on the number of steps; a step tries the devices of one task

	now              int64
	candidateDevices [][]int32  // by task: devices to try, by rising earliest end
	jobBatches       []jobBatch // batches that the tasks placed so far are in
	minRemaining     []int64    // by task: least time from its end to that of the last task
	currentDevice    []int32    // by task: its device in the schedule under construction
	currentEnd       []int64    // by task: its end in that schedule
	currentBatch     []int32    // by task: its batch in that schedule
	bestDevice       []int32    // by task: its device in the best schedule so far
	bestEnd          []int64    // by task: its end in the best schedule
	bestStart        []int64    // by task: its start in the best schedule
	currentStart     []int64    // by task: its start in the schedule under construction
	bestLastCost     int64      // highest cost of a task in the best schedule; farFuture if there is none
	bestCostSum      int64      // sum of its costs
	endBound         int64      // no schedule ends earlier
	queuedTimePrice  int64      // price of device time on a device where tasks wait, in 1/priceOne of a task's own time
	idleTimePrice    int64      // price of device time on an idle device, in 1/priceOne
	steps            int        // number of steps so far
	levels           []searchLevel
}

// searchLevel is the scratch memory of one depth of the search: devices, with the placement of the task on each.
type searchLevel struct {
	devices       []int32
	placements    []placement
	cheapestCosts []int64 // the lowest costs of the placements, rising, as many as are tried
}

// jobBatch is a batch in the schedule under construction that has a task of the job.
type jobBatch struct {
	deviceIndex, plannedBatchIndex int32 // its device, and the batch of the device's plan that it extends; -1 if it is new
	plannedBatch
}

// Bounds of the search: its steps, and the candidate devices of a task beyond SearchWidth.
const (
	maxSearchSteps  = 16
	extraCandidates = 1
)

// priceOne is the price at which device time costs as much as a task's own time.
const priceOne = 1024

// Device time costs nothing while devices are booked ahead by up to freeBacklog, and as much as a task's own time from
// fullPriceBacklog on.
const (
	freeBacklog      = int64(1500 * time.Millisecond)
	fullPriceBacklog = int64(7500 * time.Millisecond)
)

// Device time on an idle device costs nothing up to the busy share freeBusyShare of the devices. Where all are busy, and
// none is booked ahead, its price is busySharePrice.
const (
	freeBusyShare  = .3
	busySharePrice = .15
)

// maxExpectBacklog is the mean backlog from which on no tasks are expected: tasks then wait longer than loads take, and
// a device that is chosen long before its time is a bad one.
const maxExpectBacklog = int64(3 * time.Second)

// grow makes the search's arrays large enough for the tasks of a job.
func (s *search) grow(job *job) {
	taskCount := len(job.tasks)
	for len(s.currentDevice) < taskCount {
		s.currentDevice, s.currentEnd, s.currentBatch = append(s.currentDevice, -1), append(s.currentEnd, 0), append(s.currentBatch, -1)
		s.bestDevice, s.bestEnd, s.minRemaining = append(s.bestDevice, -1), append(s.bestEnd, 0), append(s.minRemaining, 0)
		s.bestStart, s.currentStart = append(s.bestStart, 0), append(s.currentStart, 0)
		s.candidateDevices, s.levels = append(s.candidateDevices, nil), append(s.levels, searchLevel{})
	}
}

// findDevices searches devices for the tasks of a job with which the last of them ends earliest, where ends count with what the device time
// costs other tasks. The result is in bestDevice, bestEnd and bestStart. bestLastCost is the cost of the last task, and farFuture if some
// task can run nowhere.
func (s *search) findDevices(now int64, job *job) {
	// Compute the earliest end of each task on each device, by which candidates are ordered, and the bound of the end.
	s.grow(job)
	s.scheduler.grow(job)
	s.scheduler.now = now
	const firstTask = 0
	s.scheduler.computeEnds(job, firstTask)
	s.now, s.bestLastCost, s.bestCostSum, s.steps, s.endBound = now, farFuture, farFuture, 0, s.scheduler.endBound(job)

	// Search from the first task on, with no task placed: no batch has a task of the job, and no costs have been summed up.
	s.jobBatches = s.jobBatches[:0]
	s.setPrices() // of device time, which tasks pay as far as others wait for the device
	s.prepareTasks(job)
	const lastCost, costSum = 0, 0
	s.placeTasksFrom(job, firstTask, lastCost, costSum)
}

// setPrices sets two prices of device time: queuedTimePrice on devices where tasks wait, and idleTimePrice on idle devices. A price is the
// time by which a task may end later to save one unit of device time, in units of 1/priceOne. With the option PriceDeviceTime off, both are 0.
//
// A batch of its own takes more device time than joining another batch. Where tasks wait, they wait for all of that time, and the longer
// devices are booked ahead, the more of them there are. On an idle device nobody waits yet, but the more devices are busy, the sooner some
// task will. So tasks of a request that are ready together share a batch then, although each would end a little sooner on a device of its own.
func (s *search) setPrices() {
	s.queuedTimePrice, s.idleTimePrice = 0, 0
	if !s.cluster.options.PriceDeviceTime {
		return
	}

	// The price on idle devices grows linearly from 0, where the share freeBusyShare of the devices is busy, to busySharePrice, where all are.
	// The price where tasks wait grows linearly from 0, where devices are booked ahead by freeBacklog, to priceOne at fullPriceBacklog, but is no
	// lower than the other.
	if excessBusy := s.cluster.busyShare() - freeBusyShare; excessBusy > 0 {
		s.idleTimePrice = int64(priceOne * busySharePrice * excessBusy / (1 - freeBusyShare))
	}
	s.queuedTimePrice = max(s.idleTimePrice, min(priceOne, priceOne*(s.cluster.meanBacklog(s.now)-freeBacklog)/(fullPriceBacklog-freeBacklog)))
}

// prepareTasks is called before the search. It takes over the devices of tasks that have one, lists the candidate devices of the others, and computes
// minRemaining, the least time from a task's end to that of the job. It goes backwards, because a task's readers come behind it.
func (s *search) prepareTasks(job *job) {
	// Count the tasks that the search places, and forget what an earlier job has left.
	unplacedTasks := 0
	for taskIndex := range job.tasks {
		if job.tasks[taskIndex].deviceIndex < 0 {
			unplacedTasks++
		}
	}
	clear(s.minRemaining[:len(job.tasks)])

	// Prepare each task after its readers, which have set its minRemaining.
	for taskIndex := len(job.tasks) - 1; taskIndex >= 0; taskIndex-- {
		jobTask := &job.tasks[taskIndex]
		if jobTask.deviceIndex >= 0 {
			s.currentDevice[taskIndex], s.currentEnd[taskIndex] = jobTask.deviceIndex, jobTask.end
			continue
		}
		// Each task that it reads ends before this one starts. So from there at least this task, on its quickest device, and what follows it remain.
		minFromStart := s.minRemaining[taskIndex] + scaleTime(s.tables.services[jobTask.service].minTaskTime, jobTask.workFactor)
		for _, input := range job.inputsOf(int32(taskIndex)) {
			if input >= 0 {
				s.minRemaining[input] = max(s.minRemaining[input], minFromStart)
			}
		}
		s.listCandidates(int32(taskIndex), unplacedTasks)
	}
}

// listCandidates lists the devices on which a task of the job could end earliest, by rising end.
// There are at most as many as the search may try: its width, and one for each other unplaced task, because these may take each other's
// best devices. With width 0 all devices are listed.
func (s *search) listCandidates(taskIndex int32, unplacedTasks int) {
	deviceCount := len(s.cluster.devices)
	maxCandidates := s.width + extraCandidates + unplacedTasks - 1
	if s.width == 0 || maxCandidates > deviceCount {
		maxCandidates = deviceCount
	}

	// Insert each device by its end, and drop the last one once there are enough.
	candidates := s.candidateDevices[taskIndex][:0]
	earliestEnds := s.scheduler.earliestEnds[int(s.scheduler.rowOf[taskIndex])*deviceCount:][:deviceCount]
	lastEnd := farFuture // end on the last device of a full list
	for deviceIndex, end := range earliestEnds {
		if len(candidates) == maxCandidates && end >= lastEnd || end >= farFuture {
			continue
		}
		if len(candidates) < maxCandidates {
			candidates = append(candidates, 0)
		}
		i := len(candidates) - 1
		for ; i > 0 && earliestEnds[candidates[i-1]] > end; i-- {
			candidates[i] = candidates[i-1]
		}
		candidates[i] = int32(deviceIndex)
		if len(candidates) == maxCandidates {
			lastEnd = earliestEnds[candidates[maxCandidates-1]]
		}
	}
	s.candidateDevices[taskIndex] = candidates
}

// placeTasksFrom is the recursive search. It tries the cheapest devices for task taskIndex of the job and, for each, places all later
// tasks. The cost of a placement is the end of the task, plus what its device time costs other tasks. lastCost is the highest cost and
// costSum the sum of the costs of the tasks placed so far. A complete schedule with a lower lastCost than the best one, or the same and a
// lower sum, replaces it.
// A branch that cannot become cheaper is left, as is the whole search when it has reached its bound (endBound, before which no schedule
// ends) or maxSteps.
func (s *search) placeTasksFrom(job *job, taskIndex int32, lastCost, costSum int64) {
	// Pass over tasks that have a device already.
	for taskIndex < int32(len(job.tasks)) && job.tasks[taskIndex].deviceIndex >= 0 {
		taskIndex++
	}

	// All tasks are placed: keep the schedule if it is better.
	if taskIndex == int32(len(job.tasks)) {
		if lastCost < s.bestLastCost || lastCost == s.bestLastCost && costSum < s.bestCostSum {
			s.bestLastCost, s.bestCostSum = lastCost, costSum
			copy(s.bestDevice, s.currentDevice)
			copy(s.bestEnd, s.currentEnd)
			copy(s.bestStart, s.currentStart)
		}
		return
	}

	// Otherwise try the cheapest placements of this task, as many as SearchWidth, or the cheapest one of all devices if that is 0.
	s.steps++
	jobTask := &job.tasks[taskIndex]
	level := &s.levels[taskIndex]
	s.collectPlacements(job, taskIndex, level)
	width := max(1, s.width)
	for range min(width, len(level.devices)) {
		i := cheapestIndex(level.placements)
		candidate := level.placements[i]

		// Stop if no device is left. Once there is a schedule, stop if this branch is costlier than that even with the least time that remains
		// behind this task (minRemaining), or if the search is done: the schedule has reached the bound, or the steps are used up.
		if candidate.cost >= farFuture {
			return
		}
		isCostlier := max(lastCost, candidate.cost+s.minRemaining[taskIndex]) > s.bestLastCost
		isDone := s.bestLastCost <= s.endBound || s.steps > s.maxSteps
		if s.bestLastCost < farFuture && (isCostlier || isDone) {
			return
		}
		level.placements[i].cost = farFuture // rules it out, so that it is not tried again
		s.currentDevice[taskIndex], s.currentEnd[taskIndex], s.currentStart[taskIndex] = level.devices[i], candidate.end, candidate.start

		// Join a batch of the job, or add one. Then place the later tasks, and undo the change for the next candidate.
		if candidate.jobBatchIndex >= 0 {
			batchBefore := s.jobBatches[candidate.jobBatchIndex]
			s.jobBatches[candidate.jobBatchIndex].addTask(s.tables, jobTask, &candidate)
			s.placeTasksFrom(job, taskIndex+1, max(lastCost, candidate.cost), costSum+candidate.cost)
			s.jobBatches[candidate.jobBatchIndex] = batchBefore
			continue
		}
		s.jobBatches = append(s.jobBatches, s.newJobBatch(level.devices[i], jobTask, &candidate))
		s.placeTasksFrom(job, taskIndex+1, max(lastCost, candidate.cost), costSum+candidate.cost)
		s.jobBatches = s.jobBatches[:len(s.jobBatches)-1]
	}
}

// newJobBatch returns the batch on a device that a task of the job is in, as its placement says: a new one, or a batch of the device's plan
// with the task added.
func (s *search) newJobBatch(deviceIndex int32, jobTask *jobTask, placement *placement) jobBatch {
	batch := jobBatch{deviceIndex: deviceIndex, plannedBatchIndex: placement.plannedBatchIndex}
	if placement.plannedBatchIndex >= 0 {
		batch.plannedBatch = s.cluster.devices[deviceIndex].plannedBatches[placement.plannedBatchIndex]
	} else {
		batch.plannedBatch = plannedBatch{service: jobTask.service, start: placement.start, lastJoinAt: placement.start}
	}
	batch.addTask(s.tables, jobTask, placement)
	return batch
}

// addTask adds a task of the job to the batch, as its placement says. The batch ends with its last task. On a language model a new batch takes
// further tasks until its end.
func (b *jobBatch) addTask(tables *deviceTables, jobTask *jobTask, placement *placement) {
	b.size++
	b.kvTokens += tables.tokensOf(jobTask.service, jobTask.workFactor)
	b.workFactor, b.end, b.recomputeTime = max(b.workFactor, jobTask.workFactor), max(b.end, placement.end), placement.recomputeTime
	if tables.isLanguageModel(jobTask.service) && b.plannedBatchIndex < 0 {
		b.lastJoinAt = b.end
	}
}

// cheapestIndex returns the index of the placement with the lowest cost. Of several, it is the first.
func cheapestIndex(placements []placement) int {
	cheapest := 0
	for i := range placements {
		if placements[i].cost < placements[cheapest].cost {
			cheapest = i
		}
	}
	return cheapest
}
