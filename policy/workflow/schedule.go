package workflow

import "slices"

// job holds tasks of a request that are to be placed together, revealed and expected ones, and the tasks that they read.
// Every task comes behind its inputs.
type job struct {
	tasks  []jobTask
	inputs []int32 // inputs of all tasks, as indexes in tasks; -1 stands for the client's input
}

// jobTask is a task of a job. Times are in ns.
type jobTask struct {
	service              int32
	workFactor           int64 // its time divided by that of a usual task, in fixed point
	firstInput, endInput int32 // its range in job.inputs
	deviceIndex          int32 // device of a task that runs, waits or has ended; -1 if the search chooses it
	end                  int64 // end of a task that has a device
	// The next fields are of a task that continues a session state, which is what a service keeps of a request for the next task.
	recomputeTime int64 // time to recompute the state that it continues; 0 if it continues none
	stateSource   int32 // the task of this job that leaves the state, if that has no device yet; -1 otherwise
	stateDevice   int32 // the device that has the state, if stateSource is -1; -1 if no device has it
	stateReadyAt  int64 // when the state is on that device
	recomputeHere int64 // scratch of the search: time to recompute the state on the device that is tried; 0 if the state is there or moved there
}

// reset removes all tasks.
func (j *job) reset() { j.tasks, j.inputs = j.tasks[:0], j.inputs[:0] }

// addPlaced adds a task of a service that has a device already and ends at `end`, in ns, and returns its index in the job.
func (j *job) addPlaced(service, deviceIndex int32, end int64) int32 {
	firstInput := int32(len(j.inputs))
	j.tasks = append(j.tasks, jobTask{service: service, deviceIndex: deviceIndex, end: end, firstInput: firstInput, endInput: firstInput, stateSource: -1, stateDevice: -1})
	return int32(len(j.tasks) - 1)
}

// addUnplaced adds a task that is to be given a device, and returns its index in the job. inputs are the indexes in the job of the tasks
// that it reads, or -1 for the client's input. workFactor is its time divided by that of a usual task, in fixed point.
func (j *job) addUnplaced(service int32, workFactor int64, inputs ...int32) int32 {
	firstInput := int32(len(j.inputs))
	j.inputs = append(j.inputs, inputs...)
	j.tasks = append(j.tasks, jobTask{service: service, workFactor: workFactor, deviceIndex: -1, firstInput: firstInput, endInput: int32(len(j.inputs)), stateSource: -1, stateDevice: -1})
	return int32(len(j.tasks) - 1)
}

// inputsOf returns the inputs of a task of the job, as indexes in the job. -1 stands for the client's input.
func (j *job) inputsOf(taskIndex int32) []int32 {
	return j.inputs[j.tasks[taskIndex].firstInput:j.tasks[taskIndex].endInput]
}

// scheduler computes f(t, d), the earliest end of task t of a job on device d, if tasks of the job do not get into each other's way
// (equations 1 and 2 of DyOrc). A transfer takes one of three times: 0 on the same device, c within a node, C across nodes.
// So the arrival of the inputs at d is a minimum of three numbers,
//
//	r_t(d) = max over inputs j of min( f_j(d),  min over e in node(d) of f_j(e) + c_j,  min over all e of f_j(e) + C_j )
//	f_t(d) = F_td(r_t(d))      with F_td from the end table
//
// and one pass over the devices per task gives all f. No schedule ends before the latest of the last tasks on its best device.
// That is a bound, which a schedule reaches if every output has one reader.
//
// It allocates nothing once it has seen the largest job. Times are in ns.
type scheduler struct {
	tables   *deviceTables
	endTable *endTable
	now      int64

	earliestEnds    []int64 // f of all tasks: [task*devices + device]; the values of a task are its row
	minEndOnNode    []int64 // minimum of f on a node: [task*nodes + node]
	minDeviceOnNode []int32 // the device with that minimum
	minEnd          []int64 // by task: minimum of f over all devices
	minEndDevice    []int32 // by task: the device with that minimum
	rowOf           []int32 // by task: the task whose row it uses; an earlier identical one, or itself
	inputsReadyAt   []int64 // by device: arrival of the inputs of the task at hand

	readerCount []int32 // by task: number of tasks that read it
}

// newScheduler returns a scheduler, which computes the earliest ends of the tasks of a job from an end table.
func newScheduler(tables *deviceTables, ends *endTable) *scheduler {
	return &scheduler{tables: tables, endTable: ends, inputsReadyAt: make([]int64, len(tables.planDevice))}
}

