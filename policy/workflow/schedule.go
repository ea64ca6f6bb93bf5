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
	work                 int64
	firstInput, endInput int32 // its range in job.inputs
	place                int32 // place of a task that runs or has ended; -1 if the search chooses it
	end                  int64 // end of such a task
	// The next fields are of a task that continues a session state.
	recomputeTime int64 // time in ns to recompute the session state that it continues; 0 if none
	stateFrom     int32 // task of this job that leaves the state, if that is yet to be placed; -1 if none
	stateHome     int32 // otherwise the place of the state; -1 if it is nowhere
	stateHomeAt   int64 // when the state is there
	addedTime     int64 // scratch of the search: time added at the place under consideration
}

func (j *job) reset() { j.tasks, j.inputs = j.tasks[:0], j.inputs[:0] }

// addPlaced adds a task that has its place, and returns its index.
func (j *job) addPlaced(service, place int32, end int64) int32 {
	n := int32(len(j.inputs))
	j.tasks = append(j.tasks, jobTask{service: service, place: place, end: end, firstInput: n, endInput: n, stateFrom: -1, stateHome: -1})
	return int32(len(j.tasks) - 1)
}

// addUnplaced adds a task to be placed to the job, with the indexes of its inputs there (-1 for the client's), and
// returns its index.
func (j *job) addUnplaced(service int32, work int64, inputs ...int32) int32 {
	n := int32(len(j.inputs))
	j.inputs = append(j.inputs, inputs...)
	j.tasks = append(j.tasks, jobTask{service: service, work: work, place: -1, firstInput: n, endInput: int32(len(j.inputs)), stateFrom: -1, stateHome: -1})
	return int32(len(j.tasks) - 1)
}

func (j *job) inputsOf(t int32) []int32 { return j.inputs[j.tasks[t].firstInput:j.tasks[t].endInput] }

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

	earliestEnds   []int64 // f of all tasks: [task*places + place]
	minEndOnNode   []int64 // minimum of f on a node: [task*nodes + node]
	minPlaceOnNode []int32 // place with that minimum
	minEnd         []int64 // by task: minimum of f
	minEndPlace    []int32 // by task: place with that minimum
	rowOf          []int32 // by task: an earlier task with the same f; otherwise the task itself
	inputsReady    []int64 // by place: arrival of the inputs of the task at hand

	readerCount []int32 // by task: number of tasks that read it
}

func newScheduler(f *deviceTables, r *endTable) *scheduler {
	return &scheduler{tables: f, endTable: r, inputsReady: make([]int64, len(f.deviceAt))}
}

// grow makes the arrays large enough for a job (the tasks of a request that are to be placed). It also counts for
// each task how many tasks read its output; an input that is listed twice counts once.
func (s *scheduler) grow(j *job) {
	n := len(j.tasks)
	places, nodes := len(s.tables.deviceAt), len(s.tables.nodes)
	if len(s.minEnd) < n {
		s.earliestEnds, s.minEndOnNode, s.minPlaceOnNode = make([]int64, n*places), make([]int64, n*nodes), make([]int32, n*nodes)
		s.minEnd, s.minEndPlace, s.rowOf, s.readerCount = make([]int64, n), make([]int32, n), make([]int32, n), make([]int32, n)
	}
	for t := range n {
		s.readerCount[t] = 0
	}
	for t := range j.tasks {
		for i, in := range j.inputsOf(int32(t)) {
			if in >= 0 && !slices.Contains(j.inputsOf(int32(t))[:i], in) {
				s.readerCount[in]++
			}
		}
	}
}

// endBound returns a lower bound: no schedule of the job ends earlier. Only tasks that no other reads count, since
// the others end before them.
func (s *scheduler) endBound(j *job) int64 {
	lastEnd := int64(0)
	for t := range j.tasks {
		if s.readerCount[t] == 0 && j.tasks[t].place < 0 {
			lastEnd = max(lastEnd, s.minEnd[s.rowOf[t]])
		}
	}
	return lastEnd
}

// computeEnds computes, for the tasks of a job from firstTask on, the earliest end f at each place (device). A
// placed task has its own end. A task that is identical to the one before shares its row of ends.
func (s *scheduler) computeEnds(j *job, firstTask int32) {
	for t := firstTask; t < int32(len(j.tasks)); t++ {
		k := &j.tasks[t]
		s.rowOf[t] = t
		switch {
		case k.place >= 0:
			s.minEnd[t], s.minEndPlace[t] = k.end, k.place
		case t > 0 && s.identicalTasks(j, t, t-1):
			s.rowOf[t] = s.rowOf[t-1]
		default:
			s.computeRow(t, k, s.computeArrivals(j, t))
		}
	}
}

