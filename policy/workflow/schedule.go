package workflow

import "slices"

// job holds the known and the expected tasks of a request, in an order in which every task comes after its inputs.
type job struct {
	tasks  []jobTask
	inputs []int32 // inputs of all tasks, as indexes in tasks; -1 stands for the client's input
}

// jobTask is a task of a job.
type jobTask struct {
	service              int32
	relativeWork         int64
	firstInput, endInput int32 // its range in job.inputs
	deviceIndex          int32 // place of a task that runs or has ended; -1 if the search chooses it
	end                  int64 // end of such a task
	// The next fields are of a task that continues a session state.
	recomputeTime int64 // time in ns to recompute the session state that it continues; 0 if none
	stateSource   int32 // task of this job that leaves the state, if that is yet to be placed; -1 if none
	stateDevice   int32 // otherwise the place of the state; -1 if it is nowhere
	stateReadyAt  int64 // when the state is there
	recomputeHere int64 // scratch of the search: time added at the place under consideration
}

func (j *job) reset() { j.tasks, j.inputs = j.tasks[:0], j.inputs[:0] }

// addPlaced adds a task that has its place, and returns its index.
func (j *job) addPlaced(service, deviceIndex int32, end int64) int32 {
	n := int32(len(j.inputs))
	j.tasks = append(j.tasks, jobTask{service: service, deviceIndex: deviceIndex, end: end, firstInput: n, endInput: n, stateSource: -1, stateDevice: -1})
	return int32(len(j.tasks) - 1)
}

// addUnplaced adds a task to be placed to the job, with the indexes of its inputs there (-1 for the client's), and
// returns its index.
func (j *job) addUnplaced(service int32, relativeWork int64, inputs ...int32) int32 {
	n := int32(len(j.inputs))
	j.inputs = append(j.inputs, inputs...)
	j.tasks = append(j.tasks, jobTask{service: service, relativeWork: relativeWork, deviceIndex: -1, firstInput: n, endInput: int32(len(j.inputs)), stateSource: -1, stateDevice: -1})
	return int32(len(j.tasks) - 1)
}

func (j *job) inputsOf(taskIndex int32) []int32 {
	return j.inputs[j.tasks[taskIndex].firstInput:j.tasks[taskIndex].endInput]
}

// scheduler computes f(t, d), the earliest end of task t of a job at place d, if tasks of the job do not get into each
// other's way (equations 1 and 2 of DyOrc). A transfer takes one of three times: 0 at the same place, c within a node, C
// across nodes. So the arrival of the inputs at d is a minimum of three numbers,
//
//	r_t(d) = max over inputs j of min( f_j(d),  min over e in node(d) of f_j(e) + c_j,  min over all e of f_j(e) + C_j )
//	f_t(d) = F_td(r_t(d))      with F_td from the end table
//
// and one pass over the places per task gives all f. No schedule ends before the latest of the last tasks at its best
// place. That is a bound, which a schedule reaches if every output has one reader.
//
// It allocates nothing once it has seen the largest job.
type scheduler struct {
	tables   *deviceTables
	endTable *endTable
	now      int64

	earliestEnds    []int64 // f of all tasks: [task*places + place]
	minEndOnNode    []int64 // minimum of f on a node: [task*nodes + node]
	minDeviceOnNode []int32 // place with that minimum
	minEnd          []int64 // by task: minimum of f
	minEndDevice    []int32 // by task: place with that minimum
	rowOf           []int32 // by task: an earlier task with the same f; otherwise the task itself
	inputsReadyAt   []int64 // by place: arrival of the inputs of the task at hand

	readerCount []int32 // by task: number of tasks that read it
}

func newScheduler(tables *deviceTables, r *endTable) *scheduler {
	return &scheduler{tables: tables, endTable: r, inputsReadyAt: make([]int64, len(tables.planDevice))}
}

