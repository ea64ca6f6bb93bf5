package workflow

import "slices"

// boundOf is the end that no schedule can beat, given what is forced.
func (s *scheduler) boundOf(j *job) int64 {
	bound := int64(0)
	for t := range j.tasks {
		if s.readers[t] == 0 && j.tasks[t].place < 0 {
			bound = max(bound, s.least[s.same[t]])
		}
	}
	return bound
}

// trace takes a schedule from the minima and keeps it if it is the best so far.
func (s *scheduler) trace(j *job) {
	places, nodes := len(s.f.ids), len(s.f.nodes)
	for t := range j.tasks {
		s.at[t] = j.tasks[t].place
		if s.forced[t] >= 0 {
			s.at[t] = s.forced[t]
		}
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
func (s *scheduler) evaluate(j *job) int64 {
	last := int64(0)
	for t := range j.tasks {
		k := &j.tasks[t]
		if k.place >= 0 {
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
func (s *scheduler) farthest(j *job, t int32) int64 {
	most := s.f.far[j.tasks[t].service]
	for i := range j.tasks {
		if k := &j.tasks[i]; k.price > 0 && k.from == t {
			most = max(most, k.price*s.f.tolls[k.service].far>>20)
		}
	}
	return most
}

// branch tries places of a shared output.
func (s *scheduler) branch(j *job, level int) {
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
		s.forced[t] = d
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
	s.forced[t] = -1
}
