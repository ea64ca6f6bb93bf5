package workflow

import "slices"

// exact finds the places of a job's tasks at which its last task ends earliest, by what a
// scheduler computes. Algorithm 1 of DyOrc lists partial schedules, of which there are as many as
// there are places to the power of the open tasks. This does without:
//
//  1. A schedule is traced back from the best places of the last tasks. An output that several
//     tasks read stands where the last of them wants it. Where the schedule's end is the bound, it
//     is optimal. That is always so where every output has one reader.
//  2. Else an output that several tasks read gets a place by branching, in order, best f first. A
//     place whose f is later than the best by more than a transfer across need not be tried: the
//     output is sooner there from the best place.
type exact struct {
	*scheduler
	forced []bool  // by task: it has its place by branching
	shared []int32 // tasks with several readers, to be branched on
	tried  [][]int32
	at, to []int32 // places of the schedule at hand, and of the best
	took   []int64 // ends at hand
	best   int64
	bound  int64
	passes int
	limit  int
}

func newExact(f *fleet, r *rows) *exact { return &exact{scheduler: newScheduler(f, r)} }

// trace takes a schedule from the minima and keeps it if it is the best so far.
func (s *exact) trace(j *job) {
	places, nodes := len(s.f.ids), len(s.f.nodes)
	for t := range j.tasks {
		s.at[t] = j.tasks[t].place
	}
	for t := int32(len(j.tasks)) - 1; t >= 0; t-- {
		if s.at[t] < 0 {
			s.at[t] = s.leastAt[s.same[t]] // nobody reads it
		}
		d := s.at[t]
		for _, in := range j.inputsOf(t) {
			if in < 0 || s.at[in] >= 0 {
				continue
			}
			row := s.same[in]
			toNear, toFar := s.between(&j.tasks[t], &j.tasks[in], in)
			node := int(row)*nodes + int(s.f.nodeOf[d])
			here, near, far := s.ends[int(row)*places+int(d)], s.nodeEnd[node]+toNear, s.least[row]+toFar
			switch {
			case here <= near && here <= far:
				s.at[in] = d
			case near <= far:
				s.at[in] = s.nodeAt[node]
			default:
				s.at[in] = s.leastAt[row]
			}
		}
	}
	if end := s.evaluate(j); end < s.best {
		s.best = end
		copy(s.to, s.at)
	}
}

// evaluate works out equations 1 and 2 for the places at hand.
func (s *exact) evaluate(j *job) int64 {
	last := int64(0)
	for t := range j.tasks {
		k := &j.tasks[t]
		if k.place >= 0 && !s.forced[t] {
			s.took[t] = k.end
			continue
		}
		ready := s.now
		for _, in := range j.inputsOf(int32(t)) {
			if in >= 0 {
				ready = max(ready, s.carried(j, int32(t), in, s.at[in], s.at[t], s.took[in]))
			}
		}
		if k.price > 0 && k.from < 0 {
			away, _ := s.f.away(k.service, k.price, k.home, s.at[t])
			from := s.now
			if k.home >= 0 {
				from = max(from, k.homeAt)
			}
			ready = max(ready, from+away)
		}
		s.took[t] = s.rows.end(k.service, s.at[t], ready, k.work)
		if s.readers[t] == 0 {
			last = max(last, s.took[t])
		}
	}
	return last
}

// farthest is the longest way to a task that reads one.
func (s *exact) farthest(j *job, t int32) int64 {
	most := s.f.far[j.tasks[t].service]
	for i := range j.tasks {
		if k := &j.tasks[i]; k.price > 0 && k.from == t {
			most = max(most, k.price*s.f.tolls[k.service].far>>20)
		}
	}
	return most
}

// branch tries places of a shared output.
func (s *exact) branch(j *job, level int) {
	if level == len(s.shared) {
		return
	}
	t, places := s.shared[level], len(s.f.ids)
	for level >= len(s.tried) {
		s.tried = append(s.tried, make([]int32, 0, places))
	}
	// Its row stands alone from here on: a task that is forced has no like.
	if s.same[t] != t {
		copy(s.ends[int(t)*places:][:places], s.ends[int(s.same[t])*places:][:places])
		s.least[t] = s.least[s.same[t]]
		s.same[t] = t
	}
	ends := s.ends[int(t)*places:][:places]
	most := s.least[t] + s.farthest(j, t)
	list := s.tried[level][:0]
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
	s.tried[level] = list
	for _, d := range list {
		s.forced[t], j.tasks[t].place, j.tasks[t].end = true, d, ends[d]
		s.passes++
		s.pass(j, t+1)
		if s.boundOf(j) < s.best {
			s.trace(j)
			if s.best > s.bound && (s.limit == 0 || s.passes < s.limit) {
				s.branch(j, level+1)
			}
		}
		if s.best == s.bound || s.limit > 0 && s.passes >= s.limit {
			break
		}
	}
	s.forced[t], j.tasks[t].place, j.tasks[t].end = false, -1, 0
}

// schedule finds the places, at most limit passes long; 0: until the best is
// proven. The result is in to. It gives the end of the last task and a bound that
// no schedule can beat; where both are the same, the schedule is proven optimal.
func (s *exact) schedule(now int64, j *job, limit int) (end, bound int64) {
	s.fit(j)
	n := len(j.tasks)
	s.at, s.to, s.took, s.forced, s.shared = make([]int32, n), make([]int32, n), make([]int64, n), make([]bool, n), nil
	for t := range j.tasks {
		if s.readers[t] > 1 && j.tasks[t].place < 0 {
			s.shared = append(s.shared, int32(t))
		}
	}
	s.now, s.limit, s.passes, s.best = now, limit, 1, never
	s.pass(j, 0)
	s.bound = s.boundOf(j)
	s.trace(j)
	if s.best > s.bound && len(s.shared) > 0 {
		s.branch(j, 0)
		if s.limit == 0 || s.passes < s.limit {
			return s.best, s.best // all branches were tried
		}
	}
	return s.best, s.bound
}

// carried is when what a task reads of another is at a place, and its state with it.
func (s *exact) carried(j *job, t, in, from, to int32, end int64) int64 {
	took := s.f.move(j.tasks[in].service, from, to)
	if k := &j.tasks[t]; k.price > 0 && k.from == in {
		away, _ := s.f.away(k.service, k.price, from, to)
		took = max(took, away)
	}
	return end + took
}