// grow makes the arrays large enough for a job (the tasks of a request that are to be placed). It also counts for
// each task how many tasks read its output; an input that is listed twice counts once.
func (s *scheduler) grow(job *job) {
	n := len(job.tasks)
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	if len(s.minEnd) < n {
		s.earliestEnds, s.minEndOnNode, s.minDeviceOnNode = make([]int64, n*deviceCount), make([]int64, n*nodeCount), make([]int32, n*nodeCount)
		s.minEnd, s.minEndDevice, s.rowOf, s.readerCount = make([]int64, n), make([]int32, n), make([]int32, n), make([]int32, n)
	}
	for taskIndex := range n {
		s.readerCount[taskIndex] = 0
	}
	for taskIndex := range job.tasks {
		for i, input := range job.inputsOf(int32(taskIndex)) {
			if input >= 0 && !slices.Contains(job.inputsOf(int32(taskIndex))[:i], input) {
				s.readerCount[input]++
			}
		}
	}
}

// endBound returns a lower bound: no schedule of the job ends earlier. Only tasks that no other reads count, since
// the others end before them.
func (s *scheduler) endBound(job *job) int64 {
	lastEnd := int64(0)
	for taskIndex := range job.tasks {
		if s.readerCount[taskIndex] == 0 && job.tasks[taskIndex].deviceIndex < 0 {
			lastEnd = max(lastEnd, s.minEnd[s.rowOf[taskIndex]])
		}
	}
	return lastEnd
}

// computeEnds computes, for the tasks of a job from firstTask on, the earliest end f at each place (device). A
// placed task has its own end. A task that is identical to the one before shares its row of ends.
func (s *scheduler) computeEnds(job *job, firstTask int32) {
	for taskIndex := firstTask; taskIndex < int32(len(job.tasks)); taskIndex++ {
		jobTask := &job.tasks[taskIndex]
		s.rowOf[taskIndex] = taskIndex
		switch {
		case jobTask.deviceIndex >= 0:
			s.minEnd[taskIndex], s.minEndDevice[taskIndex] = jobTask.end, jobTask.deviceIndex
		case taskIndex > 0 && s.identicalTasks(job, taskIndex, taskIndex-1):
			s.rowOf[taskIndex] = s.rowOf[taskIndex-1]
		default:
			s.computeRow(taskIndex, jobTask, s.computeArrivals(job, taskIndex))
		}
	}
}

// identicalTasks returns true if two tasks need the same service and work on the same inputs and state, so that their
// rows of f are equal.
func (s *scheduler) identicalTasks(job *job, indexA, indexB int32) bool {
	taskA, taskB := &job.tasks[indexA], &job.tasks[indexB]
	return taskB.deviceIndex < 0 && taskA.service == taskB.service && taskA.relativeWork == taskB.relativeWork &&
		taskA.recomputeTime == taskB.recomputeTime && taskA.stateSource == taskB.stateSource && taskA.stateDevice == taskB.stateDevice && taskA.stateReadyAt == taskB.stateReadyAt && slices.Equal(job.inputsOf(indexA), job.inputsOf(indexB))
}

// computeArrivals computes into inputsReadyAt when the inputs of a task of the job are at each place (device), with
// the session state that it continues. It returns false, and leaves inputsReadyAt as it is, if all are there now.
func (s *scheduler) computeArrivals(job *job, taskIndex int32) bool {
	isLate := false
	for i, input := range job.inputsOf(taskIndex) {
		if input < 0 {
			continue
		}
		jobTask := &job.tasks[input]
		nearTime, farTime := s.transferTimes(&job.tasks[taskIndex], jobTask, input)

		// An input with a place arrives from there.
		if jobTask.deviceIndex >= 0 {
			if jobTask.end+farTime <= s.now {
				continue
			}
			isLate = s.resetArrivals(isLate)
			s.addDeviceArrival(jobTask.deviceIndex, jobTask.end, jobTask.end+nearTime, jobTask.end+farTime)
			continue
		}

		// An input without a place arrives from its row. Equal rows count once, unless a session state comes with
		// them.
		carriesState := input == job.tasks[taskIndex].stateSource
		if input = s.rowOf[input]; !carriesState && s.sharesRow(job.inputsOf(taskIndex)[:i], input) {
			continue
		}
		isLate = s.resetArrivals(isLate)
		s.addTaskArrival(input, nearTime, farTime)
	}

	// A session state that has its place arrives, too.
	if jobTask := &job.tasks[taskIndex]; jobTask.recomputeTime > 0 && jobTask.stateSource < 0 {
		isLate = s.resetArrivals(isLate)
		s.addStateArrival(jobTask)
	}
	return isLate
}