// grow makes the scheduler's arrays large enough for a job, and counts for each task of the job how many tasks read its output.
// A task that lists an input twice counts once.
func (s *scheduler) grow(job *job) {
	taskCount := len(job.tasks)
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	if len(s.minEnd) < taskCount {
		s.earliestEnds, s.minEndOnNode, s.minDeviceOnNode = make([]int64, taskCount*deviceCount), make([]int64, taskCount*nodeCount), make([]int32, taskCount*nodeCount)
		s.minEnd, s.minEndDevice, s.rowOf, s.readerCount = make([]int64, taskCount), make([]int32, taskCount), make([]int32, taskCount), make([]int32, taskCount)
	}

	// Count the readers of each task.
	clear(s.readerCount[:taskCount])
	for taskIndex := range job.tasks {
		for i, input := range job.inputsOf(int32(taskIndex)) {
			if input >= 0 && !slices.Contains(job.inputsOf(int32(taskIndex))[:i], input) {
				s.readerCount[input]++
			}
		}
	}
}

// endBound returns a time in ns before which no schedule of the job ends: the latest of the earliest ends of its unplaced tasks.
// Only tasks that no other task reads are looked at, since the others end before these.
func (s *scheduler) endBound(job *job) int64 {
	lastEnd := int64(0)
	for taskIndex := range job.tasks {
		if s.readerCount[taskIndex] == 0 && job.tasks[taskIndex].deviceIndex < 0 {
			lastEnd = max(lastEnd, s.minEnd[s.rowOf[taskIndex]])
		}
	}
	return lastEnd
}

// computeEnds computes into earliestEnds, for each task of a job from firstTask on and each device, the earliest end of the task there. It
// follows from the ends of the task's inputs, which come before it in the job. The ends of one task on all devices are its row; minEnd has
// the earliest of them, and minEndDevice its device. Everything about a task is read at the index rowOf of the task.
// A task that has a device already has a minEnd, its end there, and no row. A task that is identical to the one before it has no row and
// no minEnd: its rowOf is that of the other task.
func (s *scheduler) computeEnds(job *job, firstTask int32) {
	for taskIndex := firstTask; taskIndex < int32(len(job.tasks)); taskIndex++ {
		jobTask := &job.tasks[taskIndex]
		s.rowOf[taskIndex] = taskIndex
		switch {
		case jobTask.deviceIndex >= 0: // it has a device, and so needs no row
			s.minEnd[taskIndex], s.minEndDevice[taskIndex] = jobTask.end, jobTask.deviceIndex
		case taskIndex > 0 && s.identicalTasks(job, taskIndex, taskIndex-1):
			s.rowOf[taskIndex] = s.rowOf[taskIndex-1]
		default:
			s.computeRow(taskIndex, jobTask, s.computeArrivals(job, taskIndex))
		}
	}
}

// identicalTasks returns true if two tasks of a job, given by their indexes, need the same service and work on the same inputs and session state.
// Then their earliest ends are equal on every device. A task indexB that has its device already is identical to none.
func (s *scheduler) identicalTasks(job *job, indexA, indexB int32) bool {
	taskA, taskB := &job.tasks[indexA], &job.tasks[indexB]
	return taskB.deviceIndex < 0 && taskA.service == taskB.service && taskA.workFactor == taskB.workFactor &&
		taskA.recomputeTime == taskB.recomputeTime && taskA.stateSource == taskB.stateSource && taskA.stateDevice == taskB.stateDevice && taskA.stateReadyAt == taskB.stateReadyAt && slices.Equal(job.inputsOf(indexA), job.inputsOf(indexB))
}

// computeArrivals computes into inputsReadyAt, for each device, when the inputs of a task of the job and the session state that it
// continues can be there. It returns false, and leaves inputsReadyAt as it is, if all of them can be everywhere now.
// An input that the search has yet to place counts as later than now. It arrives from its row: its earliest end on each device.
func (s *scheduler) computeArrivals(job *job, taskIndex int32) bool {
	waitsForInputs := false // becomes true with the first arrival that is later than now, for which resetArrivals fills inputsReadyAt
	for i, input := range job.inputsOf(taskIndex) {
		if input < 0 {
			continue
		}
		inputTask := &job.tasks[input]
		nearTime, farTime := s.transferTimes(&job.tasks[taskIndex], inputTask, input)

		// An input that has a device arrives from there.
		if inputTask.deviceIndex >= 0 {
			if inputTask.end+farTime <= s.now {
				continue // it is everywhere already
			}
			waitsForInputs = s.resetArrivals(waitsForInputs)
			s.addDeviceArrival(inputTask.deviceIndex, inputTask.end, inputTask.end+nearTime, inputTask.end+farTime)
			continue
		}

		// An input without a device arrives from its row of earliest ends. If an earlier input is identical and so uses the same row, it arrives
		// at the same times, unless a session state comes with one of them.
		carriesState := input == job.tasks[taskIndex].stateSource
		row := s.rowOf[input] // the task whose row it uses
		if !carriesState && s.sharesRow(job.inputsOf(taskIndex)[:i], row) {
			continue
		}
		waitsForInputs = s.resetArrivals(waitsForInputs)
		s.addTaskArrival(row, nearTime, farTime)
	}

	// A session state that a device has, or that is recomputed, arrives, too.
	if reader := &job.tasks[taskIndex]; reader.recomputeTime > 0 && reader.stateSource < 0 {
		waitsForInputs = s.resetArrivals(waitsForInputs)
		s.addStateArrival(reader)
	}
	return waitsForInputs
}

