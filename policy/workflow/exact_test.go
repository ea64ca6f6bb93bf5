package workflow

import "slices"

// exactScheduler finds the devices of a job's tasks at which its last task ends earliest, by what a
// scheduler computes. Algorithm 1 of DyOrc lists partial schedules, of which there are as many as
// there are devices to the power of the open tasks. This does without:
//
//  1. A schedule is traced back from the best devices of the last tasks. An output that several
//     tasks read stands where the last of them wants it. Where the schedule's end is the bound, it
//     is optimal. That is always so where every output has one reader.
//  2. Else an output that several tasks read gets a device by branching, in order, best f first. A
//     place whose f is later than the best by more than a transfer across need not be tried: the
//     output is sooner there from the best device.
type exactScheduler struct {
	*scheduler
	isForced                    []bool  // by task: it has its device by branching
	sharedOutputs               []int32 // tasks with several readers, to be branched on
	triedDevices                [][]int32
	currentDevices, bestDevices []int32 // devices of the schedule at hand, and of the best
	currentEnds                 []int64 // ends at hand
	bestEnd                     int64
	bound                       int64
	passes                      int
	maxPasses                   int
}

func newExactScheduler(tables *deviceTables, r *endTable) *exactScheduler {
	return &exactScheduler{scheduler: newScheduler(tables, r)}
}

// traceSchedule takes a schedule from the minima and keeps it if it is the best so far.
func (s *exactScheduler) traceSchedule(job *job) {
	deviceCount, nodeCount := len(s.tables.planDevice), len(s.tables.nodes)
	for taskIndex := range job.tasks {
		s.currentDevices[taskIndex] = job.tasks[taskIndex].deviceIndex
	}
	for taskIndex := int32(len(job.tasks)) - 1; taskIndex >= 0; taskIndex-- {
		if s.currentDevices[taskIndex] < 0 {
			s.currentDevices[taskIndex] = s.minEndDevice[s.rowOf[taskIndex]] // nobody reads it
		}
		deviceIndex := s.currentDevices[taskIndex]
		for _, input := range job.inputsOf(taskIndex) {
			if input < 0 || s.currentDevices[input] >= 0 {
				continue
			}
			row := s.rowOf[input]
			toNear, toFar := s.transferTimes(&job.tasks[taskIndex], &job.tasks[input], input)
			node := int(row)*nodeCount + int(s.tables.nodeOf[deviceIndex])
			here, near, far := s.earliestEnds[int(row)*deviceCount+int(deviceIndex)], s.minEndOnNode[node]+toNear, s.minEnd[row]+toFar
			switch {
			case here <= near && here <= far:
				s.currentDevices[input] = deviceIndex
			case near <= far:
				s.currentDevices[input] = s.minDeviceOnNode[node]
			default:
				s.currentDevices[input] = s.minEndDevice[row]
			}
		}
	}
	if end := s.evaluate(job); end < s.bestEnd {
		s.bestEnd = end
		copy(s.bestDevices, s.currentDevices)
	}
}

// evaluate works out equations 1 and 2 for the devices at hand.
func (s *exactScheduler) evaluate(job *job) int64 {
	last := int64(0)
	for taskIndex := range job.tasks {
		jobTask := &job.tasks[taskIndex]
		if jobTask.deviceIndex >= 0 && !s.isForced[taskIndex] {
			s.currentEnds[taskIndex] = jobTask.end
			continue
		}
		ready := s.now
		for _, input := range job.inputsOf(int32(taskIndex)) {
			if input >= 0 {
				ready = max(ready, s.arrivalWithState(job, int32(taskIndex), input, s.currentDevices[input], s.currentDevices[taskIndex], s.currentEnds[input]))
			}
		}
		if jobTask.recomputeTime > 0 && jobTask.stateSource < 0 {
			away, _ := s.tables.stateTransferTime(jobTask.service, jobTask.recomputeTime, jobTask.stateDevice, s.currentDevices[taskIndex])
			from := s.now
			if jobTask.stateDevice >= 0 {
				from = max(from, jobTask.stateReadyAt)
			}
			ready = max(ready, from+away)
		}
		s.currentEnds[taskIndex] = s.endTable.endAt(jobTask.service, s.currentDevices[taskIndex], ready, jobTask.workFactor)
		if s.readerCount[taskIndex] == 0 {
			last = max(last, s.currentEnds[taskIndex])
		}
	}
	return last
}