// identicalTasks returns true if two tasks need the same service and work on the same inputs and state, so that their
// rows of f are equal.
func (s *scheduler) identicalTasks(j *job, a, b int32) bool {
	taskA, taskB := &j.tasks[a], &j.tasks[b]
	return taskB.place < 0 && taskA.service == taskB.service && taskA.work == taskB.work &&
		taskA.recomputeTime == taskB.recomputeTime && taskA.stateFrom == taskB.stateFrom && taskA.stateHome == taskB.stateHome && taskA.stateHomeAt == taskB.stateHomeAt && slices.Equal(j.inputsOf(a), j.inputsOf(b))
}

// computeArrivals computes into inputsReady when the inputs of a task of the job are at each place (device), with
// the session state that it continues. It returns false, and leaves inputsReady as it is, if all are there now.
func (s *scheduler) computeArrivals(j *job, t int32) bool {
	isLate := false
	for i, in := range j.inputsOf(t) {
		if in < 0 {
			continue
		}
		k := &j.tasks[in]
		nearTime, farTime := s.transferTimes(&j.tasks[t], k, in)

		// An input with a place arrives from there.
		if k.place >= 0 {
			if k.end+farTime <= s.now {
				continue
			}
			isLate = s.clearArrivals(isLate)
			s.arriveFromPlace(k.place, k.end, k.end+nearTime, k.end+farTime)
			continue
		}

		// An input without a place arrives from its row. Equal rows count once, unless a session state comes with
		// them.
		carriesState := in == j.tasks[t].stateFrom
		if in = s.rowOf[in]; !carriesState && s.hasRow(j.inputsOf(t)[:i], in) {
			continue
		}
		isLate = s.clearArrivals(isLate)
		s.arriveFromRow(in, nearTime, farTime)
	}

	// A session state that has its place arrives, too.
	if k := &j.tasks[t]; k.recomputeTime > 0 && k.stateFrom < 0 {
		isLate = s.clearArrivals(isLate)
		s.arriveFromHome(k)
	}
	return isLate
}

// transferTimes returns how long an output takes to a task that reads it, at another place of the node and across nodes.
// If the task continues a session state with it, recomputing the state counts as a way to bring it, so that the times
// stay lower bounds.
func (s *scheduler) transferTimes(reader, source *jobTask, in int32) (nearTime, farTime int64) {
	nearTime, farTime = s.tables.sameNodeTime[source.service], s.tables.otherNodeTime[source.service]
	if reader.recomputeTime > 0 && reader.stateFrom == in {
		t := &s.tables.stateTransfers[reader.service]
		nearTime, farTime = max(nearTime, reader.recomputeTime*t.sameNode>>20), max(farTime, reader.recomputeTime*t.otherNode>>20)
	}
	return nearTime, farTime
}

// arriveFromHome adds the arrival of a session state that has its place, or that is recomputed.
func (s *scheduler) arriveFromHome(k *jobTask) {
	if k.stateHome < 0 {
		for d := range s.inputsReady {
			s.inputsReady[d] = max(s.inputsReady[d], s.now+k.recomputeTime)
		}
		return
	}
	t, stateAt := &s.tables.stateTransfers[k.service], max(s.now, k.stateHomeAt)
	s.arriveFromPlace(k.stateHome, stateAt, stateAt+k.recomputeTime*t.sameNode>>20, stateAt+k.recomputeTime*t.otherNode>>20)
}

// hasRow returns true if one of the inputs has a given row of earliest ends; identical tasks share a row.
func (s *scheduler) hasRow(inputs []int32, row int32) bool {
	for _, in := range inputs {
		if in >= 0 && s.rowOf[in] == row {
			return true
		}
	}
	return false
}

// clearArrivals sets the arrivals of inputs at all places to now, when the first input that is late is found. It
// returns true, the new value of the caller's flag.
func (s *scheduler) clearArrivals(isCleared bool) bool {
	if !isCleared {
		for d := range s.inputsReady {
			s.inputsReady[d] = s.now
		}
	}
	return true
}