// transferTimes returns how long an output takes to a task that reads it, at another place of the node and across nodes.
// If the task continues a session state with it, recomputing the state counts as a way to bring it, so that the times
// stay lower bounds.
func (s *scheduler) transferTimes(reader, source *jobTask, input int32) (nearTime, farTime int64) {
	nearTime, farTime = s.tables.sameNodeTimes[source.service], s.tables.otherNodeTimes[source.service]
	if reader.recomputeTime > 0 && reader.stateSource == input {
		transfer := &s.tables.stateTransfers[reader.service]
		nearTime, farTime = max(nearTime, reader.recomputeTime*transfer.sameNodePart>>20), max(farTime, reader.recomputeTime*transfer.otherNodePart>>20)
	}
	return nearTime, farTime
}

// addStateArrival adds the arrival of a session state that has its place, or that is recomputed.
func (s *scheduler) addStateArrival(jobTask *jobTask) {
	if jobTask.stateDevice < 0 {
		for deviceIndex := range s.inputsReadyAt {
			s.inputsReadyAt[deviceIndex] = max(s.inputsReadyAt[deviceIndex], s.now+jobTask.recomputeTime)
		}
		return
	}
	transfer, stateAt := &s.tables.stateTransfers[jobTask.service], max(s.now, jobTask.stateReadyAt)
	s.addDeviceArrival(jobTask.stateDevice, stateAt, stateAt+jobTask.recomputeTime*transfer.sameNodePart>>20, stateAt+jobTask.recomputeTime*transfer.otherNodePart>>20)
}

// sharesRow returns true if one of the inputs has a given row of earliest ends; identical tasks share a row.
func (s *scheduler) sharesRow(inputs []int32, row int32) bool {
	for _, input := range inputs {
		if input >= 0 && s.rowOf[input] == row {
			return true
		}
	}
	return false
}

// resetArrivals sets the arrivals of inputs at all places to now, when the first input that is late is found. It
// returns true, the new value of the caller's flag.
func (s *scheduler) resetArrivals(isCleared bool) bool {
	if !isCleared {
		for deviceIndex := range s.inputsReadyAt {
			s.inputsReadyAt[deviceIndex] = s.now
		}
	}
	return true
}

// addDeviceArrival raises inputsReadyAt, when all inputs of a task are at each place, by an output that is at one
// place. It arrives at atPlace there, at onSameNode at the other devices of the node, and at onOtherNode elsewhere.
func (s *scheduler) addDeviceArrival(deviceIndex int32, atPlace, onSameNode, onOtherNode int64) {
	readyHere := max(s.inputsReadyAt[deviceIndex], atPlace)
	node := s.tables.nodes[s.tables.nodeOf[deviceIndex]]
	for deviceIndex := range s.inputsReadyAt[:node.first] {
		s.inputsReadyAt[deviceIndex] = max(s.inputsReadyAt[deviceIndex], onOtherNode)
	}
	onNode := s.inputsReadyAt[node.first:node.end]
	for deviceIndex := range onNode {
		onNode[deviceIndex] = max(onNode[deviceIndex], onSameNode)
	}
	laterNodes := s.inputsReadyAt[node.end:]
	for deviceIndex := range laterNodes {
		laterNodes[deviceIndex] = max(laterNodes[deviceIndex], onOtherNode)
	}
	s.inputsReadyAt[deviceIndex] = readyHere
}

