package workflow

import "slices"

// exactScheduler finds the places of a job's tasks at which its last task ends earliest, by what a
// scheduler computes. Algorithm 1 of DyOrc lists partial schedules, of which there are as many as
// there are places to the power of the open tasks. This does without:
//
//  1. A schedule is traced back from the best places of the last tasks. An output that several
//     tasks read stands where the last of them wants it. Where the schedule's end is the bound, it
//     is optimal. That is always so where every output has one reader.
//  2. Else an output that several tasks read gets a place by branching, in order, best f first. A
//     place whose f is later than the best by more than a transfer across need not be tried: the
//     output is sooner there from the best place.
type exactScheduler struct {
	*scheduler
	isForced                  []bool  // by task: it has its place by branching
	sharedOutputs             []int32 // tasks with several readers, to be branched on
	triedPlaces               [][]int32
	currentPlaces, bestPlaces []int32 // places of the schedule at hand, and of the best
	currentEnds               []int64 // ends at hand
	bestEnd                   int64
	bound                     int64
	passes                    int
	maxPasses                 int
}

func newExactScheduler(f *deviceTables, r *endTable) *exactScheduler {
	return &exactScheduler{scheduler: newScheduler(f, r)}
}

// traceSchedule takes a schedule from the minima and keeps it if it is the best so far.
func (s *exactScheduler) traceSchedule(j *job) {
	places, nodes := len(s.tables.deviceAt), len(s.tables.nodes)
	for t := range j.tasks {
		s.currentPlaces[t] = j.tasks[t].place
	}
	for t := int32(len(j.tasks)) - 1; t >= 0; t-- {
		if s.currentPlaces[t] < 0 {
			s.currentPlaces[t] = s.minEndPlace[s.rowOf[t]] // nobody reads it
		}
		d := s.currentPlaces[t]
		for _, in := range j.inputsOf(t) {
			if in < 0 || s.currentPlaces[in] >= 0 {
				continue
			}
			row := s.rowOf[in]
			toNear, toFar := s.transferTimes(&j.tasks[t], &j.tasks[in], in)
			node := int(row)*nodes + int(s.tables.nodeOf[d])
			here, near, far := s.earliestEnds[int(row)*places+int(d)], s.minEndOnNode[node]+toNear, s.minEnd[row]+toFar
			switch {
			case here <= near && here <= far:
				s.currentPlaces[in] = d
			case near <= far:
				s.currentPlaces[in] = s.minPlaceOnNode[node]
			default:
				s.currentPlaces[in] = s.minEndPlace[row]
			}
		}
	}
	if end := s.evaluate(j); end < s.bestEnd {
		s.bestEnd = end
		copy(s.bestPlaces, s.currentPlaces)
	}
}

// evaluate works out equations 1 and 2 for the places at hand.
func (s *exactScheduler) evaluate(j *job) int64 {
	last := int64(0)
	for t := range j.tasks {
		k := &j.tasks[t]
		if k.place >= 0 && !s.isForced[t] {
			s.currentEnds[t] = k.end
			continue
		}
		ready := s.now
		for _, in := range j.inputsOf(int32(t)) {
			if in >= 0 {
				ready = max(ready, s.arrivalWithState(j, int32(t), in, s.currentPlaces[in], s.currentPlaces[t], s.currentEnds[in]))
			}
		}
		if k.recomputeTime > 0 && k.stateFrom < 0 {
			away, _ := s.tables.stateTransferTime(k.service, k.recomputeTime, k.stateHome, s.currentPlaces[t])
			from := s.now
			if k.stateHome >= 0 {
				from = max(from, k.stateHomeAt)
			}
			ready = max(ready, from+away)
		}
		s.currentEnds[t] = s.endTable.endAt(k.service, s.currentPlaces[t], ready, k.work)
		if s.readerCount[t] == 0 {
			last = max(last, s.currentEnds[t])
		}
	}
	return last
}

// longestTransfer is the longest way to a task that reads one.
func (s *exactScheduler) longestTransfer(j *job, t int32) int64 {
	most := s.tables.otherNodeTime[j.tasks[t].service]
	for i := range j.tasks {
		if k := &j.tasks[i]; k.recomputeTime > 0 && k.stateFrom == t {
			most = max(most, k.recomputeTime*s.tables.stateTransfers[k.service].otherNode>>20)
		}
	}
	return most
}

// branchOnOutputs tries places of a shared output.
func (s *exactScheduler) branchOnOutputs(j *job, level int) {
	if level == len(s.sharedOutputs) {
		return
	}
	t, places := s.sharedOutputs[level], len(s.tables.deviceAt)
	for level >= len(s.triedPlaces) {
		s.triedPlaces = append(s.triedPlaces, make([]int32, 0, places))
	}
	// Its row stands alone from here on: a task that is forced has no like.
	if s.rowOf[t] != t {
		copy(s.earliestEnds[int(t)*places:][:places], s.earliestEnds[int(s.rowOf[t])*places:][:places])
		s.minEnd[t] = s.minEnd[s.rowOf[t]]
		s.rowOf[t] = t
	}
	ends := s.earliestEnds[int(t)*places:][:places]
	most := s.minEnd[t] + s.longestTransfer(j, t)
	list := s.triedPlaces[level][:0]
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
	s.triedPlaces[level] = list
	for _, d := range list {
		s.isForced[t], j.tasks[t].place, j.tasks[t].end = true, d, ends[d]
		s.passes++
		s.computeEnds(j, t+1)
		if s.endBound(j) < s.bestEnd {
			s.traceSchedule(j)
			if s.bestEnd > s.bound && (s.maxPasses == 0 || s.passes < s.maxPasses) {
				s.branchOnOutputs(j, level+1)
			}
		}
		if s.bestEnd == s.bound || s.maxPasses > 0 && s.passes >= s.maxPasses {
			break
		}
	}
	s.isForced[t], j.tasks[t].place, j.tasks[t].end = false, -1, 0
}

// schedule finds the places, at most limit passes long; 0: until the best is
// proven. The result is in to. It gives the end of the last task and a bound that
// no schedule can beat; where both are the same, the schedule is proven optimal.
func (s *exactScheduler) schedule(now int64, j *job, limit int) (end, bound int64) {
	s.grow(j)
	n := len(j.tasks)
	s.currentPlaces, s.bestPlaces, s.currentEnds, s.isForced, s.sharedOutputs = make([]int32, n), make([]int32, n), make([]int64, n), make([]bool, n), nil
	for t := range j.tasks {
		if s.readerCount[t] > 1 && j.tasks[t].place < 0 {
			s.sharedOutputs = append(s.sharedOutputs, int32(t))
		}
	}
	s.now, s.maxPasses, s.passes, s.bestEnd = now, limit, 1, farFuture
	s.computeEnds(j, 0)
	s.bound = s.endBound(j)
	s.traceSchedule(j)
	if s.bestEnd > s.bound && len(s.sharedOutputs) > 0 {
		s.branchOnOutputs(j, 0)
		if s.maxPasses == 0 || s.passes < s.maxPasses {
			return s.bestEnd, s.bestEnd // all branches were tried
		}
	}
	return s.bestEnd, s.bound
}

// arrivalWithState is when what a task reads of another is at a place, and its state with it.
func (s *exactScheduler) arrivalWithState(j *job, t, in, from, to int32, end int64) int64 {
	took := s.tables.transferTime(j.tasks[in].service, from, to)
	if k := &j.tasks[t]; k.recomputeTime > 0 && k.stateFrom == in {
		away, _ := s.tables.stateTransferTime(k.service, k.recomputeTime, from, to)
		took = max(took, away)
	}
	return end + took
}