// arriveFromPlace raises inputsReady, when all inputs of a task are at each place, by an output that is at one
// place. It arrives at atPlace there, at onSameNode at the other devices of the node, and at onOtherNode elsewhere.
func (s *scheduler) arriveFromPlace(place int32, atPlace, onSameNode, onOtherNode int64) {
	readyHere := max(s.inputsReady[place], atPlace)
	node := s.tables.nodes[s.tables.nodeOf[place]]
	for d := range s.inputsReady[:node.first] {
		s.inputsReady[d] = max(s.inputsReady[d], onOtherNode)
	}
	onNode := s.inputsReady[node.first:node.end]
	for d := range onNode {
		onNode[d] = max(onNode[d], onSameNode)
	}
	laterNodes := s.inputsReady[node.end:]
	for d := range laterNodes {
		laterNodes[d] = max(laterNodes[d], onOtherNode)
	}
	s.inputsReady[place] = readyHere
}

// arriveFromRow raises inputsReady, when all inputs of a task are at each place, by the output of task t, whose
// place is not chosen yet. It may come from the same place, from the best place of the node, or from the best place
// of all; the earliest counts, so the result is a lower bound.
func (s *scheduler) arriveFromRow(t int32, nearTime, farTime int64) {
	places, nodes := len(s.tables.deviceAt), len(s.tables.nodes)
	placeEnds := s.earliestEnds[int(t)*places:][:places]
	bestAcross := s.minEnd[t] + farTime
	for n, node := range s.tables.nodes {
		arrival := min(bestAcross, s.minEndOnNode[int(t)*nodes+n]+nearTime)
		nodeEnds, nodeReady := placeEnds[node.first:node.end], s.inputsReady[node.first:node.end]
		nodeReady = nodeReady[:len(nodeEnds)]
		for d, end := range nodeEnds {
			nodeReady[d] = max(nodeReady[d], min(end, arrival))
		}
	}
}

// computeRow computes the earliest end f of a task at each place, from the arrivals of its inputs, with the minima
// by node and overall. isLate says that some input is not there yet. Three loops do the same for speed: without
// arrivals, with usual work, and with scaled work (in units of 1/2^20).
func (s *scheduler) computeRow(t int32, k *jobTask, isLate bool) {
	places, nodes := len(s.tables.deviceAt), len(s.tables.nodes)
	placeEnds := s.earliestEnds[int(t)*places:][:places]
	rowStart := int(k.service) * places
	idleAt, soloTime := s.endTable.idleAt[rowStart:][:places], s.endTable.soloTime[rowStart:][:places]

	// f in a batch of one.
	switch {
	case !isLate:
		for d, idle := range idleAt {
			placeEnds[d] = max(idle, s.now) + scaleTime(soloTime[d], k.work)
		}
	case k.work == usualWork:
		ready := s.inputsReady[:places]
		for d, idle := range idleAt {
			placeEnds[d] = max(idle, ready[d]) + soloTime[d]
		}
	default:
		ready := s.inputsReady[:places]
		for d, idle := range idleAt {
			placeEnds[d] = max(idle, ready[d]) + soloTime[d]*k.work>>20
		}
	}

	// f in an open batch, if that is earlier.
	if s.endTable.joinablePlaces[k.service] > 0 {
		s.applyJoins(placeEnds, k, isLate)
	}

	// The minima.
	s.minEnd[t] = farFuture
	for n, node := range s.tables.nodes {
		minEnd, place := farFuture, node.first
		for d, end := range placeEnds[node.first:node.end] {
			if end < minEnd {
				minEnd, place = end, node.first+int32(d)
			}
		}
		s.minEndOnNode[int(t)*nodes+n], s.minPlaceOnNode[int(t)*nodes+n] = minEnd, place
		if minEnd < s.minEnd[t] {
			s.minEnd[t], s.minEndPlace[t] = minEnd, place
		}
	}
}

// applyJoins lowers the ends in placeEnds where the task could join a planned batch that is still open when its
// inputs are there, and would end earlier than in a batch of its own.
func (s *scheduler) applyJoins(placeEnds []int64, k *jobTask, isLate bool) {
	rowStart := int(k.service) * len(placeEnds)
	joinStart, joinDuration := s.endTable.joinStart[rowStart:][:len(placeEnds)], s.endTable.joinDuration[rowStart:][:len(placeEnds)]
	for d, start := range joinStart {
		readyAt := s.now
		if isLate {
			readyAt = s.inputsReady[d]
		}
		if start >= readyAt {
			placeEnds[d] = min(placeEnds[d], start+scaleTime(joinDuration[d], k.work))
		}
	}
}