// longestTransfer is the longest way to a task that reads one.
func (s *exactScheduler) longestTransfer(job *job, taskIndex int32) int64 {
	most := s.tables.otherNodeTimes[job.tasks[taskIndex].service]
	for i := range job.tasks {
		if jobTask := &job.tasks[i]; jobTask.recomputeTime > 0 && jobTask.stateSource == taskIndex {
			most = max(most, jobTask.recomputeTime*s.tables.stateTransfers[jobTask.service].otherNodePart>>fixedBits)
		}
	}
	return most
}

// branchOnOutputs tries devices of a shared output.
func (s *exactScheduler) branchOnOutputs(job *job, level int) {
	if level == len(s.sharedOutputs) {
		return
	}
	taskIndex, deviceCount := s.sharedOutputs[level], len(s.tables.planDevice)
	for level >= len(s.triedDevices) {
		s.triedDevices = append(s.triedDevices, make([]int32, 0, deviceCount))
	}
	// Its row stands alone from here on: a task that is forced has no like.
	if s.rowOf[taskIndex] != taskIndex {
		copy(s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount], s.earliestEnds[int(s.rowOf[taskIndex])*deviceCount:][:deviceCount])
		s.minEnd[taskIndex] = s.minEnd[s.rowOf[taskIndex]]
		s.rowOf[taskIndex] = taskIndex
	}
	ends := s.earliestEnds[int(taskIndex)*deviceCount:][:deviceCount]
	most := s.minEnd[taskIndex] + s.longestTransfer(job, taskIndex)
	list := s.triedDevices[level][:0]
	for d, end := range ends {
		if end <= most {
			list = append(list, int32(d))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int {
		if ends[a] < ends[b] {
			return -1
		} else if ends[a] > ends[b] {
			return 1
		}
		return 0
	})
	s.triedDevices[level] = list
	for _, deviceIndex := range list {
		s.isForced[taskIndex], job.tasks[taskIndex].deviceIndex, job.tasks[taskIndex].end = true, deviceIndex, ends[deviceIndex]
		s.passes++
		s.computeEnds(job, taskIndex+1)
		if s.endBound(job) < s.bestEnd {
			s.traceSchedule(job)
			if s.bestEnd > s.bound && (s.maxPasses == 0 || s.passes < s.maxPasses) {
				s.branchOnOutputs(job, level+1)
			}
		}
		if s.bestEnd == s.bound || s.maxPasses > 0 && s.passes >= s.maxPasses {
			break
		}
	}
	s.isForced[taskIndex], job.tasks[taskIndex].deviceIndex, job.tasks[taskIndex].end = false, -1, 0
}

// schedule finds the devices, at most limit passes long; 0: until the best is
// proven. The result is in to. It gives the end of the last task and a bound that
// no schedule can beat; where both are the same, the schedule is proven optimal.
func (s *exactScheduler) schedule(now int64, job *job, limit int) (end, bound int64) {
	s.grow(job)
	n := len(job.tasks)
	s.currentDevices, s.bestDevices, s.currentEnds, s.isForced, s.sharedOutputs = make([]int32, n), make([]int32, n), make([]int64, n), make([]bool, n), nil
	for taskIndex := range job.tasks {
		if s.readerCount[taskIndex] > 1 && job.tasks[taskIndex].deviceIndex < 0 {
			s.sharedOutputs = append(s.sharedOutputs, int32(taskIndex))
		}
	}
	s.now, s.maxPasses, s.passes, s.bestEnd = now, limit, 1, farFuture
	s.computeEnds(job, 0)
	s.bound = s.endBound(job)
	s.traceSchedule(job)
	if s.bestEnd > s.bound && len(s.sharedOutputs) > 0 {
		s.branchOnOutputs(job, 0)
		if s.maxPasses == 0 || s.passes < s.maxPasses {
			return s.bestEnd, s.bestEnd // all branches were tried
		}
	}
	return s.bestEnd, s.bound
}

// arrivalWithState is when what a task reads of another is on a device, and its state with it.
func (s *exactScheduler) arrivalWithState(job *job, taskIndex, input, from, to int32, end int64) int64 {
	took := s.tables.transferTime(job.tasks[input].service, from, to)
	if jobTask := &job.tasks[taskIndex]; jobTask.recomputeTime > 0 && jobTask.stateSource == input {
		away, _ := s.tables.stateTransferTime(jobTask.service, jobTask.recomputeTime, from, to)
		took = max(took, away)
	}
	return end + took
}