// transferTimes returns how long, in ns, the output of a task (source, with the index input in the job) takes to a task that reads it: to
// another device of the node, and to another node. If the reader also continues the session state of source, the times are at least those
// after which it can use the state, moved or recomputed. The tables have these as parts of the time to recompute the state, in fixed point.
func (s *scheduler) transferTimes(reader, source *jobTask, input int32) (nearTime, farTime int64) {
	nearTime, farTime = s.tables.sameNodeTimes[source.service], s.tables.otherNodeTimes[source.service]
	if reader.recomputeTime > 0 && reader.stateSource == input {
		transfer := &s.tables.stateTransfers[reader.service]
		nearTime, farTime = max(nearTime, reader.recomputeTime*transfer.sameNodePart>>fixedBits), max(farTime, reader.recomputeTime*transfer.otherNodePart>>fixedBits)
	}
	return nearTime, farTime
}

// addStateArrival raises inputsReadyAt by the session state that a task continues, if that is on a device already: on every other device
// the state is moved there or recomputed, whichever is quicker. If no device has the state, it is recomputed everywhere.
func (s *scheduler) addStateArrival(jobTask *jobTask) {
	if jobTask.stateDevice < 0 { // no device has it
		for deviceIndex := range s.inputsReadyAt {
			s.inputsReadyAt[deviceIndex] = max(s.inputsReadyAt[deviceIndex], s.now+jobTask.recomputeTime)
		}
		return
	}
	transfer, stateAt := &s.tables.stateTransfers[jobTask.service], max(s.now, jobTask.stateReadyAt)
	s.addDeviceArrival(jobTask.stateDevice, stateAt, stateAt+jobTask.recomputeTime*transfer.sameNodePart>>fixedBits, stateAt+jobTask.recomputeTime*transfer.otherNodePart>>fixedBits)
}

// sharesRow returns true if one of the inputs (indexes in the job) uses a given row of earliest ends.
// Identical tasks use one row, which has to be counted once.
func (s *scheduler) sharesRow(inputs []int32, row int32) bool {
	for _, input := range inputs {
		if input >= 0 && s.rowOf[input] == row {
			return true
		}
	}
	return false
}

// resetArrivals sets inputsReadyAt to now for all devices, unless isReset says that this has been done.
// It returns true, the new value of the caller's flag. So the array is written only if some input arrives later than now.
func (s *scheduler) resetArrivals(isReset bool) bool {
	if !isReset {
		for deviceIndex := range s.inputsReadyAt {
			s.inputsReadyAt[deviceIndex] = s.now
		}
	}
	return true
}

// addDeviceArrival raises inputsReadyAt by an input that is on a known device. The input is there at onDevice, at the other devices of the
// node at onSameNode, and on other nodes at onOtherNode, in ns.
func (s *scheduler) addDeviceArrival(deviceIndex int32, onDevice, onSameNode, onOtherNode int64) {
	// Devices are sorted by node, so the other nodes are before and behind the devices of this one. The device itself is set last, because
	// the loop over its node raises it as well.
	readyHere := max(s.inputsReadyAt[deviceIndex], onDevice)
	node := s.tables.nodes[s.tables.nodeOf[deviceIndex]]
	for i := range s.inputsReadyAt[:node.first] {
		s.inputsReadyAt[i] = max(s.inputsReadyAt[i], onOtherNode)
	}
	onNode := s.inputsReadyAt[node.first:node.end]
	for i := range onNode {
		onNode[i] = max(onNode[i], onSameNode)
	}
	laterNodes := s.inputsReadyAt[node.end:]
	for i := range laterNodes {
		laterNodes[i] = max(laterNodes[i], onOtherNode)
	}
	s.inputsReadyAt[deviceIndex] = readyHere
}