// addTaskArrival raises inputsReadyAt, when all inputs of a task are at each place, by the output of task t, whose
// place is not chosen yet. It may come from the same place, from the best place of the node, or from the best place
// of all; the earliest counts, so the result is a lower bound.
func (s *scheduler) addTaskArrival(taskIndex int32, nearTime, farTime int64) {
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	placeEnds := s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount]
	bestAcross := s.minEnd[taskIndex] + farTime
	for n, node := range s.tables.nodes {
		arrival := min(bestAcross, s.minEndOnNode[int(taskIndex)*nodeCount+n]+nearTime)
		nodeEnds, nodeReady := placeEnds[node.first:node.end], s.inputsReadyAt[node.first:node.end]
		nodeReady = nodeReady[:len(nodeEnds)]
		for deviceIndex, end := range nodeEnds {
			nodeReady[deviceIndex] = max(nodeReady[deviceIndex], min(end, arrival))
		}
	}
}

// computeRow computes the earliest end f of a task at each place, from the arrivals of its inputs, with the minima
// by node and overall. isLate says that some input is not there yet. Three loops do the same for speed: without
// arrivals, with usual work, and with scaled work (in units of 1/2^20).
func (s *scheduler) computeRow(taskIndex int32, jobTask *jobTask, isLate bool) {
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	placeEnds := s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount]
	rowStart := int(jobTask.service) * deviceCount
	idleAt, soloTime := s.endTable.idleAt[rowStart:][:deviceCount], s.endTable.soloTime[rowStart:][:deviceCount]

	// f in a batch of one.
	switch {
	case !isLate:
		for deviceIndex, idle := range idleAt {
			placeEnds[deviceIndex] = max(idle, s.now) + scaleTime(soloTime[deviceIndex], jobTask.relativeWork)
		}
	case jobTask.relativeWork == usualWork:
		ready := s.inputsReadyAt[:deviceCount]
		for deviceIndex, idle := range idleAt {
			placeEnds[deviceIndex] = max(idle, ready[deviceIndex]) + soloTime[deviceIndex]
		}
	default:
		ready := s.inputsReadyAt[:deviceCount]
		for deviceIndex, idle := range idleAt {
			placeEnds[deviceIndex] = max(idle, ready[deviceIndex]) + soloTime[deviceIndex]*jobTask.relativeWork>>20
		}
	}

	// f in an open batch, if that is earlier.
	if s.endTable.joinableDevices[jobTask.service] > 0 {
		s.applyJoins(placeEnds, jobTask, isLate)
	}

	// The minima.
	s.minEnd[taskIndex] = farFuture
	for n, node := range s.tables.nodes {
		minEnd, deviceIndex := farFuture, node.first
		for d, end := range placeEnds[node.first:node.end] {
			if end < minEnd {
				minEnd, deviceIndex = end, node.first+int32(d)
			}
		}
		s.minEndOnNode[int(taskIndex)*nodeCount+n], s.minDeviceOnNode[int(taskIndex)*nodeCount+n] = minEnd, deviceIndex
		if minEnd < s.minEnd[taskIndex] {
			s.minEnd[taskIndex], s.minEndDevice[taskIndex] = minEnd, deviceIndex
		}
	}
}

// applyJoins lowers the ends in placeEnds where the task could join a planned batch that is still open when its
// inputs are there, and would end earlier than in a batch of its own.
func (s *scheduler) applyJoins(placeEnds []int64, jobTask *jobTask, isLate bool) {
	rowStart := int(jobTask.service) * len(placeEnds)
	joinStart, joinDuration := s.endTable.joinStart[rowStart:][:len(placeEnds)], s.endTable.joinDuration[rowStart:][:len(placeEnds)]
	for deviceIndex, start := range joinStart {
		readyAt := s.now
		if isLate {
			readyAt = s.inputsReadyAt[deviceIndex]
		}
		if start >= readyAt {
			placeEnds[deviceIndex] = min(placeEnds[deviceIndex], start+scaleTime(joinDuration[deviceIndex], jobTask.relativeWork))
		}
	}
}