// addTaskArrival raises inputsReadyAt by the output of a task of the job that has no device yet.
// At each device the output may come from a task on this device itself, from the best device of the node (nearTime later) or from the best
// device of all (farTime later); the earliest counts, so the result is a lower bound.
func (s *scheduler) addTaskArrival(taskIndex int32, nearTime, farTime int64) {
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	deviceEnds := s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount]
	arrivalAcross := s.minEnd[taskIndex] + farTime
	for nodeIndex, node := range s.tables.nodes {
		arrival := min(arrivalAcross, s.minEndOnNode[int(taskIndex)*nodeCount+nodeIndex]+nearTime)
		nodeEnds, nodeReady := deviceEnds[node.first:node.end], s.inputsReadyAt[node.first:node.end]
		nodeReady = nodeReady[:len(nodeEnds)] // so that the compiler drops bounds checks
		for i, end := range nodeEnds {
			nodeReady[i] = max(nodeReady[i], min(end, arrival))
		}
	}
}

// computeRow computes the row of a task, its earliest end on each device, and the minima of the row by node and over all devices.
// If waitsForInputs is true, inputsReadyAt has the arrival of the task's inputs at each device; otherwise they can be everywhere now.
// The end table says when a device is idle for the service, and how long a task of usual work (fixedOne) takes there.
func (s *scheduler) computeRow(taskIndex int32, jobTask *jobTask, waitsForInputs bool) {
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	deviceEnds := s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount]
	rowStart := int(jobTask.service) * deviceCount // the end table has a row for each service
	idleAt, soloTime := s.endTable.idleAt[rowStart:][:deviceCount], s.endTable.soloTime[rowStart:][:deviceCount]

	// The earliest end in a batch of one: from when the device is idle and the inputs are there, for the time of the task. The three loops do
	// the same, for speed. The second leaves out scaleTime, which changes nothing with the usual work, and the third has its formula.
	switch {
	case !waitsForInputs:
		for deviceIndex, idleTime := range idleAt {
			deviceEnds[deviceIndex] = max(idleTime, s.now) + scaleTime(soloTime[deviceIndex], jobTask.workFactor)
		}
	case jobTask.workFactor == fixedOne:
		readyAt := s.inputsReadyAt[:deviceCount]
		for deviceIndex, idleTime := range idleAt {
			deviceEnds[deviceIndex] = max(idleTime, readyAt[deviceIndex]) + soloTime[deviceIndex]
		}
	default:
		readyAt := s.inputsReadyAt[:deviceCount]
		for deviceIndex, idleTime := range idleAt {
			deviceEnds[deviceIndex] = max(idleTime, readyAt[deviceIndex]) + soloTime[deviceIndex]*jobTask.workFactor>>fixedBits
		}
	}

	// The earliest end in a planned batch that the task can join, if that is earlier.
	if s.endTable.joinableDevices[jobTask.service] > 0 {
		s.applyJoins(deviceEnds, jobTask, waitsForInputs)
	}

	// The minima, and the devices that have them. Of several, it is the first.
	s.minEnd[taskIndex] = farFuture
	for nodeIndex, node := range s.tables.nodes {
		minEnd, deviceIndex := farFuture, node.first
		for i, end := range deviceEnds[node.first:node.end] {
			if end < minEnd {
				minEnd, deviceIndex = end, node.first+int32(i)
			}
		}
		s.minEndOnNode[int(taskIndex)*nodeCount+nodeIndex], s.minDeviceOnNode[int(taskIndex)*nodeCount+nodeIndex] = minEnd, deviceIndex
		if minEnd < s.minEnd[taskIndex] {
			s.minEnd[taskIndex], s.minEndDevice[taskIndex] = minEnd, deviceIndex
		}
	}
}

// applyJoins lowers the earliest ends of a task on devices where it can join a planned batch and then ends earlier than in a batch of its
// own. It can join if its inputs are there by the start of the batch. deviceEnds has the ends by device.
// If waitsForInputs is true, inputsReadyAt has the arrival of the task's inputs at each device; otherwise they can be everywhere now.
func (s *scheduler) applyJoins(deviceEnds []int64, jobTask *jobTask, waitsForInputs bool) {
	rowStart := int(jobTask.service) * len(deviceEnds)
	joinStart, joinDuration := s.endTable.joinStart[rowStart:][:len(deviceEnds)], s.endTable.joinDuration[rowStart:][:len(deviceEnds)]
	for deviceIndex, start := range joinStart {
		readyAt := s.now
		if waitsForInputs {
			readyAt = s.inputsReadyAt[deviceIndex]
		}
		if start >= readyAt { // never for -1, which stands for no batch
			deviceEnds[deviceIndex] = min(deviceEnds[deviceIndex], start+scaleTime(joinDuration[deviceIndex], jobTask.workFactor))
		}
	}
}
